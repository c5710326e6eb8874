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
