"""Views of tensors without gradients that compiled calls have made, changed in place once those ask for gradients."""

import pytest
from attack.compare import first_difference
from compiled_twin import leaf

import weft

VIEWS = {"a part": lambda x: x[0], "a view of a view": lambda x: x.t()[1]}
DETACHED = {
    "a detached part": lambda x: x.detach()[0],
    "a detached whole": lambda x: x.detach(),
    "a part of it, detached": lambda x: x[1:].detach(),
    "of two detached": lambda x: x.detach().t().detach()[0],
}
CHANGES = {
    "a number": lambda view, w: view.mul_(2.0),
    "with gradients": lambda view, w: view.mul_(w),
    "unrecorded": lambda view, w: weft.no_grad()(view.mul_)(2.0),
}
CASES = [(view, change) for view in VIEWS for change in CHANGES]
CASES += [(view, change) for view in DETACHED for change in CHANGES if change != "with gradients"]


def changed(view, change, is_compiled, is_held):
    def scenario(compile):
        kept, w = [], leaf(3)

        def make(x):
            made = view(x)
            kept.append(made)
            if is_held:
                kept.append(x.detach())
            return made.sum()

        make, changing = compile(make), compile(change) if is_compiled else change
        for _ in range(5):
            x = weft.randn(3, 3)
            kept.clear()
            make(x)
            x.requires_grad_()
            try:
                changing(kept[0], w)
            except (RuntimeError, NotImplementedError) as error:
                yield type(error).__name__
            yield kept, x, x._version, [k._version for k in kept]
            if kept[0].requires_grad:
                kept[0].sum().backward()
            (x * 2.0).sum().backward()
            yield x.grad, w.grad

    return scenario


@pytest.mark.parametrize("is_held", (False, True), ids=("alone", "beside a detached one"))
@pytest.mark.parametrize("is_compiled", (False, True), ids=("outside", "in a call"))
@pytest.mark.parametrize(("view", "change"), CASES)
def test_what_eager_mode_refuses_is_refused(view, change, is_compiled, is_held):
    assert first_difference(changed({**VIEWS, **DETACHED}[view], CHANGES[change], is_compiled, is_held)) is None


@pytest.mark.parametrize("view", ("a detached part", "of two detached"))
def test_a_change_of_a_detached_view_is_none_of_what_it_was_made_of(view):
    """Which eager mode refuses, where it does not know of which of two tensors it is a change."""
    make = weft.compile(lambda x: DETACHED[view](x))
    for _ in range(14):  # after some calls the Python of such a function need not run
        x, w = weft.randn(3, 3), leaf(3)
        part = make(x)
        before = part.clone()
        x.requires_grad_()
        part.mul_(w)
        assert part.requires_grad and x.is_leaf and DETACHED[view](x).equal(part.detach())
        (part.sum() + (x * 2.0).sum()).backward()
        assert w.grad.equal(before) and x.grad.equal(weft.full((3, 3), 2.0))
