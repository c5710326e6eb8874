"""Checks of collectives; every process runs all of them. test_distributed.py starts the processes."""

from datetime import timedelta

import numpy as np
from distributed_parts import checks_of, run_checks

import weft
import weft.distributed as dist
import weft.distributed.nn.functional as with_gradients

Op = dist.ReduceOp


def raises(kind, words, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"no {kind.__name__}")


def of_rank(rank, shape=(3, 5), dtype=weft.float64):
    """Numbers whose sum depends on the order in which they are added up."""
    return weft.tensor(np.random.default_rng(rank).standard_normal(shape) * 10.0 ** (rank * 3), dtype=dtype)


def tree(parts):
    while len(parts) > 1:
        parts = [a + b for a, b in zip(parts[::2], parts[1::2])] + parts[len(parts) // 2 * 2 :]
    return parts[0]


def equal(x, y):
    return x.dtype is y.dtype and x.shape == y.shape and (x == y).all().item()


def check_ranks(rank, size):
    assert dist.is_initialized() and dist.is_available() and dist.get_backend() == "mpi"
    assert 0 <= rank < size and dist.get_process_group_ranks() == list(range(size))
    assert dist.get_rank(dist.group.WORLD) == rank
    raises(ValueError, "twice", dist.init_process_group, "mpi")


def check_all_reduce_adds_in_a_fixed_order(rank, size):
    for shape in [(3, 5), (), (0,), (7,), (size * 4000 + 1,)]:
        x = of_rank(rank, shape)
        assert dist.all_reduce(x) is None
        assert equal(x, tree([of_rank(k, shape) for k in range(size)])), shape


def check_all_reduce_of_all_types_and_reductions(rank, size):
    for dtype in (weft.float32, weft.int64, weft.uint8, weft.complex64):
        x = weft.tensor([1, 2, 3], dtype=dtype) + rank
        dist.all_reduce(x, op=Op.SUM)
        assert x.dtype is dtype and x.tolist() == [size * k + size * (size - 1) // 2 for k in (1, 2, 3)]
    for op, expected in [(Op.MAX, size - 1), (Op.MIN, 0), (Op.PRODUCT, 0), (Op.AVG, (size - 1) / 2)]:
        x = weft.tensor([float(rank)])
        dist.all_reduce(x, op)
        assert x.item() == expected, op
    bits = weft.tensor([1 << rank])
    dist.all_reduce(bits, Op.BOR)
    assert bits.item() == (1 << size) - 1
    missing = weft.tensor([float("nan") if rank == 1 else 1.0])
    dist.all_reduce(missing, Op.MAX)
    assert missing.isnan().item()
    raises(TypeError, "ReduceOp.AVG is not defined for int64; convert", dist.all_reduce, weft.tensor([1]), Op.AVG)
    raises(TypeError, "op is a weft.distributed.ReduceOp such as ReduceOp.SUM, not 'sum'", dist.all_reduce, bits, "sum")


def check_halves_are_rounded_once(rank, size):
    for dtype in (weft.float16, weft.bfloat16):
        x = of_rank(0, (50,), dtype) if rank == 0 else weft.full((50,), 1e-3, dtype=dtype)
        dist.all_reduce(x)
        parts = [of_rank(0, (50,), dtype).float()] + [weft.full((50,), 1e-3, dtype=dtype).float()] * (size - 1)
        assert equal(x, tree(parts).to(dtype))


def check_broadcast_and_reduce(rank, size):
    x = of_rank(rank)
    dist.broadcast(x, src=1)
    assert equal(x, of_rank(1))
    x = of_rank(rank)
    dist.reduce(x, 1)
    assert equal(x, tree([of_rank(k) for k in range(size)]) if rank == 1 else of_rank(rank))
    columns = of_rank(rank).t()
    dist.broadcast(columns, 0)
    assert equal(columns, of_rank(0).t())
    leaf = of_rank(rank).requires_grad_()
    dist.broadcast(leaf, 0)
    assert leaf.is_leaf and leaf.requires_grad and equal(leaf.detach(), of_rank(0))
    raises(ValueError, f"src=9 is not in the group, whose ranks are {list(range(size))}", dist.broadcast, x, 9)


def check_gathering_and_scattering(rank, size):
    whole = [of_rank(k) for k in range(size)]
    found = [weft.empty(3, 5, dtype=weft.float64) for _ in range(size)]
    dist.all_gather(found, of_rank(rank))
    assert all(map(equal, found, whole))
    joined = weft.empty(3 * size, 5, dtype=weft.float64)
    dist.all_gather_into_tensor(joined, of_rank(rank))
    assert equal(joined, weft.cat(whole))
    found = [weft.empty(3, 5, dtype=weft.float64) for _ in range(size)] if rank == 0 else None
    dist.gather(of_rank(rank), found)
    assert rank or all(map(equal, found, whole))
    mine = weft.empty(3, 5, dtype=weft.float64)
    dist.scatter(mine, whole if rank == 1 else None, src=1)
    assert equal(mine, of_rank(rank))
    raises(ValueError, f"tensor_list has 1 tensors, the group {size} ranks", dist.all_gather, [mine], mine)
    raises(ValueError, "tensor_list[0] is float32 (2,)", dist.all_gather, [weft.ones(2)] * size, mine)


def check_reduce_scatter_and_all_to_all(rank, size):
    inputs = [of_rank(rank) + k for k in range(size)]
    output = weft.empty(3, 5, dtype=weft.float64)
    dist.reduce_scatter(output, inputs)
    assert equal(output, tree([of_rank(k) + rank for k in range(size)]))
    output = weft.empty(2, dtype=weft.float64)
    dist.reduce_scatter_tensor(output, of_rank(rank, (2 * size,)))
    assert equal(output, tree([of_rank(k, (2 * size,)) for k in range(size)])[2 * rank : 2 * rank + 2])
    outputs = [weft.empty(k + 1) for k in range(size)]
    dist.all_to_all(outputs, [weft.full((rank + 1,), float(k)) for k in range(size)])
    assert all(x.tolist() == [rank] * (k + 1) for k, x in enumerate(outputs))
    output = weft.empty(size, 2)
    dist.all_to_all_single(output, weft.full((size, 2), float(rank)))
    assert output[:, 0].tolist() == list(range(size))


def check_what_does_not_fit_is_an_error(rank, size):
    """MPI left what did not come as it was, and took part of what was too long."""
    for n_elements in (1, 3):
        group = dist.new_group(list(range(size)))
        outputs = [weft.empty(n_elements if (rank, k) == (1, 0) else 2) for k in range(size)]
        words = f"all_to_all: rank 0 sends 2 elements to rank 1, which expects {n_elements}: the tensors"
        raises(dist.DistError, words, dist.all_to_all, outputs, [weft.ones(2)] * size, group)
    raises(TypeError, "all_reduce: expected a tensor, got list as tensor", dist.all_reduce, [weft.ones(2)])
    raises(TypeError, "all_gather: expected a list of tensors, got Tensor", dist.all_gather, weft.ones(2), weft.ones(2))
    raises(
        TypeError, r"all_to_all: expected a tensor, got int as output_tensor_list[0]", dist.all_to_all, [3] * size, 0
    )
    raises(TypeError, "recv: expected a tensor, got int", dist.irecv, 3, (rank + 1) % size)


def check_several_tensors_together(rank, size):
    shapes = [(3, 5), (), (0,), (size * 5000 + 1,)]
    tensors = [of_rank(rank, shape) for shape in shapes]
    work = dist.all_reduce_coalesced(tensors, async_op=True)
    assert work.wait() and all(a is b for a, b in zip(work.result(), tensors))
    for x, shape in zip(tensors, shapes):
        assert equal(x, tree([of_rank(k, shape) for k in range(size)])), shape
    one = weft.full((2,), float(rank))
    assert dist.all_reduce_coalesced(one, Op.MAX) is None and one.tolist() == [size - 1] * 2
    into = [[weft.empty(*shape, dtype=weft.float64) for shape in shapes] for _ in range(size)]
    dist.all_gather_coalesced(into, [of_rank(rank, shape) for shape in shapes])
    for k, row in enumerate(into):
        assert all(equal(x, of_rank(k, shape)) for x, shape in zip(row, shapes))
    raises(ValueError, "must have the same type", dist.all_reduce_coalesced, [weft.ones(1), weft.ones(1).long()])
    raises(TypeError, "expected a list of tensors as tensors, got []", dist.all_reduce_coalesced, [])
    raises(ValueError, "has 0 tensors, the group", dist.all_gather_coalesced, [], [one])
    raises(TypeError, "expected a tensor, got NoneType", dist.all_gather_coalesced, [[]] * size, [one])


def check_samplers_ask_the_group(rank, size):
    sampler = weft.utils.data.DistributedSampler(range(4 * size), seed=3)
    orders = [None] * size
    for epoch in range(2):
        sampler.set_epoch(epoch)
        dist.all_gather_object(orders, list(sampler))
        assert sorted(sum(orders, [])) == list(range(4 * size)) and len(sampler) == 4
    assert list(weft.utils.data.DistributedSampler(range(4 * size), shuffle=False))[:2] == [rank, rank + size]


def check_groups_are_asked_as_pytorch_writes_it(rank, size):
    assert dist.group.WORLD.size() == size and dist.group.WORLD.rank() == rank
    last = dist.new_group([size - 1])
    if rank == size - 1:
        assert last.size() == 1 and last.rank() == 0


def check_async(rank, size):
    x, y, z = of_rank(rank, (50000,)), of_rank(rank), weft.ones(3)
    works = [dist.all_reduce(x, async_op=True), dist.broadcast(y, 0, async_op=True), dist.all_reduce(z, async_op=True)]
    assert equal(x, of_rank(rank, (50000,)))
    x.add_(1.0)  # changes nothing that is on its way
    for work in reversed(works):
        assert work.wait() and work.is_completed() and work.is_success()
    assert equal(x, tree([of_rank(k, (50000,)) for k in range(size)])) and equal(y, of_rank(0)) and z[0].item() == size
    dist.all_reduce(weft.ones(3), async_op=True)  # nobody waits for it
    assert dist.barrier(async_op=True).wait(timeout=timedelta(minutes=5))
    raises(TypeError, "wait: timeout is a datetime.timedelta, not int", dist.barrier(async_op=True).wait, 3)


def check_results_of_works(rank, size):
    x, parts = weft.full((2,), float(rank)), [weft.empty(2) for _ in range(size)]
    works = [dist.all_reduce(x, async_op=True), dist.all_gather(parts, weft.ones(2) * rank, async_op=True)]
    for work, written in zip(works, ([x], parts)):
        work.wait()
        assert len(work.result()) == len(written) and all(a is b for a, b in zip(work.result(), written))
    assert x[0].item() == size * (size - 1) / 2 and [p[0].item() for p in parts] == list(range(size))
    assert dist.barrier(async_op=True).wait()
    if rank == 1:  # which begins when rank 0 has asked for the result
        dist.recv(weft.empty(1), 0)
    work = dist.broadcast(x, 1, async_op=True)
    if rank == 0:
        raises(RuntimeError, "needs to be completed before calling result()", work.result)
        dist.send(weft.ones(1), 1)
    assert work.wait() and work.result()[0] is x


def check_batches_of_messages_and_groups_of_a_size(rank, size):
    right, left, got = (rank + 1) % size, (rank - 1) % size, weft.empty(3, 5, dtype=weft.float64)
    begun = dist.batch_isend_irecv([dist.P2POp(dist.isend, of_rank(rank), right), dist.P2POp(dist.irecv, got, left)])
    for transfer in begun:
        transfer.wait()
    assert equal(got, of_rank(left))
    raises(RuntimeError, "op must be weft.distributed.isend", dist.P2POp, dist.send, got, 0)
    raises(ValueError, "one or more P2POp", dist.batch_isend_irecv, [])
    mine, all_groups = dist.new_subgroups(group_size=2)
    total = weft.tensor([rank])
    dist.all_reduce(total, group=mine)
    assert total.item() == 4 * (rank // 2) + 1 and len(all_groups) == size // 2
    assert dist.get_process_group_ranks(mine) == [rank // 2 * 2, rank // 2 * 2 + 1]
    raises(ValueError, "cannot be parted into groups of 3", dist.new_subgroups, 3)
    raises(ValueError, "give group_size", dist.new_subgroups)


def check_messages(rank, size):
    if rank == 0:
        dist.send(of_rank(0), 1)
        dist.send(of_rank(5), dst=1, tag=3)
        dist.send_object_list(["a", {"b": 2}], dst=1)
    elif rank == 1:
        x, y = weft.empty(3, 5, dtype=weft.float64), weft.empty(3, 5, dtype=weft.float64)
        second = dist.irecv(y, 0, tag=3)
        assert dist.recv(x) == 0 and equal(x, of_rank(0))
        assert second.wait() and equal(y, of_rank(5))
        found = [None, None]
        assert dist.recv_object_list(found, 0) == 0 and found == ["a", {"b": 2}]
    ahead, behind = (rank + 1) % size, (rank - 1) % size
    found = [weft.empty(2), weft.empty(2)]
    transfers = [dist.irecv(x, behind) for x in found]
    transfers += [dist.isend(weft.full((2,), rank + 0.5 * k), ahead) for k in range(2)]
    assert [transfer.wait() for transfer in transfers] == [True] * 4
    assert [x[0].item() for x in found] == [behind, behind + 0.5]
    raises(ValueError, f"send: dst is this process itself, rank {rank}", dist.send, weft.ones(1), rank)


def check_objects(rank, size):
    found = [None] * size
    dist.all_gather_object(found, {"rank": rank, "text": "x" * 1000 * rank})
    assert [one["rank"] for one in found] == list(range(size)) and len(found[1]["text"]) == 1000
    values = [rank, "mine"]
    dist.broadcast_object_list(values, src=1)
    assert values == [1, "mine"]
    found = [None] * size if rank == 0 else None
    dist.gather_object(rank, found)
    assert rank or found == list(range(size))
    output = [None]
    dist.scatter_object_list(output, [k * k for k in range(size)] if rank == 0 else None)
    assert output == [rank * rank]


def check_groups(rank, size):
    last = dist.new_group([size - 1, 0])
    if rank in (0, size - 1):
        x = weft.tensor([float(rank + 1)])
        dist.all_reduce(x, group=last)
        assert x.item() == size + 1 and dist.get_world_size(last) == 2
        y = weft.tensor([rank])
        dist.broadcast(y, src=size - 1, group=last)
        dist.broadcast(y, group_src=1, group=last)
        assert y.item() == size - 1 == dist.get_global_rank(last, 1) and dist.get_group_rank(last, size - 1) == 1
    else:
        assert last is dist.GroupMember.NON_GROUP_MEMBER and dist.all_reduce(weft.ones(1), group=last) is None
        assert dist.get_rank(last) == -1 == dist.get_world_size(last)
    dist.destroy_process_group(last)
    if rank in (0, size - 1):
        raises(ValueError, "the group has been destroyed", dist.barrier, last)
    raises(ValueError, "are not different ones of 0 to", dist.new_group, [0, 0])


def check_groups_by_lists(rank, size):
    assert dist.get_node_local_rank() == rank
    evens, odds = list(range(0, size, 2)), list(range(1, size, 2))
    mine, both = dist.new_subgroups_by_enumeration([evens, odds])
    assert dist.get_process_group_ranks(mine) == (odds if rank % 2 else evens) and len(both) == 2
    x = weft.tensor([rank])
    dist.all_reduce(x, group=mine)
    assert x.item() == sum(odds if rank % 2 else evens)
    first = dist.split_group(split_ranks=[[0]])
    assert (first is None) == (rank != 0)
    raises(NotImplementedError, "is not the group of all processes", dist.split_group, mine, [[0]])
    raises(ValueError, "rank 0 is given twice", dist.new_subgroups_by_enumeration, [[0, 1], [0]])
    raises(ValueError, "cannot be empty", dist.new_subgroups_by_enumeration, [])
    raises(ValueError, "cannot be empty", dist.split_group)


def gradient_of(function, rank):
    x = of_rank(rank, (4,)).requires_grad_()
    function(x).backward()
    return x.grad


def check_a_monitored_barrier(rank, size):
    for _ in range(3):
        assert dist.monitored_barrier() is None
    dist.monitored_barrier(timeout=timedelta(minutes=5), wait_all_ranks=True)
    group = dist.new_group([1, 0])
    assert dist.monitored_barrier(group) is None
    raises(TypeError, "timeout is a datetime.timedelta, not int", dist.monitored_barrier, None, 3)


def check_derivatives(rank, size):
    """The loss is the sum of all ranks' losses; here a rank's is its weight times the sum of what it has got."""
    weights = [float(k + 2) for k in range(size)]
    mine, total = weights[rank], sum(weights)
    ones, like = weft.ones(4, dtype=weft.float64), weft.empty(4, dtype=weft.float64)
    assert equal(gradient_of(lambda x: with_gradients.all_reduce(x).sum() * mine, rank), ones * total)
    average = gradient_of(lambda x: with_gradients.all_reduce(x, Op.AVG).sum() * mine, rank)
    assert equal(average, ones * total / size)
    assert equal(gradient_of(lambda x: with_gradients.broadcast(x, 1).sum() * mine, rank), ones * total * (rank == 1))
    assert equal(gradient_of(lambda x: with_gradients.reduce(x, 1).sum() * mine, rank), ones * weights[1])
    stacked = lambda x: weft.stack(with_gradients.all_gather(x))  # noqa: E731
    assert equal(gradient_of(lambda x: stacked(x).sum() * mine, rank), ones * total)
    gathered = lambda x: weft.stack(with_gradients.gather(x, 1))  # noqa: E731
    assert equal(gradient_of(lambda x: gathered(x).sum() * mine, rank), ones * weights[1])
    scattered = gradient_of(lambda x: with_gradients.scatter([x * k for k in range(size)], 1).sum() * mine, rank)
    assert equal(scattered, ones * sum(k * w for k, w in enumerate(weights)) * (rank == 1))
    parts = lambda x: with_gradients.reduce_scatter(like, [x * k for k in range(size)])  # noqa: E731
    assert equal(gradient_of(lambda x: parts(x).sum() * mine, rank), ones * sum(k * w for k, w in enumerate(weights)))
    turned = lambda x: weft.stack(with_gradients.all_to_all([like] * size, [x] * size))  # noqa: E731
    assert equal(gradient_of(lambda x: turned(x).sum() * mine, rank), ones * total)
    x = of_rank(rank, (4,)).requires_grad_()
    (first,) = weft.autograd.grad((with_gradients.all_reduce(x) ** 3).sum(), [x], create_graph=True)
    first.sum().backward()
    whole = tree([of_rank(k, (4,)) for k in range(size)])
    assert x.grad.allclose(6 * size * size * whole)


def of_all(rank, size, op, dtype=weft.float64):
    """The leaves of all ranks, made one: what a single process would compute."""
    pair = {Op.PRODUCT: weft.mul, Op.MAX: weft.maximum, Op.MIN: weft.minimum}[op]
    leaves = [(of_rank(k, (size, 4)) / 10.0 ** (3 * k)).to(dtype).requires_grad_() for k in range(size)]
    parts = [leaf.float() if dtype is weft.float16 else leaf for leaf in leaves]
    while len(parts) > 1:
        parts = [pair(a, b) for a, b in zip(parts[::2], parts[1::2])] + parts[len(parts) // 2 * 2 :]
    return leaves, parts[0].to(dtype)


def check_derivatives_of_products_and_extremes(rank, size):
    weights = [float(k + 2) for k in range(size)]
    for op, dtype in [(Op.PRODUCT, weft.float64), (Op.MAX, weft.float32), (Op.MIN, weft.float16)]:
        leaves, whole = of_all(rank, size, op, dtype)
        (expected,) = weft.autograd.grad(whole.sum() * sum(weights), [leaves[rank]])
        x = leaves[rank].detach().requires_grad_()
        result = with_gradients.all_reduce(x, op)
        assert equal(result.detach(), whole.detach())
        (found,) = weft.autograd.grad(result.sum() * weights[rank], [x])
        assert found.allclose(expected) and found.dtype is dtype
        # What only some ranks differentiate is the same exchange on all.
        assert equal(with_gradients.all_reduce(x.detach(), op), whole.detach())
        x = leaves[rank].detach().requires_grad_()
        reduced = with_gradients.reduce(x, 1, op)
        assert rank != 1 or equal(reduced.detach(), whole.detach())
        (found,) = weft.autograd.grad(reduced.sum(), [x])
        leaves, whole = of_all(rank, size, op, dtype)
        assert found.allclose(weft.autograd.grad(whole.sum(), [leaves[rank]])[0])
        leaves, whole = of_all(rank, size, op, dtype)
        part = with_gradients.reduce_scatter(x[0], list(x.unbind(0)), op)
        assert equal(part.detach(), whole[rank].detach())
        (found,) = weft.autograd.grad(part.sum(), [x])
        assert found.allclose(weft.autograd.grad(whole.sum(), [leaves[rank]])[0])
    raises(TypeError, "BOR is not defined for float32", with_gradients.all_reduce, weft.ones(2), Op.BOR)


def step(x, y):
    z = x * 2 + y
    dist.all_reduce(z)
    w = z.sin() + x
    dist.all_reduce(w, Op.MAX)
    return w * 3


def check_compiled(rank, size):
    compiled = weft.compile(step)
    for k in range(6):
        x, y = of_rank(rank + k, dtype=weft.float32), of_rank(rank)[0, :].float()
        assert equal(compiled(x, y), step(x, y))
    text = str(compiled.explain())
    assert "all_reduce: processes exchange values between two programs" in text and "distributed_checks.py:" in text
    assert "calls are replayed" in text and "a value was read" not in text
    raises(RuntimeError, "all_reduce: processes exchange", weft.compile(step, fullgraph=True), of_rank(0), of_rank(0))


def check_compiled_derivatives(rank, size):
    def loss(w, x):
        return (with_gradients.all_reduce(w * x).tanh() * x).sum()

    def gradient(w, x):
        value = loss(w, x)
        return value, *weft.autograd.grad(value, [w])

    compiled = weft.compile(gradient)
    w = (of_rank(rank, (4,)) / 1e9).requires_grad_()
    for k in range(6):
        x = of_rank(rank + k, (4,))
        assert all(map(equal, compiled(w, x), gradient(w, x)))


if __name__ == "__main__":
    run_checks(checks_of(globals()))
