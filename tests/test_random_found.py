"""What random programs have found, one short program each: the same with and without compile, bit for bit."""

from compiled_twin import error_of, leaf, twin

import weft
from weft import randn
from weft.nn import functional as F


@twin
def test_slice_of_a_scalar_is_an_array(compile):
    # It was a NumPy scalar, whose memory the program read as an array's: a crash.
    f = compile(lambda x: (x.tanh()[...].item(), x[...] * 2))
    yield f(weft.tensor(2.0))


@twin
def test_chunk_is_returned(compile):
    # Views that are composed of other views had no way to be computed outside a program.
    f = compile(lambda x: x.chunk(2)[0])
    yield f(randn(4))


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
def test_constant_gives_the_shape(compile):
    # atan2(ones(5, 5, 5), x) lost its shape to that of x when the constant became a scalar.
    def f(x):
        y = weft.atan2(weft.ones(5, 5, 5), x.abs() + 0.5)
        return y @ y.mT

    x = leaf(1, 5)
    y = compile(f)(x)
    y.sum().backward()
    yield y, x


@twin
def test_gradient_that_is_always_zero(compile):
    # sign() gives a gradient of zeros, not none, whatever other results are differentiated.
    f = compile(lambda x, w: (x.sign(), w * 2, x.floor() + w))
    for k in range(3):
        x, w = leaf(3), leaf(3)
        f(x, w)[k].sum().backward()
        yield x, w


@twin
def test_use_after_a_change_through_a_view(compile):
    # The changed tensor was taken for one whose earlier value had been saved.
    w = leaf(3)

    def f(x):
        y = x.abs()
        y.view(-1)[0] = -1.25
        (w * y).sum().backward()
        return y

    f = compile(f)
    for _ in range(2):
        yield f(randn(3)), w


@twin
def test_another_path_numbers_its_inputs_differently(compile):
    # The tensors expected from the last call kept its numbers on the path of an earlier one.
    w, calls = leaf(5, 1, 1), [0]

    def f(x):
        y = x + (calls[0] if calls[0] % 2 else 0.5)
        z = w.index_select(1, weft.tensor([0, 0, 0]))
        return y, (x[:, -1] / 2 > z) * w

    f = compile(f)
    for _ in range(5):
        calls[0] += 1
        yield f(randn(5, 3))


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
def test_a_view_is_saved_across_a_read(compile):
    # gather's indices were a view, needed again by the backward of the part after the read.
    w = leaf(5)

    def f(x):
        a = weft.where(x > w, x, w)
        b = a.take_along_dim(a.argmax(-1, keepdim=True), -1).softmax(0)
        view = x.unsqueeze(-1).detach()
        view.exp_()
        value = x.sum().item()
        (b - value).sum().backward()
        return b

    yield compile(f)(randn(())), w


@twin
def test_empty_beside_a_selection_from_it(compile):
    # Fusing divided by the number of elements.
    def f(x):
        y = x.abs().exp()
        z = y.index_select(0, weft.tensor([0, 0, 0]))
        return y.sum() + z.sum()

    f = compile(f)
    yield f(weft.ones(2)), error_of(f, weft.ones(0))


@twin
def test_mean_and_sum_in_one_kernel(compile):
    # LLVM 22 adds lane 0 twice where a sum made by rotating a vector is scaled and spread (f64, AVX-512).
    f = compile(lambda x: (x.sum(), x - x.mean(-1, keepdim=True), F.layer_norm(x, x.shape)))
    for n in (3, 8, 16, 17, 33, 100):
        yield f(randn(n, dtype=weft.float64)), f(randn(n))


@twin
def test_in_place_with_another_type(compile):
    w = leaf(3)

    def f(x):
        y = w * 2.0
        y += x
        return y

    f = compile(f)
    y = f(randn(3, dtype=weft.float64))
    y.sum().backward()
    yield y, w


@twin
def test_constant_without_dimensions_keeps_types(compile):
    # A float64 constant of shape (1, 1) decides the type beside float32 operands; without dimensions it does not.
    def f(x):
        y = x @ x
        y.fill_(1.5)
        return weft.atan2(y, weft.eye(3).sigmoid() + 0.5), weft.ones(x.shape, dtype=x.dtype) - weft.ones(5, 3)

    yield compile(f)(randn(1, 1, dtype=weft.float64))


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
def test_views_of_an_eager_change_do_not_outlive_it(compile):
    # The call's own list kept the view alive, and changing its base with a history is refused while views live.
    w = leaf(())

    def f():
        y = weft.randn(2)
        y.view(-1)[0] = -1.25
        y.copy_(w + 1.5)
        return y

    y = compile(f)()
    y.sum().backward()
    yield y, w


@twin
def test_tensors_with_views_outside_are_changed_in_every_call(compile):
    w = weft.ones(3)
    seen = w.detach()

    def f(x):
        y = x * w
        w.add_(1.0)
        return y + w, seen * 2

    f = compile(f)
    for _ in range(4):
        yield f(weft.ones(3)), w, seen


@twin
def test_a_change_through_another_tensor_of_the_memory_is_noticed(compile):
    # Both came in from outside after an eager change; only the changed one was marked.
    w = leaf(2)

    def f():
        y = w * 1.0
        other = y.detach()
        y *= 2
        largest = y.max()
        other[0] = 3.0
        largest.backward()
        return y

    f = compile(f)
    for _ in range(2):
        yield error_of(f), w


@twin
def test_a_saved_view_has_the_version_of_its_base(compile):
    # The node of atan2 was made while its operand, a view of a changed tensor, was still pending.
    def f(x):
        y = (x * 2).exp()
        z = y.detach()
        with weft.no_grad():
            noise = x.detach().clone()
            noise.mul_(-1.25)
        y.fill_(0.5)
        return weft.atan2(noise.t(), x.abs() + 0.5), z

    f = compile(f)
    for _ in range(2):
        x = leaf(2, 2)
        a, z = f(x)
        a.sum().backward()
        yield a, z, x


@twin
def test_a_pending_view_has_the_version_of_its_base(compile):
    # The change runs eagerly (of another type), and the backward reads the view before its program has run.
    def f(x, y):
        y = y.erf()
        x.mul_(y)
        last = x[..., -1]
        (last @ last).backward()
        return last

    x, y = randn(2, 3), randn(3, dtype=weft.float64).requires_grad_()
    yield compile(f)(x, y), x, y


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
def test_an_expected_update_runs_eagerly(compile):
    # The scale comes in right before the update, as expected. The update could not be taken, since a detached tensor
    # sees a weight; the scale was counted as met all the same, and all later numbers were wrong.
    w, scale = leaf(3), leaf(3)
    optimizer = weft.optim.SGD([w, scale], lr=0.1)

    def f(x):
        w.grad, scale.grad = x * 2, x * 3
        optimizer.step()
        return w * scale

    f = compile(f)
    for k in range(6):
        seen = w.detach() if k == 4 else None
        yield f(randn(3)), w, scale, seen


@twin
def test_a_saved_view_of_what_is_changed_is_an_error(compile):
    # Only the changed tensor itself was marked; its views had been saved too.
    w = leaf(2)

    def f():
        y = weft.ones(4)
        z = y[:2] * w
        y.mul_(3)
        z.sum().backward()

    yield error_of(compile(f)), w


@twin
def test_a_reshape_that_copies_is_no_view(compile):
    # It was taken for one: changes of its operand were errors, or ran eagerly.
    w = leaf(6)

    def f():
        y = weft.ones(2, 3) + 1
        z = y.t().reshape(-1)
        loss = (z * w).sum()
        y.mul_(2)
        loss.backward()
        z.add_(w)
        y.add_(z.sum())
        return y, z

    f = compile(f)
    yield f(), w


@twin
def test_another_tensor_comes_in_where_one_was_expected(compile):
    # It was taken for an input like any other, and both had one number: the second got what was added to the first.
    a, b, c = weft.zeros(3), weft.zeros(3), weft.zeros(3)

    def f(x):
        for k, t in enumerate(next(orders), 1):
            t.add_(x * k)

    f, orders = compile(f), iter([(a, b), (a, b), (a, b), (c, a), (c, a), (b, a), (a, c)])
    for _ in range(7):
        f(randn(3))
        yield a, b, c


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
def test_results_that_end_in_a_reshape_are_no_views(compile):
    # In eager mode the results of these could not be changed in place: they had a base, inside of the op.
    w, x = leaf(3, 2), leaf(2)

    def f():
        results = [w @ x, x @ x, weft.ones(3) @ w, weft.ones(2, 1, 3) @ w, w.max(1).values]
        for y in results:
            y.mul_(2)
        sum(y.sum() for y in results).backward()
        return results

    yield compile(f)(), w, x


@twin
def test_view_refuses_what_strides_cannot_say(compile):
    # Of a view made in the same call it made a copy, and changing that changed nothing.
    x = weft.ones(2, 3)

    def f():
        x.t().view(6)[0] = 2.0
        return x

    def inside():
        y = x * 2
        return error_of(lambda: y.t().view(6)), y.view(3, 2), y.t().view(3, 2, 1), y[:0].view(0, 5)

    yield error_of(compile(f)), x
    yield compile(inside)()


@twin
def test_the_base_of_a_view_is_the_base_of_its_operand(compile):
    # It was the operand, which is a leaf that requires gradients: another error.
    part = randn(4)[1:3]
    part.requires_grad_()
    row = compile(lambda x: x.unsqueeze(0))(part)
    yield error_of(lambda: row.add_(1.0)), part


@twin
def test_an_expected_tensor_has_not_come_in_yet(compile):
    # Its memory was looked up for one that shares it, after a change in the call: a KeyError.
    total, whole = weft.zeros(3), randn(2, 3)
    parts = [whole[0], whole[0], whole[0]]

    def f(x, k):
        total.add_(x)
        return parts[k] * 2

    f = compile(f)
    for k in (0, 0, 0, 1, 1, 2):
        yield f(randn(3), k), total


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
def test_view_of_what_a_change_through_another_argument_reaches(compile):
    # The change ran eagerly and the values it reached were forgotten, but not the views of those: no base was found.
    def f(x, y):
        row = y.unsqueeze(0)
        x.t().add_(1.0)
        seen = row.detach()
        return seen, seen.sigmoid() * y.expand(2, *y.shape)

    f, y = compile(f), randn(()).squeeze()
    x, _ = f(randn(3, 2), y)
    for _ in range(5):
        x, product = f(x, y)
        yield x, product, y


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
