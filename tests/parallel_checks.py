"""Checks of models that several processes train; test_data_parallel.py starts the processes."""

import numpy as np
from distributed_checks import equal, of_rank, raises, tree
from distributed_parts import checks_of, run_checks

import weft
import weft.distributed as dist
from weft import nn
from weft.distributed.algorithms.ddp_comm_hooks import default_hooks
from weft.nn.parallel import DistributedDataParallel
from weft.runtime.programs.capture import capturing


def model_of(seed, **options):
    weft.manual_seed(seed)
    return DistributedDataParallel(nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)), **options)


def data_of(rank, n=8):
    rng = np.random.default_rng(100 + rank)
    return weft.tensor(rng.standard_normal((n, 6)), dtype=weft.float32), weft.tensor(rng.integers(0, 3, n))


def loss_of(model, rank):
    x, y = data_of(rank)
    return nn.functional.cross_entropy(model(x), y)


def local_gradients(model, rank):
    return weft.autograd.grad(loss_of(model.module, rank), list(model.parameters()))


def same_everywhere(tensors):
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, [x.detach().numpy().tobytes() for x in tensors])
    return all(one == found[0] for one in found)


def averages(model, size):
    return [tree(list(gs)) / size for gs in zip(*[local_gradients(model, k) for k in range(size)])]


def check_parameters_are_those_of_rank_0(rank, size):
    model = model_of(rank)
    assert same_everywhere(model.parameters())
    weft.manual_seed(0)
    assert equal(model.module[0].weight, nn.Linear(6, 16).weight)
    assert list(model.state_dict())[0] == "module.0.weight"


def check_gradients_are_averages_with_equal_bits(rank, size):
    for options in ({}, {"bucket_cap_mb": 1e-4}, {"find_unused_parameters": True}):
        model = model_of(0, **options)
        loss_of(model, rank).backward()
        gradients = [p.grad for p in model.parameters()]
        assert all(map(equal, gradients, averages(model, size))) and same_everywhere(gradients)


def check_no_sync_adds_up(rank, size):
    model = model_of(0)
    with model.no_sync():
        loss_of(model, rank).backward()
    mine = local_gradients(model, rank)
    assert all(equal(p.grad, g) for p, g in zip(model.parameters(), mine))
    loss_of(model, rank).backward()
    expected = [tree([a + a for a in gs]) / size for gs in zip(*[local_gradients(model, k) for k in range(size)])]
    assert all(equal(p.grad, g) for p, g in zip(model.parameters(), expected))


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared, self.left, self.right, self.never = (nn.Linear(4, 4) for _ in range(4))

    def forward(self, x, branch):
        return (self.left if branch == 0 else self.right)(self.shared(x))


def check_unused_parameters(rank, size):
    for options in ({"find_unused_parameters": True}, {"static_graph": True}):
        weft.manual_seed(0)
        model = DistributedDataParallel(Branches(), **options)
        with weft.no_grad():
            model.module.left.bias.fill_(float("inf"))  # of no account to ranks that do not use it
        model(weft.ones(2, 4), min(rank, 1)).sum().backward()
        assert model.module.never.weight.grad is None
        assert equal(model.module.left.bias.grad, weft.full((4,), 2 / size))
        assert equal(model.module.right.bias.grad, weft.full((4,), 2 * (size - 1) / size))
        assert same_everywhere([p.grad for p in model.parameters() if p.grad is not None])
    strict = DistributedDataParallel(Branches())
    words = "without these parameters: right.weight, right.bias, never.weight, never.bias. Parts of the model"
    raises(RuntimeError, words, strict(weft.ones(2, 4), 0).sum().backward)


def check_buffers_are_those_of_rank_0(rank, size):
    model = DistributedDataParallel(nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1)))
    for _ in range(2):
        model(of_rank(rank, (8, 4), weft.float32)).sum().backward()
    model.eval()
    model(of_rank(rank, (8, 4), weft.float32))
    assert same_everywhere(model.buffers()) and model.module[0].num_batches_tracked.item() == 2


def check_models_that_differ_are_errors(rank, size):
    wide = nn.Linear(4 + min(rank, 1), 2)
    words = "the model of rank 1 is not that of rank 0: weight of float32 (2, 5) there, weight of float32 (2, 4) here"
    raises(RuntimeError, words, DistributedDataParallel, wide)
    raises(RuntimeError, "doesn't have any parameters that require", DistributedDataParallel, nn.ReLU())
    raises(ValueError, "device_ids=[0]: there is only the CPU", DistributedDataParallel, nn.Linear(1, 1), [0])


def trained(compiled, rank, n_steps=8, **options):
    """Losses and parameters of a training, its step compiled as a whole or not."""
    model = model_of(0, bucket_cap_mb=3e-4, **options)
    optimizer = weft.optim.AdamW(model.parameters(), lr=0.01)

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    function = weft.compile(step) if compiled else step
    losses = [function(*data_of(rank + dist.get_world_size() * k)) for k in range(n_steps)]
    return [*losses, *model.parameters()], function


def check_compiled_modules_are_wrapped(rank, size):
    weft.manual_seed(0)
    model = DistributedDataParallel(weft.compile(nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))))
    assert list(model.state_dict())[0] == "module.0.weight"
    for _ in range(3):
        model.zero_grad()
        loss_of(model, rank).backward()
        gradients = [p.grad for p in model.parameters()]
        assert len(gradients) == 4 and all(map(equal, gradients, averages(model, size)))


def check_whole_steps_compiled_have_the_bits_of_eager_mode(rank, size):
    for options in ({}, {"find_unused_parameters": True}):
        eager, _ = trained(False, rank, **options)
        compiled, step = trained(True, rank, **options)
        assert all(map(equal, compiled, eager)) and same_everywhere(compiled[8:])
        text = str(step.explain())
        assert "DistributedDataParallel: processes exchange values between two programs" in text
        assert "calls are replayed" in text, text


def check_exchanges_begin_while_the_backward_goes_on(rank, size):
    """Programs of the backward run between the first exchange and the last."""
    weft.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(16, 16), nn.Tanh())]
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=1e-3)

    @weft.compile
    def step(x):
        model.zero_grad()
        model(x).square().sum().backward()

    group, begin, n_programs = model.process_group, model.process_group.begin, []
    with capturing() as capture:

        def noted(name, *arguments):
            n_programs.append(len(capture.runs))
            return begin(name, *arguments)

        group.begin = noted
        try:
            step(weft.ones(2, 16))
        finally:
            del group.begin
    assert n_programs == list(range(1, 9)), n_programs


def check_losses_are_those_of_one_process(rank, size):
    """A step of all ranks is one step on the data of all of them, within rounding."""
    together, _ = trained(True, rank)
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = weft.optim.AdamW(model.parameters(), lr=0.01)
    for k in range(8):
        x, y = (weft.cat(parts) for parts in zip(*[data_of(r + size * k) for r in range(size)]))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        average = together[k].clone()
        dist.all_reduce(average, dist.ReduceOp.AVG)
        assert abs(average.item() - loss.item()) < 1e-5
    assert all(p.allclose(q, atol=1e-5) for p, q in zip(model.parameters(), together[8:]))


def uneven(rank, size, is_compiled, n_batches, **options):
    """Parameters and buffers after rank r has had n_batches + r batches."""
    weft.manual_seed(0)
    layers = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 3))
    model = DistributedDataParallel(layers)
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x, y):
        optimizer.zero_grad()
        with model.no_sync():
            nn.functional.cross_entropy(model(x[:4]), y[:4]).backward()
        loss = nn.functional.cross_entropy(model(x[4:]), y[4:])
        loss.backward()
        optimizer.step()
        return loss.detach()

    function = weft.compile(step) if is_compiled else step
    with model.join(**options):
        for k in range(n_batches + rank):
            function(*data_of(100 * rank + k))
    return [*model.parameters(), *model.buffers()]


def check_ranks_may_have_different_numbers_of_batches(rank, size):
    for options in ({}, {"divide_by_initial_world_size": False}):
        eager = uneven(rank, size, False, 3, **options)
        assert same_everywhere(eager)
        assert all(map(equal, uneven(rank, size, True, 3, **options), eager))
    model = DistributedDataParallel(nn.Linear(2, 1), find_unused_parameters=True)
    with model.join(enable=True):
        for k in range(rank):
            model.zero_grad()
            model(weft.ones(1, 2) * (k + 1)).sum().backward()
    # The last backward was that of the last rank alone, whose gradient is divided by all.
    assert rank < size - 1 or model.module.weight.grad.tolist() == [[rank / size] * 2]
    with model.join(divide_by_initial_world_size=False):
        for k in range(rank):
            model.zero_grad()
            model(weft.ones(1, 2) * (k + 1)).sum().backward()
    assert rank < size - 1 or model.module.weight.grad.tolist() == [[rank] * 2]
    assert same_everywhere(list(model.parameters()))
    model(weft.ones(1, 2)).sum().backward()  # as before, outside of the block


def check_the_end_of_one_rank_may_be_that_of_all(rank, size):
    model, n_steps = DistributedDataParallel(nn.Linear(2, 1)), 0

    def run():
        nonlocal n_steps
        with model.join(throw_on_early_termination=True):
            for _ in range(2 + rank):
                model(weft.ones(1, 2)).sum().backward()
                n_steps += 1

    raises(RuntimeError, "Detected at least one rank that exhausted inputs", run)
    assert n_steps == 2
    with model.join(enable=False):
        model(weft.ones(1, 2)).sum().backward()


def check_communication_hooks(rank, size):
    parts = lambda model: [local_gradients(model, k) for k in range(size)]  # noqa: E731
    for hook, dtype in [
        (default_hooks.allreduce_hook, weft.float32),
        (default_hooks.fp16_compress_hook, weft.float16),
        (default_hooks.bf16_compress_hook, weft.bfloat16),
        (default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook), weft.float16),
    ]:
        for state in (None, dist.new_group(list(range(size)))):
            model = model_of(0)
            model.register_comm_hook(state, hook)
            for _ in range(2):
                model.zero_grad()
                loss_of(model, rank).backward()
                for p, gs in zip(model.parameters(), zip(*parts(model))):
                    shares = [(g.to(dtype) / size).float() for g in gs]
                    assert equal(p.grad, tree(shares).to(dtype).float())
    model = DistributedDataParallel(Branches(), find_unused_parameters=True)
    model.register_comm_hook(None, hook=default_hooks.allreduce_hook)
    model(weft.ones(2, 4), min(rank, 1)).sum().backward()
    assert model.module.never.weight.grad is None
    assert equal(model.module.left.bias.grad, weft.full((4,), 2 / size))


def check_hooks_of_ones_own(rank, size):
    seen = []

    def hook(state: list, bucket: dist.GradBucket) -> weft.futures.Future[weft.Tensor]:
        shapes = [tuple(g.shape) for g in bucket.gradients()]
        state.append((bucket.index(), bucket.is_last(), shapes, [tuple(p.shape) for p in bucket.parameters()]))
        for gradient in bucket.gradients():
            gradient.mul_(2)
        work = dist.all_reduce(bucket.buffer(), async_op=True)
        return work.get_future().then(lambda done: done.value()[0] / 2)

    weft.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 500), nn.Linear(500, 700), nn.Linear(700, 3)))
    model.register_comm_hook(seen, hook)
    loss_of(model, rank).backward()
    for p, gs in zip(model.parameters(), zip(*[local_gradients(model, k) for k in range(size)])):
        assert equal(p.grad, tree([g * 2 for g in gs]) / 2)
    assert [index for index, *_ in seen] == list(range(len(seen))) and len(seen) > 1
    assert [is_last for _, is_last, *_ in seen] == [False] * (len(seen) - 1) + [True]
    assert all(shapes == of_parameters for _, _, shapes, of_parameters in seen)
    assert sorted(sum((shapes for _, _, shapes, _ in seen), [])) == sorted(tuple(p.shape) for p in model.parameters())

    def alone(state, bucket):
        future = weft.futures.Future()
        future.set_result(bucket.buffer())
        return future

    model = model_of(0)
    model.register_comm_hook(None, alone)
    loss_of(model, rank).backward()
    assert all(equal(p.grad, g) for p, g in zip(model.parameters(), local_gradients(model, rank)))


def check_hooks_in_compiled_steps_have_the_bits_of_eager_mode(rank, size):
    for hook in (default_hooks.allreduce_hook, default_hooks.fp16_compress_hook):
        found = []
        for compiles in (False, True):
            model = model_of(0)
            model.register_comm_hook(None, hook)
            optimizer = weft.optim.Adam(model.parameters(), lr=0.05)

            def step(model=model, optimizer=optimizer):
                optimizer.zero_grad()
                loss = loss_of(model, rank)
                loss.backward()
                optimizer.step()
                return loss

            step = weft.compile(step) if compiles else step
            found.append([step().item() for _ in range(6)] + [p.detach() for p in model.parameters()])
        eager, compiled = found
        assert eager[:6] == compiled[:6] and all(map(equal, eager[6:], compiled[6:]))


def check_what_hooks_may_not_be(rank, size):
    model = model_of(0)
    raises(TypeError, "Communication hook must be callable", model.register_comm_hook, None, 1)

    def wrong(state, bucket: int):
        return None

    raises(ValueError, "bucket annotation should be dist.GradBucket", model.register_comm_hook, None, wrong)

    def wrong(state, bucket) -> int:
        return 1

    raises(ValueError, "return annotation should be weft.futures.Future", model.register_comm_hook, None, wrong)
    answers = [None, weft.ones(3), "fails", default_hooks.allreduce_hook]

    def changing(state, bucket):
        answer = answers[0]
        if answer == "fails":
            raise KeyError("of the hook's own")
        if callable(answer):
            return answer(state, bucket)
        future = weft.futures.Future()
        future.set_result(answer)
        return answer if answer is None else future

    model.register_comm_hook(None, changing)
    raises(RuntimeError, "can only be called once", model.register_comm_hook, None, changing)
    raises(TypeError, "returns a weft.futures.Future, not NoneType", loss_of(model, rank).backward)
    answers.pop(0)
    raises(RuntimeError, "holds one tensor of 163 elements, not of shape (3,)", loss_of(model, rank).backward)
    answers.pop(0)
    raises(KeyError, "of the hook's own", loss_of(model, rank).backward)
    answers.pop(0)
    model.zero_grad()
    loss_of(model, rank).backward()
    assert same_everywhere([p.grad for p in model.parameters()])
    with_join = lambda: model.join().__enter__()  # noqa: E731
    raises(RuntimeError, "with a communication hook, all ranks must have as many batches", with_join)


def joint(rank, size):
    """(the batches of all ranks, which differ in size, from where to where this rank's goes)"""
    rng = np.random.default_rng(7)
    sizes = [3 + k for k in range(size)]
    start = sum(sizes[:rank])
    return weft.tensor(rng.standard_normal((sum(sizes), 4, 5)) * 3 + 1), start, start + sizes[rank]


def check_normalization_over_all_processes(rank, size):
    whole, start, stop = joint(rank, size)
    for options in ({}, {"momentum": None}, {"affine": False}, {"track_running_stats": False, "bias": False}):
        plain = nn.BatchNorm1d(4, dtype=weft.float64, **options)
        layer = nn.SyncBatchNorm(4, dtype=weft.float64, **options)
        for _ in range(2):
            expected, found = plain(whole)[start:stop], layer(whole[start:stop])
            weft.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
        assert [name for name, _ in layer.named_buffers()] == [name for name, _ in plain.named_buffers()]
        for mine, theirs in zip(layer.buffers(), plain.buffers()):
            weft.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)
        assert same_everywhere(layer.buffers())
        plain.eval(), layer.eval()
        weft.testing.assert_close(layer(whole), plain(whole), rtol=1e-12, atol=1e-12)
    half = nn.SyncBatchNorm(4)(whole[start:stop].to(weft.bfloat16))
    assert half.dtype is weft.bfloat16 and half.shape == (stop - start, 4, 5)
    nothing = nn.SyncBatchNorm(4, dtype=weft.float64)(whole[start : stop if rank else start])
    assert nothing.shape[0] == (stop - start if rank else 0) and nothing.isfinite().all()
    few = nn.SyncBatchNorm(4)
    raises(ValueError, "Expected more than 1 value per channel when training", few, weft.ones(1 if rank == 0 else 0, 4))


def check_normalization_has_the_gradients_of_one_process(rank, size):
    """Of weights and inputs, eager and compiled."""
    whole, start, stop = joint(rank, size)
    plain = nn.BatchNorm1d(4, dtype=weft.float64)
    layer = nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(4, dtype=weft.float64))
    for one in (plain, layer):
        with weft.no_grad():
            one.weight.copy_(weft.arange(4) + 0.5)
    x = whole.clone().requires_grad_()
    target = weft.arange(20.0, dtype=weft.float64).reshape(4, 5).sin()
    (plain(x) - target).pow(3).sum().backward()

    def backward(mine):
        (layer(mine) - target).pow(3).sum().backward()

    compiled = weft.compile(backward)
    for function in (backward, compiled, compiled, compiled):
        mine = whole[start:stop].clone().requires_grad_()
        layer.weight.grad = layer.bias.grad = None
        function(mine)
        weft.testing.assert_close(mine.grad, x.grad[start:stop], rtol=1e-10, atol=1e-10)
        for found, expected in ((layer.weight.grad, plain.weight.grad), (layer.bias.grad, plain.bias.grad)):
            dist.all_reduce(found)
            weft.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def check_layers_are_converted(rank, size):
    weft.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ModuleList([nn.BatchNorm2d(4)]), nn.LayerNorm(4))
    names, state = dict(net.named_parameters()), net.state_dict()
    group = dist.new_group([0, 1])
    found = nn.SyncBatchNorm.convert_sync_batchnorm(net.eval(), group if rank < 2 else None)
    assert found is net and type(found[3]) is nn.LayerNorm
    for layer in (found[1], found[2][0]):
        assert type(layer) is nn.SyncBatchNorm and not layer.training
        assert layer.process_group is (group if rank < 2 else None)
    assert all(p is names[name] for name, p in found.named_parameters()) and [*found.state_dict()] == [*state]
    model = DistributedDataParallel(nn.Sequential(nn.SyncBatchNorm(6), nn.Linear(6, 3)))
    x, y = data_of(rank)
    nn.functional.cross_entropy(model(x), y).backward()
    assert same_everywhere([p.grad for p in model.parameters()])


if __name__ == "__main__":
    run_checks(checks_of(globals()))
