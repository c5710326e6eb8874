"""What memory programs for many sizes ask for, where some sizes fall while others rise."""

import weft
from weft.compiler.extent import Scope, upper


def test_memory_of_sizes_that_fall_while_others_rise_is_what_they_need(monkeypatch):
    """A bound for every n leaves out what is subtracted: of n (200 - n) (200 - n) elements it was 188 MB for 3 KB."""

    def f(x):
        y = (x * 2).cumsum(2)
        return y.flip(0).cumsum(1).sum() + y.amax()

    # Every size is recorded: this is about recordings.
    monkeypatch.setattr("weft.runtime.replay.many_learning.LEAST_SIZES", float("inf"))
    compiled = weft.compile(f)
    for n in (60, 100, 140, 180, 190, 196, 150, 120):
        x = weft.randn(n, 200 - n, 200 - n)
        assert compiled(x).numpy().tobytes() == f(x).numpy().tobytes()
        (program,) = compiled.recordings[-1].programs
        assert program.arena_bytes < 4 * 4 * x.numel() + (1 << 18)


def test_an_upper_bound_that_is_far_off_is_a_question():
    scope = Scope(150)
    n = scope.n
    near = upper(n * 4096, n * 100 + 7)
    assert not scope.guards
    far = upper(n * n * n + n * -40000 + 5_000_000, n * 100)
    assert list(scope.guards.values()) == [False]
    assert str(near) == str(n * 4096 + 7) and str(far) == str(n * n * n + n * -40000 + 5_000_000)
    assert upper(64, 7) == 64
