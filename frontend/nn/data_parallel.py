"""DistributedDataParallel: a model that many processes train, each on its share of the data.

    backward   ... layer 3 ------ layer 2 ------ layer 1 ------|  callback at its end
    gradients       bucket 0 full     bucket 1 full             |
    all_reduce      0 begins ----------- 0 ends                 |
                                      1 begins ---------------- 1 is waited for; all are written into .grad

Parameters are put into buckets in the order in which their gradients come, last layers first. A hook of each parameter
counts; when a bucket is full, its reduction begins and the backward goes on. Every hook lets what is under way go on
too. In a compiled call the hooks run between its programs, so it is the same there.
"""

import inspect
from contextlib import contextmanager
from functools import partial

import numpy as np

from ..autograd import Variable
from ..creation import zeros_like
from ..distributed import started
from ..distributed.collectives import write
from ..distributed.comm_hooks import GradBucket
from ..distributed.objects import all_gather_object
from ..futures import Future
from ..runtime.state.modes import no_grad, state
from ..runtime.state.tensor import Tensor, tensor_of
from ..shaping import cat
from .module import Module
from .uneven_inputs import UnevenInputs

_FIRST_MB, _MB = 1, 25
_NAME = "DistributedDataParallel"
_UNFINISHED = (
    "Expected to have finished reduction of all gradients, but the backward pass has ended without these parameters: "
    "{names}. Parts of the model were not used in producing loss: pass find_unused_parameters=True to "
    "DistributedDataParallel, and make sure that all outputs of forward take part in calculating loss"
)


class DistributedDataParallel(Module):
    """A module whose gradients are averages over all processes, each of which calls it with data of its own.

    At first, parameters and buffers become those of rank 0. In a backward pass, gradients are averaged in buckets of
    bucket_cap_mb while the pass goes on; afterwards `.grad` has the same bits on all ranks. find_unused_parameters:
    some parameters may have no part in a loss; the gradient of one that no rank has used stays as it is.
    static_graph: the same parameters have a part in every loss; here it means what find_unused_parameters means.
    broadcast_buffers: before each forward, buffers become those of rank 0. Keys of its state begin with `module.`
    """

    def __init__(
        self,
        module,
        device_ids=None,
        output_device=None,
        dim=0,
        broadcast_buffers=True,
        init_sync=True,
        process_group=None,
        bucket_cap_mb=None,
        find_unused_parameters=False,
        check_reduction=False,
        gradient_as_bucket_view=False,
        static_graph=False,
    ):
        super().__init__()
        self.process_group = started.member(process_group)
        self.module, self.broadcast_buffers = module, broadcast_buffers
        self.find_unused_parameters = find_unused_parameters
        self.require_backward_grad_sync = True
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        _check(named, device_ids, self.process_group)
        if init_sync:
            _compare(module, self.process_group)
            _from_rank(0, [*module.parameters(), *module.buffers()], self.process_group)
        self._uneven = None
        self._reducer = Reducer(named, self.process_group, bucket_cap_mb, find_unused_parameters or static_graph)

    def forward(self, *inputs, **options):
        is_alone = self.process_group.n_ranks == 1
        self._reducer.is_on = state.grad_enabled and self.require_backward_grad_sync and not is_alone
        gives_buffers = not is_alone and self.require_backward_grad_sync and self._gives_buffers
        source = 0
        if self._uneven is not None:
            self._uneven.tell(True, gives_buffers, self._reducer.is_on)
            self._reducer.n_active, source = self._uneven.n_active, self._uneven.source
        if gives_buffers:
            _from_rank(source, list(self.module.buffers()), self.process_group)
        return self.module(*inputs, **options)

    @property
    def _gives_buffers(self):
        return self.broadcast_buffers and next(self.module.buffers(), None) is not None

    def register_comm_hook(self, state, hook):
        """Let hook(state, bucket) exchange gradients, in place of an average: see distributed.comm_hooks.

        hook: gets a distributed.GradBucket of this rank's gradients and returns a weft.futures.Future of a tensor with
        as many elements, which all ranks then have. TypeError if it cannot be called; RuntimeError for a second hook.
        """
        _check_hook(hook)
        if self._reducer.hook is not None:
            raise RuntimeError("register_comm_hook can only be called once: there is a communication hook")
        self._reducer.hook = partial(hook, state)

    @contextmanager
    def no_sync(self):
        """A block in which gradients are added up without being averaged; the first backward of a forward after it
        averages what has been added up."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    @contextmanager
    def join(self, divide_by_initial_world_size=True, enable=True, throw_on_early_termination=False):
        """A block in which ranks may have different numbers of batches: at its end a rank waits for the others, and
        gives zeros as its gradients, until all have come; then all have the parameters of one that came last.

        divide_by_initial_world_size: gradients are sums divided by the number of ranks; otherwise by how many of them
        still have a batch. throw_on_early_termination: RuntimeError on all ranks once one has none left. Every forward
        in the block must be followed by its backward, unless in no_sync or no_grad; other collectives are in vain.
        """
        if not enable or self.process_group.n_ranks == 1:
            yield
            return
        if self._reducer.hook is not None:
            raise RuntimeError(f"{_NAME}.join: with a communication hook, all ranks must have as many batches")
        self._uneven = UnevenInputs(self.process_group, divide_by_initial_world_size, throw_on_early_termination)
        self._reducer.divides_by_all = divide_by_initial_world_size
        try:
            yield
            self._answer_for_others()
        finally:
            self._uneven, self._reducer.divides_by_all = None, True

    def _answer_for_others(self):
        came_last = True
        while (given := self._uneven.tell(False, False, False)) is not None:
            came_last = False
            gives_buffers, gives_gradients = given
            if gives_buffers:
                _from_rank(self._uneven.source, list(self.module.buffers()), self.process_group)
            if gives_gradients:
                self._reducer.give_zeros()
        last = self._uneven.last_rank(came_last)
        _from_rank(last, [*self.module.parameters(), *self.module.buffers()], self.process_group)


class Bucket:
    """Parameters whose gradients go together: their numbers, how many are not there yet, and what is under way."""

    __slots__ = ("numbers", "n_missing", "work")

    def __init__(self, numbers):
        self.numbers, self.n_missing, self.work = numbers, len(numbers), None


class Reducer:
    """What the hooks of the parameters do."""

    def __init__(self, named, group, cap_mb, find_unused):
        self.names, self.parameters = zip(*named)
        self.group, self.find_unused, self.is_on = group, find_unused, False
        self.hook = None  # of register_comm_hook, with its state
        self.divides_by_all, self.n_active = True, group.n_ranks  # see DistributedDataParallel.join
        self.buckets = _buckets(self.parameters, cap_mb)
        self.bucket_of = {number: bucket for bucket in self.buckets for number in bucket.numbers}
        self.ready, self.n_begun = set(), 0
        for number, parameter in enumerate(self.parameters):
            parameter.register_post_accumulate_grad_hook(partial(self._arrive, number))

    def _arrive(self, number, parameter):
        """The gradient of a parameter is there."""
        if not self.is_on:
            return
        if not self.ready:
            Variable._execution_engine.queue_callback(self._finish)
        if number not in self.ready:
            self._count(number)
        self.group.advance()

    def _count(self, number):
        self.ready.add(number)
        self.bucket_of[number].n_missing -= 1
        # In the order of buckets, which is the same on all ranks, whatever the order in which they are full.
        while self.n_begun < len(self.buckets) and self.buckets[self.n_begun].n_missing == 0:
            self._begin(self.buckets[self.n_begun])
            self.n_begun += 1

    def _begin(self, bucket):
        if self.hook is None:
            bucket.work = self._begun(self._joined(bucket))
        else:
            bucket.work = self._begun_by_hook(bucket)

    @no_grad()
    def _begun_by_hook(self, bucket):
        parameters = [self.parameters[n] for n in bucket.numbers]
        given = GradBucket(self.n_begun, self._joined(bucket), parameters, bucket is self.buckets[-1])
        try:
            future = self.hook(given)
            if not isinstance(future, Future):
                raise TypeError(
                    f"{_NAME}: a communication hook returns a weft.futures.Future, not {type(future).__name__}; of a "
                    "work under way it is work.get_future()"
                )
        except BaseException:
            self._begin_anew()
            raise
        return future

    def _result(self, bucket):
        """What all ranks have made of it, when it is there: an array."""
        if self.hook is None:
            return self.group.wait(bucket.work)
        with no_grad():
            found, parameters = bucket.work.wait(), [self.parameters[n] for n in bucket.numbers]
            n_elements = sum(p.numel() for p in parameters)
            if not isinstance(found, Tensor) or found.numel() != n_elements:
                what = f"of shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
                raise RuntimeError(
                    f"{_NAME}: the Future of a communication hook holds one tensor of {n_elements} elements, not {what}"
                )
            return started.values_of(found.to(parameters[0].dtype), _NAME)

    def _begun(self, whole):
        reduction = started.ReduceOp.AVG if self.divides_by_all else started.ReduceOp.SUM
        return started.all_reduce(whole, reduction, self.group, name=_NAME)

    def give_zeros(self):
        """Take part in a backward pass of other ranks, with no gradients of its own."""
        works = []
        for bucket in self.buckets:
            parameters = [self.parameters[n] for n in bucket.numbers]
            zeros = np.zeros(sum(p.numel() for p in parameters), parameters[0].dtype.numpy)
            works.append(self._begun(tensor_of(zeros)))
        if self.find_unused:
            works.append(self._begun_use(set()))
        for work in works:
            self.group.wait(work)

    @no_grad()
    def _joined(self, bucket):
        """The gradients of a bucket. No view of them lives on, for they will be changed in place."""
        return cat([_gradient_or_zeros(self.parameters[n]).reshape(-1) for n in bucket.numbers])

    def _finish(self):
        """At the end of the backward pass."""
        used, self.ready = self.ready, set()
        try:
            if self.find_unused:
                used = self._finish_unused(used)
            elif len(used) < len(self.parameters):
                names = ", ".join(name for number, name in enumerate(self.names) if number not in used)
                raise RuntimeError(_UNFINISHED.format(names=names))
            for bucket in self.buckets:
                self._write(bucket, self._result(bucket), used)
        finally:
            self._begin_anew()

    def _begin_anew(self):
        self.ready, self.n_begun = set(), 0
        for bucket in self.buckets:
            bucket.n_missing, bucket.work = len(bucket.numbers), None

    def _finish_unused(self, used):
        """What this rank has not used counts as zeros. Returns which parameters any rank has used."""
        for number in range(len(self.parameters)):
            if number not in used:
                self._count(number)
        self.ready = set()
        found = self.group.wait(self._begun_use(used))
        return set(found.nonzero()[0].tolist())

    def _begun_use(self, used):
        mine = tensor_of(np.array([number in used for number in range(len(self.parameters))]))
        return started.all_reduce(mine, started.ReduceOp.MAX, self.group, name=_NAME)

    @no_grad()
    def _write(self, bucket, values, used):
        start, values = 0, values if self.divides_by_all else (values / self.n_active).astype(values.dtype)
        for number in bucket.numbers:
            parameter = self.parameters[number]
            part = values[start : start + parameter.numel()]
            start += parameter.numel()
            if number not in used:
                continue
            gradient, part = parameter.grad, part.reshape(parameter.shape)
            if gradient is not None:
                gradient.copy_(tensor_of(part))
            else:
                parameter.grad = tensor_of(part.copy())


def _gradient_or_zeros(parameter):
    return zeros_like(parameter) if parameter.grad is None else parameter.grad


def _buckets(parameters, cap_mb):
    """Last parameters first, of one type, up to so many megabytes. The first bucket is small, to be soon full."""
    limits, found, size_bytes, dtype = [min(_FIRST_MB, cap_mb or _MB), cap_mb or _MB], [], 0, None
    for number in reversed(range(len(parameters))):
        parameter = parameters[number]
        n_bytes = parameter.numel() * parameter.dtype.size_bytes
        limit = limits[min(len(found) - 1, 1)] * 2**20 if found else 0
        if not found or dtype is not parameter.dtype or size_bytes + n_bytes > limit:
            found.append([])
            size_bytes, dtype = 0, parameter.dtype
        found[-1].append(number)
        size_bytes += n_bytes
    return [Bucket(numbers) for numbers in found]


def _check(named, device_ids, group):
    if group is None:
        raise ValueError(f"{_NAME}: this process is not in the process_group; make the model on its ranks only")
    if not named:
        raise RuntimeError(f"{_NAME} is not needed when a module doesn't have any parameters that require a gradient.")
    if device_ids:
        raise ValueError(f"{_NAME}: device_ids={device_ids}: there is only the CPU; leave it out")


def _check_hook(hook):
    if not callable(hook):
        raise TypeError("Communication hook must be callable.")
    try:
        signature = inspect.signature(hook)
    except ValueError:
        return
    bucket, result = signature.parameters.get("bucket"), signature.return_annotation
    if bucket is not None and bucket.annotation not in (bucket.empty, GradBucket, "dist.GradBucket", "GradBucket"):
        raise ValueError("Communication hook: bucket annotation should be dist.GradBucket.")
    if result is not signature.empty and not isinstance(result, str) and result not in (Future, Future[Tensor]):
        raise ValueError("Communication hook: return annotation should be weft.futures.Future[weft.Tensor].")


def _compare(module, group):
    """All ranks must have the same parameters and buffers."""
    mine = [(name, x.dtype.name, tuple(x.shape)) for name, x in _named(module)]
    everybodys = [None] * group.n_ranks
    all_gather_object(everybodys, mine, group)
    for rank, theirs in zip(group.ranks, everybodys):
        if theirs != everybodys[0]:
            first, other = _first_difference(everybodys[0], theirs)
            raise RuntimeError(
                f"{_NAME}: the model of rank {rank} is not that of rank {group.ranks[0]}: {other} there, {first} here. "
                "All ranks must make the same model"
            )


def _named(module):
    return [*module.named_parameters(), *module.named_buffers()]


def _first_difference(first, second):
    pairs = zip([*first, None], [*second, None])
    return next(tuple(map(_text, pair)) for pair in pairs if pair[0] != pair[1])


def _text(entry):
    return "nothing" if entry is None else f"{entry[0]} of {entry[1]} {entry[2]}"


def _from_rank(root, tensors, group):
    """Give tensors the values that a rank of the group has."""
    works = [started.broadcast(tensor.detach(), root, group) for tensor in tensors]
    for tensor, work in zip(tensors, works):
        values = group.wait(work)
        if group.place != root:
            write(tensor, values)
