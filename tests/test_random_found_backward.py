"""What random programs have found of backward passes, one short program each: compiled, the bits of eager mode."""

from compiled_twin import error_of, leaf, twin

import weft
from weft import randn


@twin
def test_gradient_of_a_product_with_a_number(compile):
    # 1 * number was replaced by the number itself, of another type than the gradient.
    def f(x, y):
        loss = (x * 1.5).sum() + (y * 1.5).sum()
        loss.backward()
        return loss

    x, y = randn(2, dtype=weft.float64).requires_grad_(), leaf(())
    yield compile(f)(x, y), x, y


@twin
def test_gradient_that_is_always_zero(compile):
    # sign() gives a gradient of zeros, not none, whatever other results are differentiated.
    f = compile(lambda x, w: (x.sign(), w * 2, x.floor() + w))
    for k in range(3):
        x, w = leaf(3), leaf(3)
        f(x, w)[k].sum().backward()
        yield x, w


@twin
def test_nodes_and_steps_meet(compile):
    # t * 0.5 runs eagerly (a view is alive) and led to t by a node, -t by a step: t's cotangents were not summed first.
    w = leaf(17)

    def f():
        t = weft.where(w > 0, w.exp(), w * 2.0)
        seen = t.detach()
        low = weft.minimum(w, -t)
        t *= 0.5
        ((t * 1.5).sum() + (low @ t) * 1.5).backward()
        return t, seen

    yield compile(f)(), w


@twin
def test_order_of_nodes_is_the_order_of_ops(compile):
    # Nodes made late, for a change that ran eagerly, came before those of earlier ops in the backward pass.
    def f(x):
        y = x.sigmoid()
        product = (x @ x.t()) * y
        masked = (product > y / (y + 1.0)) * product
        flipped = product.flip(0).floor()
        seen = flipped.detach()
        flipped.fill_(2)
        return x - masked, x.mean().sin(), seen

    f = compile(f)
    for _ in range(3):
        x = leaf(5, 5)
        a, b, seen = f(x)
        (a.sum() * 1.5 + b * 2.5).backward()
        yield a, b, x, seen


@twin
def test_gradient_of_an_in_place_change_by_another_type(compile):
    # Eager mode multiplies the float32 cotangent as it is; a recorded conversion made it float64 first.
    w = randn(5, dtype=weft.float64).requires_grad_()

    def f():
        y = w.erf()
        z = y.float()
        z.mul_(y)
        (z @ z).backward()
        return z

    yield compile(f)(), w


@twin
def test_an_eager_change_can_end_a_history(compile):
    # fill_ ran eagerly, since a view is alive, and left no history; leaving the call brought back that of exp.
    w = leaf(3)

    def f():
        y = w.exp()
        seen = y.detach()
        y.fill_(1.5)
        return y, seen

    yield compile(f)()


@twin
def test_hooks_of_leaves_run_in_one_order(compile):
    # In eager mode leaves came in the order of their addresses, in a compiled backward in that of their first use.
    leaves, seen = [leaf(3) for _ in range(5)], []
    for k, p in enumerate(leaves):
        p.register_post_accumulate_grad_hook(lambda _, k=k: seen.append(k))
    a, b, c, d, e = leaves

    def f(x, inside):
        loss = (d * x).sum() + (b.exp() * a).sum() + (e * c * d).sum()
        if inside:
            loss.backward()
        return loss

    f = compile(f)
    for _ in range(3):
        f(randn(3), True)
        f(randn(3), False).backward()
        yield seen
    assert seen == 6 * [4, 2, 0, 1, 3]  # PyTorch's


@twin
def test_gradients_share_no_memory(compile):
    # In eager mode both were one tensor, a single number repeated.
    x, y, given = leaf(3), leaf(3), weft.ones(3)

    def f():
        results = [*weft.autograd.grad((x + y).sum(), [x, y]), *weft.autograd.grad(x + y, [x, y], given)]
        results[0].mul_(2)
        results[2].mul_(3)
        return results

    yield compile(f)(), given


@twin
def test_new_data_for_a_result_keeps_its_history(compile):
    # It left the finished call, and its history with it: no gradient came.
    w = leaf(3)

    def f(inside):
        y = w * 2
        if inside:
            y.sum().backward()
        return y

    f = compile(f)
    for inside in (False, True):
        y = f(inside)
        y.data = weft.ones(3)
        yield y
        yield error_of((y * y).sum().backward), w


def _names(node):
    """Names of a node and of those before it."""
    return None if node is None else (node.name(), [_names(before) for before, _ in node.next_functions])


@twin
def test_graph_of_a_value_read_before_a_backward_inside(compile):
    # The call had let go of its leaves, since no result of its end had a history: looking at the graph was a KeyError.
    weight = leaf(3, 3)

    def f(x):
        loss = (x @ weight).square().sum()
        loss.item()
        loss.backward()
        return loss

    f = compile(f)
    for _ in range(6):
        loss = f(randn(2, 3))
        yield _names(loss.grad_fn), loss


@twin
def test_graph_through_two_calls(compile):
    # The call before was shown as one node; in a call whose results have graphs it is the op that made the value.
    weight = leaf(3)
    f, g = compile(lambda x: x * weight), compile(lambda x: x.sin().sum())
    for _ in range(6):
        y = f(randn(3))
        yield _names(g(y).grad_fn), _names(f(y).grad_fn)


@twin
def test_strided_value_in_memory_is_saved_for_a_backward(compile):
    # Read in the middle of the call, it is an input with strides of the rest; what was saved of it is row-major, but
    # the backward read it with those strides: wrong gradients.
    weight = leaf(2, 3)

    def f():
        transposed = (weight * 1.0).t()
        transposed.sum().item()
        return (transposed * transposed.detach()).square().mean(), transposed

    f = compile(f)
    for _ in range(6):
        loss, _ = f()
        loss.backward()
        yield weight.grad


@twin
def test_leaf_that_the_call_has_stepped_and_somebody_changes_before_the_backward(compile):
    # Versions of leaves that the call itself had changed were not compared: no error, and gradients of other numbers.
    weight = leaf(2)
    weight.grad = weft.ones(2)
    optimizer = weft.optim.SGD([weight], lr=0.1)

    def f(x):
        optimizer.step()
        return (x * weight * weight).sum()

    f = compile(f)
    for k in range(10):
        loss = f(randn(3, 2))
        if k in (0, 6):
            with weft.no_grad():
                weight.mul_(0.5)
        yield error_of(loss.backward), weight


@twin
def test_graph_of_a_gradient_by_a_leaf_that_the_call_has_stepped(compile):
    # To run again in eager mode, the new value of the leaf was taken for one without a history.
    weight = leaf(2)
    weight.grad = weft.ones(2)
    optimizer = weft.optim.SGD([weight], lr=0.1)

    def f(x):
        optimizer.step()
        return (x * weight**3).sum()

    f = compile(f)
    for _ in range(8):
        weight.grad = weft.ones(2)
        (gradient,) = weft.autograd.grad(f(randn(3, 2)), [weight], create_graph=True)
        gradient.sum().backward()
        yield gradient, weight


def _changed_inside_and_outside(compile, change, n_calls=9):
    """Backwards after calls that have changed what they read; some find it changed again since."""
    weight, state = leaf(2), randn(2)

    def f(x):
        changed = change(x, state, weight)
        return (x * weight * changed).sum()

    f = compile(f)
    for k in range(n_calls):
        x = randn(2)
        loss = f(x)
        if k in (0, 6, 7):
            with weft.no_grad():
                [t.mul_(0.5) for t in (x, state, weight)]
        yield error_of(loss.backward, create_graph=k == 5), weight
        weight.grad = None


# A value that a call has written into a tensor from outside was read there by a backward, whatever had happened to it
# since: wrong gradients and no error. With create_graph there was an error where there should be none.
@twin
def test_backward_after_state_was_changed_inside_and_outside(compile):
    yield from _changed_inside_and_outside(compile, lambda x, state, weight: state.add_(1.0))


@twin
def test_backward_after_an_argument_was_changed_inside_and_outside(compile):
    yield from _changed_inside_and_outside(compile, lambda x, state, weight: x.add_(1.0))


@twin
def test_backward_after_a_view_of_changed_state_was_used(compile):
    yield from _changed_inside_and_outside(compile, lambda x, state, weight: state.add_(1.0)[:])


@twin
def test_backward_after_a_leaf_was_changed_inside_and_outside(compile):
    def change(x, state, weight):
        with weft.no_grad():
            weight.add_(1.0)
        return weight

    yield from _changed_inside_and_outside(compile, change)


@twin
def test_hook_on_a_result_that_other_results_are_computed_from(compile):
    # Only what came to the result from outside the call reached its hook and its .grad.
    weight, v = leaf(2, 3), leaf(3)

    def f(x):
        hidden = x * weight
        return hidden, hidden[0], (hidden * v).sum()

    f = compile(f)
    for k in range(10):
        results = f(randn(2, 3))
        if k % 2:
            results[0].retain_grad()
        else:
            results[0].register_hook(lambda g: g * 3.0)
        sum(r.sum() for r in results).backward()
        yield results[0].grad if k % 2 else None, weight.grad, v.grad
