"""Backward from some of the results of a compiled call, as of models that return (logits, loss)."""

import gc

import pytest

import weft
from weft.nn import functional as F

TIMES = 8  # calls: the first are recorded, from the third on they are replayed, and natively from some later one on


def model(w, x, y):
    logits = x @ w
    return logits, F.cross_entropy(logits, y), {"norm": logits.norm()}


def apart(w, x, y):
    """Results that have nothing in common but a leaf."""
    return (w * x[0, 0]).sum(), (w.exp() * x[1, 1]).sum(), {"norm": (w * w).sum()}


def twice(function, use):
    """What `use` says of calls of the function, eagerly and compiled: (found, errors and gradients)."""
    said = []
    for compiled in (False, True):
        weft.manual_seed(3)
        w, x, y = weft.nn.Parameter(weft.randn(3, 4)), weft.randn(5, 3), weft.tensor([0, 1, 2, 3, 0])
        f = weft.compile(function) if compiled else function
        said.append([])
        for k in range(TIMES):
            w.grad = None if k % 3 else w.grad
            said[-1].append(repr([outcome(use, f, w, x, y), None if w.grad is None else w.grad.tolist()]))
    return said


def outcome(use, f, w, x, y):
    try:
        return use(*f(w, x, y), w)
    except RuntimeError as error:
        return str(error).split(", at ")[0]


def of_loss(logits, loss, more, w):
    loss.backward()
    return logits.tolist(), loss.item(), more["norm"].item()


def of_loss_then_norm(logits, loss, more, w):
    loss.backward()
    more["norm"].backward()


def of_loss_kept_then_norm(logits, loss, more, w):
    loss.backward(retain_graph=True)
    more["norm"].backward()


def of_loss_and_norm(logits, loss, more, w):
    weft.autograd.backward([loss, more["norm"]])


def of_norm_and_loss(logits, loss, more, w):
    weft.autograd.backward([more["norm"], loss])


def of_loss_twice(logits, loss, more, w):
    weft.autograd.backward([loss, loss])


def of_sum_of_two(logits, loss, more, w):
    (loss + 0.1 * more["norm"]).backward()


def of_logits_with_cotangent(logits, loss, more, w):
    logits.backward(weft.ones_like(logits) * 0.5)


def with_a_hook_on_another(logits, loss, more, w):
    seen = []
    logits.register_hook(lambda g: seen.append(g.sum().item()) or g * 2)
    loss.backward()
    return seen


def with_a_gradient_kept_of_another(logits, loss, more, w):
    logits.retain_grad()
    loss.backward()
    return None if logits.grad is None else logits.grad.tolist()


def with_a_hook_on_the_node(logits, loss, more, w):
    seen = []
    handle = more["norm"].grad_fn
    loss.backward()
    return seen, handle is not None


def another_changed_before(logits, loss, more, w):
    with weft.no_grad():
        logits.mul_(2)
    loss.backward()


def leaf_changed_before(logits, loss, more, w):
    with weft.no_grad():
        w.mul_(0.5)
    loss.backward()


def gradients_of_loss(logits, loss, more, w):
    return [g.tolist() for g in weft.autograd.grad(loss, [w])]


def gradients_with_history(logits, loss, more, w):
    (g,) = weft.autograd.grad(loss, [w], create_graph=True)
    g.square().sum().backward()


def loss_alone_is_held(logits, loss, more, w):
    del logits, more
    gc.collect()
    loss.backward()


USES = [
    of_loss, of_loss_then_norm, of_loss_kept_then_norm, of_loss_and_norm, of_norm_and_loss, of_loss_twice,
    of_sum_of_two, of_logits_with_cotangent, with_a_hook_on_another, with_a_gradient_kept_of_another,
    with_a_hook_on_the_node, another_changed_before, leaf_changed_before, gradients_of_loss, gradients_with_history,
    loss_alone_is_held,
]  # fmt: skip


@pytest.mark.parametrize("function", [model, apart], ids=lambda f: f.__name__)
@pytest.mark.parametrize("use", USES, ids=lambda f: f.__name__)
def test_as_in_eager_mode(function, use):
    eager, compiled = twice(function, use)
    assert eager == compiled


def test_uses_in_turn():
    """What one use has taught says nothing of the next."""
    w, x, y = weft.nn.Parameter(weft.ones(3, 4)), weft.ones(5, 3), weft.tensor([0, 1, 2, 3, 0])
    compiled, found = weft.compile(model), []
    for f in (model, compiled):
        found.append([])
        w.grad = None
        for k in range(5 * len(USES)):
            with weft.no_grad():
                w.copy_(weft.full((3, 4), 0.1 * (k % 7)))
            use = USES[k * 7 % len(USES)]
            found[-1].append(repr([outcome(use, f, w, x, y), None if w.grad is None else w.grad.tolist()]))
    assert found[0] == found[1]


def test_it_is_done_without_nodes():
    w, x, y = weft.nn.Parameter(weft.ones(3, 4)), weft.ones(5, 3), weft.tensor([0, 1, 2, 3, 0])
    f = weft.compile(model)
    for _ in range(TIMES):
        logits, loss, more = f(w, x, y)
        w.grad = None
        loss.backward()
    assert loss._frame.frame is None and loss._frame.freed != () and logits._frame is loss._frame
    with pytest.raises(RuntimeError, match="second time"):
        more["norm"].backward()


def of_logits_in_more_ops(logits, loss, more, w):
    (logits.mean() * 2).backward()


def of_two_in_more_ops(logits, loss, more, w):
    (logits.mean() + more["norm"]).backward()


def of_logits_in_more_ops_twice(logits, loss, more, w):
    total = logits.mean() * 2
    total.backward()
    loss.backward()


def of_one_after_the_other(logits, loss, more, w):
    logits.sum().backward()
    loss.backward()
    more["norm"].backward()


def with_a_hook_on_another_on_the_way(logits, loss, more, w):
    seen = []
    logits.register_hook(lambda g: seen.append(g.sum().item()) or g * 2)
    (loss * 2).backward()
    return seen


def gradients_on_the_way(logits, loss, more, w):
    return [g.tolist() for g in weft.autograd.grad(loss * 2, [w])]


def kept_on_the_way(logits, loss, more, w):
    (loss * 2).backward(retain_graph=True)
    more["norm"].backward()


@pytest.mark.parametrize("function", [model, apart], ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    "use",
    [
        with_a_hook_on_another_on_the_way,
        gradients_on_the_way,
        kept_on_the_way,
        of_logits_in_more_ops,
        of_two_in_more_ops,
        of_logits_in_more_ops_twice,
        of_one_after_the_other,
    ],
    ids=lambda f: f.__name__,
)
def test_in_the_middle_of_a_pass(function, use):
    eager, compiled = twice(function, use)
    assert eager == compiled
