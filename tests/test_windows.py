"""Patches of images (weft.nn.functional.unfold): what is kept for the next call."""

import pytest

import weft
from weft.nn import windows


@pytest.mark.parametrize(("size", "kept"), [(6, 1), (200, 0)])
def test_positions_of_patches_are_kept_where_they_are_few(size, kept):
    """Those of large images would stay in memory for ever."""
    windows._places.cache_clear()
    for _ in range(2):
        assert weft.nn.functional.unfold(weft.ones(1, 1, size, size), 3).sum() == 9 * (size - 2) ** 2
    assert windows._places.cache_info().currsize == kept
