"""Where no derivative is known, or no history can be: errors, eager and compiled, and none where all is well."""

import warnings

import pytest

import weft


def run(function, compiled):
    return weft.compile(function) if compiled else function


def inputs():
    return weft.full((3,), 1.5, requires_grad=True), weft.full((3,), 2.0, requires_grad=True)


UNKNOWN = {
    "zeta": lambda a: weft.special.zeta(a, weft.ones(3)),
    "igamma: input": lambda a: weft.special.gammainc(a, weft.ones(3)),
    "igammac: input": lambda a: weft.special.gammaincc(a, weft.ones(3)),
    "unique": lambda a: weft.unique(a),
    "unique_consecutive": lambda a: weft.unique_consecutive(a, return_counts=True)[0],
    "bincount": lambda a: weft.bincount(weft.tensor([0, 1, 1]), weights=a),
    "histogram": lambda a: weft.histogram(a, 3).hist,
    "histogramdd": lambda a: weft.histogramdd(a.reshape(3, 1), [2]).hist,
    "geqrf": lambda a: weft.geqrf(a.reshape(3, 1)).a,
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", UNKNOWN)
def test_a_derivative_that_nobody_knows_is_no_zero(name, compiled):
    def step(a, x):
        loss = UNKNOWN[name](a).sum() + x.sum()
        loss.backward()
        return loss

    def of_the_other(a, x):
        return weft.autograd.grad(UNKNOWN[name](a).sum() + (x * x).sum(), x)[0]

    step, of_the_other = run(step, compiled), run(of_the_other, compiled)
    for _ in range(3):
        a, x = inputs()
        with pytest.raises(NotImplementedError, match=f"the derivative for '{name}' is not implemented"):
            step(a, x)
        assert of_the_other(a, x).tolist() == [4, 4, 4]
        assert not UNKNOWN[name](a.detach()).requires_grad
        with weft.no_grad():
            assert not UNKNOWN[name](a).requires_grad


@pytest.mark.oracle
def test_the_same_results_have_a_history_as_in_pytorch():
    import torch

    def found(library):
        a = library.full((3,), 1.5, requires_grad=True)
        results = [
            library.special.zeta(a, library.ones(3)),
            library.special.gammainc(a, library.ones(3)),
            library.bincount(library.tensor([0, 1, 1]), weights=a),
            library.histogram(a, 3).hist,
            library.geqrf(a.reshape(3, 1)).a,
            *library.unique(a, return_inverse=True, return_counts=True),
            *library.unique_consecutive(a, return_inverse=True),
            library.unique(a, dim=0),
            library.histc(a),
            library.searchsorted(library.ones(3), a),
        ]
        return [x.requires_grad for x in results]

    assert found(weft) == found(torch)


class Doubled(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class Itself(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class InPlace(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def changed_part(x):
    y = Doubled.apply(x)
    y[0].mul_(3)
    return y


def changed_transposed(x):
    y = Doubled.apply(x)
    y.t().mul_(3)
    return y


def changed_part_after_a_change(x):
    y = InPlace.apply(x * 1)
    y[0].mul_(3)
    return y


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("change", [changed_part, changed_transposed, changed_part_after_a_change])
def test_parts_of_what_a_function_has_made_can_be_changed(change, compiled):
    change = run(change, compiled)
    for _ in range(3):
        x = weft.ones(2, 2, requires_grad=True)
        y = change(x)
        y.sum().backward()
        assert x.grad.tolist() == y.tolist()


@pytest.mark.parametrize("compiled", [False, True])
def test_views_that_a_function_has_made_can_not(compiled):
    def whole(x):
        return Itself.apply(x * 1).mul_(3)

    def part(x):
        return Itself.apply(x * 1)[0].mul_(3)

    for function, maker in ((whole, "Itself"), (part, "Select")):
        with pytest.raises(RuntimeError, match=f"Output 0 of {maker} is a view.* created inside a custom Function"):
            run(function, compiled)(weft.ones(2, 2, requires_grad=True))
    with pytest.raises(RuntimeError, match="Output 1 of Unbind is a view.* returns multiple views"):
        (weft.ones(2, 2, requires_grad=True) * 1).unbind()[1].mul_(2)


class Several(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x, changes_another):
        changed = x * 1 if changes_another else x
        ctx.mark_dirty(changed)
        return changed.mul_(2), x + 1

    @staticmethod
    def backward(ctx, first, second):
        return first * 2 + second, None


@pytest.mark.parametrize("compiled", [False, True])
def test_what_is_marked_as_changed_is_an_input_and_no_view_among_others(compiled):
    x = weft.ones(2, 2, requires_grad=True)
    with pytest.raises(RuntimeError, match="modifies inplace an input that is a view of another Tensor"):
        run(lambda x: Several.apply((x * 1)[0], False), compiled)(x)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        first, second = run(lambda x: Several.apply(x, True), compiled)(x)
    assert any("received a tensor that was not an input" in str(warning.message) for warning in seen)
    (first + second).sum().backward()
    assert x.grad.tolist() == [[3, 3], [3, 3]]


EXTREMES = {
    "max": lambda x: x.max(),
    "min": lambda x: x.min(),
    "amax": lambda x: x.amax(),
    "amin of rows": lambda x: x.reshape(1, 3).amin(1),
    "max of rows": lambda x: x.reshape(1, 3).max(1).values,
}


@pytest.mark.oracle
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", EXTREMES)
def test_gradients_of_extremes_of_nans(name, compiled):
    import numpy as np
    import torch

    nan = float("nan")

    def slope(library, numbers, wrap):
        x = library.tensor(numbers, requires_grad=True)
        wrap(EXTREMES[name])(x).sum().backward()
        return x.grad.numpy()

    for numbers in ([nan, nan, nan], [nan, 2.0, nan], [1.0, 1.0, 1.0], [2.0, -1.0, 2.0], [-0.0, 0.0, 0.0]):
        found = slope(weft, numbers, lambda f: run(f, compiled))
        np.testing.assert_array_equal(found, slope(torch, numbers, lambda f: f))


@pytest.mark.parametrize("compiled", [False, True])
def test_a_second_derivative_through_what_was_cut_off_lacks_nothing(compiled):
    def first(x):
        middle = x.clone()
        y = middle.sin().sum()
        middle.detach_()
        y.backward()
        return x.grad

    def second(x):
        middle = x.clone()
        y = middle.sin().sum()
        middle.detach_()
        (slope,) = weft.autograd.grad(y, x, create_graph=True)
        return weft.autograd.grad(slope.sum(), x)

    first, second = run(first, compiled), run(second, compiled)
    for _ in range(3):
        x = weft.ones(2, requires_grad=True)
        assert first(x).tolist() == weft.ones(2).cos().tolist()
        with pytest.raises(RuntimeError, match="saved tensor that has been detached in-place"):
            second(x)


@pytest.mark.parametrize("compiled", [False, True])
def test_hooks_around_backward_are_not_called_for_second_derivatives(compiled):
    module, calls = weft.nn.MSELoss(), []
    module.register_full_backward_hook(lambda *given: calls.append(len(given)))

    def curvature(x, y):
        (slope,) = weft.autograd.grad(module(x, y), x, create_graph=True)
        n = len(calls)
        return weft.autograd.grad(slope, x)[0], len(calls) - n

    curvature = run(curvature, compiled)
    for k in range(3):
        found, more = curvature(weft.ones(1, requires_grad=True), weft.zeros(1))
        assert found.tolist() == [2] and more == 0 and len(calls) == k + 1


class Pair(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x), x + 1

    @staticmethod
    def backward(ctx, first, second):
        return first + second


def test_a_view_among_several_results_is_one_of_several_views():
    with pytest.raises(RuntimeError, match="Output 0 of Pair is a view.* returns multiple views"):
        Pair.apply(weft.ones(2, requires_grad=True) * 1)[0].mul_(2)
    first, second = Pair.apply(weft.ones(2, requires_grad=True) * 1)
    assert second.mul_(2).tolist() == [4, 4]
