"""as_strided, which reads elements by their place in memory."""

import numpy as np
import pytest

import weft


@pytest.mark.oracle
@pytest.mark.parametrize("wrap", [lambda f: f, weft.compile], ids=["eager", "compiled"])
@pytest.mark.parametrize(
    ("view", "size", "stride", "offset"),
    [
        (lambda x: x.transpose(0, 2), (2, 2), (1, 3), None),
        (lambda x: x.permute(2, 0, 1), (3, 2), (4, 12), 1),
        (lambda x: x[1].t(), (3,), (2,), 12),
        (lambda x: x[:, 1:], (2, 2), (12, 1), None),
        (lambda x: x[..., 0:1].expand(2, 3, 5), (2, 3), (12, 4), None),
    ],
)
def test_as_strided_of_what_does_not_lie_in_order(view, size, stride, offset, wrap):
    torch = pytest.importorskip("torch")
    numbers = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

    def squares(library, wrap=lambda f: f):
        leaf = library.tensor(numbers, requires_grad=True)

        def step(x):
            shown = view(x * 1).as_strided(size, stride, storage_offset=offset)
            (shown * shown).sum().backward()
            return shown

        return wrap(step)(leaf).tolist(), leaf.grad.tolist()

    assert squares(weft, wrap) == squares(torch)


def test_as_strided_reaches_what_the_tensor_shows():
    x = weft.zeros(2, 3)
    with pytest.raises(RuntimeError, match="out of bounds for 6 elements"):
        x.as_strided((3,), (3,))
    with pytest.raises(NotImplementedError, match=r"does not show; call it on the tensor that this is a view of"):
        x[:, :2].as_strided((3,), (1,))
    with pytest.raises(NotImplementedError, match="does not show"):
        x[1].as_strided((3,), (1,), 0)
