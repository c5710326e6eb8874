"""Calls with many shapes in which some size is the square of another."""

import weft


def equal_bits(a, b):
    return a.detach().numpy().tobytes() == b.detach().numpy().tobytes()


def test_sizes_that_are_squares_of_what_changes():
    """They were taken for affine functions, which fit any two sizes, and no third."""

    def flat(x):
        return (x[:, None] * x).reshape(-1).cos().sum(), (x[:, None] + x).flatten()[:: x.shape[0] + 1]

    f = weft.compile(flat)
    for n in (5, 6, 7, 9, 12, 30):
        x = weft.randn(n)
        assert all(map(equal_bits, f(x), flat(x))), n
    assert sum("n" not in p.meta for r in f.recordings for p in r.programs) == 1, f.explain()


def test_programs_around_a_factorization_that_numpy_computes():
    """A Gaussian process of so many points that LAPACK takes part: what lies between its calls is for all sizes."""
    scale = weft.zeros(1, requires_grad=True)

    def likelihood(x, y):
        kernel = weft.exp(-((x[:, None] - x) ** 2) / scale.exp()) + 0.1 * weft.eye(x.shape[0])
        factor = weft.linalg.cholesky(kernel)
        found = 0.5 * (y[:, None] * weft.cholesky_solve(y[:, None], factor)).sum() + factor.diagonal().log().sum()
        return found.detach(), *weft.autograd.grad(found, [scale])

    f = weft.compile(likelihood)
    for n in (520, 524, 529, 540):
        x, y = weft.randn(n), weft.randn(n)
        assert all(map(equal_bits, f(x, y), likelihood(x, y))), n
    alone = [[p for p in r.programs if "n" not in p.meta] for r in f.recordings]
    assert alone[0] and not any(alone[1:]), f.explain()
