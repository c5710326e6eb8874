"""Pickles and copies of tensors, parameters, modules, optimizers and compiled things; other processes."""

import copy
import multiprocessing
import pickle
import subprocess
import sys
import types

import numpy as np
import pytest

import weft
from weft import nn, optim
from weft.nn.utils import parametrizations


def again(x, protocol=None):
    return pickle.loads(pickle.dumps(x, protocol))


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_tensors_and_parameters(protocol):
    x = weft.arange(6.0).reshape(2, 3).requires_grad_()
    x.grad = weft.ones(2, 3)
    back = again(x, protocol)
    assert type(back) is weft.Tensor and back.requires_grad and back.is_leaf and back.tolist() == x.tolist()
    assert back.grad is None
    for original in (x.detach().t(), weft.tensor(True), weft.zeros(0, 3), weft.tensor([2**40])):
        back = again(original, protocol)
        assert back.equal(original) and back.dtype is original.dtype and back.shape == original.shape
    product = again(x * 2, protocol)
    assert product.requires_grad and product.is_leaf
    param = again(nn.Parameter(x.detach(), requires_grad=False), protocol)
    assert type(param) is nn.Parameter and not param.requires_grad
    first, second = again((x, x), protocol)
    assert first is second
    first.detach().add_(1)
    assert x[0, 0].item() == 0


def test_shallow_copies_share_the_memory():
    x = weft.ones(2, requires_grad=True)
    for original in (x, nn.Parameter(weft.ones(2))):
        twin = copy.copy(original)
        with weft.no_grad():
            twin.mul_(3)
        assert original.tolist() == [3, 3] and type(twin) is type(original) and twin.requires_grad and twin.is_leaf
    used = weft.ones(2, requires_grad=True)
    result = (used * used).sum()
    with weft.no_grad():
        copy.copy(used).mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
        self.tied = self.layers[0]
        self.scales = nn.ParameterDict({"a": weft.ones(1)})

    def forward(self, x):
        return self.layers(x) * self.scales["a"]


def train(model, optimizer, schedule, n):
    losses = []
    for _ in range(n):
        optimizer.zero_grad()
        loss = model(weft.linspace(-1, 1, 12).reshape(4, 3)).pow(2).mean()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("copied", [again, copy.deepcopy])
def test_training_goes_on_from_a_copy(copied):
    model = Net().eval()
    optimizer = optim.NAdam(model.parameters(), lr=0.01)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=20)
    train(model, optimizer, schedule, 4)
    twins = copied((model, optimizer, schedule))
    assert twins[0].tied is twins[0].layers[0] and twins[1].param_groups[0]["params"][0] is twins[0].layers[0].weight
    assert twins[2].optimizer is twins[1] and not twins[0].training
    assert train(*twins, 4) == train(model, optimizer, schedule, 4)


@pytest.mark.parametrize(
    "make",
    [
        lambda: parametrizations.weight_norm(nn.Linear(3, 2)),
        lambda: parametrizations.spectral_norm(nn.Linear(3, 2)).eval(),
        lambda: nn.Sequential(nn.LazyLinear(2)),
        lambda: weft.compile(nn.Linear(3, 2)),
        lambda: optim.swa_utils.AveragedModel(nn.Linear(3, 2)),
    ],
)
def test_modules_of_all_kinds(make):
    model = make()
    twin = again(model)
    if not any(isinstance(m, nn.LazyLinear) for m in twin.modules()):
        x = weft.linspace(-1, 1, 6).reshape(2, 3)
        assert twin(x).tolist() == model(x).tolist()
    assert list(twin.state_dict()) == list(model.state_dict()) and twin(weft.ones(1, 3)).shape == (1, 2)


@weft.compile
def doubled(x):
    return x * 2


class Holder:
    @weft.compile
    def tripled(x):
        return x * 3


def test_compiled_functions_are_pickled_by_name():
    assert again(doubled) is doubled and copy.copy(doubled) is doubled
    assert again(Holder.tripled) is Holder.tripled


def test_functions_of_others_are_pickled_too():
    cloudpickle = pytest.importorskip("cloudpickle")
    factor = weft.tensor(3.0)
    compiled = weft.compile(lambda x: x * factor)
    assert pickle.loads(cloudpickle.dumps(compiled))(weft.ones(2)).tolist() == [3, 3]


MAIN = """
import sys
import numpy as np
import joblib
import weft

@weft.compile
def step(x):
    return x * 2 + offset

offset = weft.ones(1)

class Estimator:
    def __init__(self):
        self.layer = weft.compile(weft.nn.Linear(1, 1))

    def fit(self, x):
        return step(self.layer(x)).item()

if __name__ == "__main__":
    estimator, x = Estimator(), weft.ones(1, 1)
    expected = estimator.fit(x)
    assert joblib.Parallel(n_jobs=2)(joblib.delayed(estimator.fit)(x) for _ in range(2)) == [expected] * 2
    import multiprocessing
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(step, [weft.ones(1)])[0].tolist() == [3.0]
    print("both")
"""


def test_compiled_functions_of_the_main_program(tmp_path):
    pytest.importorskip("joblib")
    path = tmp_path / "program.py"
    path.write_text(MAIN)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.stdout == "both\n", done.stderr


def test_read_only_arrays_become_memory_that_can_be_written():
    x = weft.arange(3.0)
    rebuild, (kind, array, requires_grad), _ = x.__reduce_ex__(5)
    array.flags.writeable = False
    back = rebuild(kind, array, requires_grad)
    back.add_(1)
    assert back.tolist() == [1, 2, 3] and x.tolist() == [0, 1, 2]
    buffers = []
    content = pickle.dumps(x, 5, buffer_callback=buffers.append)
    assert pickle.loads(content, buffers=[bytes(b.raw()) for b in buffers]).add_(1).tolist() == [1, 2, 3]


def _square(x):
    return x * x, weft.get_num_threads() > 0


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes(method):
    context = multiprocessing.get_context(method)
    with context.Pool(1) as pool:
        ((result, alive),) = pool.map(_square, [weft.arange(3.0)])
        assert result.tolist() == [0, 1, 4] and alive
        (result,) = pool.map(doubled, [nn.Parameter(weft.ones(2))])
        assert result.tolist() == [2, 2]


def test_joblib_workers():
    joblib = pytest.importorskip("joblib")
    model = nn.Linear(3, 2)
    inputs = [weft.ones(1, 3) * k for k in range(3)]
    found = joblib.Parallel(n_jobs=2)(joblib.delayed(model)(x) for x in inputs)
    assert [x.tolist() for x in found] == [model(x).tolist() for x in inputs]
    large = weft.arange(300_000.0)
    (total,) = joblib.Parallel(n_jobs=2, max_nbytes=1000)([joblib.delayed(weft.sum)(large)])
    assert total.item() == large.sum().item()
    assert np.asarray(large)[5] == 5


# --- functions --------------------------------------------------------------------------------------------------------
HOMES = [weft, weft.nn.functional, weft.nn.init, weft.linalg, weft.fft, weft.special, weft.func, weft.autograd]


@pytest.mark.parametrize("home", [*HOMES, weft.Tensor, weft.nn.Module], ids=lambda home: home.__name__)
def test_functions_are_found_by_their_names(home):
    """Most were where they had been made, by a function or under another object's name: modules that kept one, as an
    activation, could not be sent to another process, and an error named `_reduce.<locals>.function()`."""
    functions = [getattr(home, name) for name in dir(home) if name[0] != "_"]
    functions = [f for f in functions if isinstance(f, types.FunctionType)]
    assert functions
    for function in functions:
        assert pickle.loads(pickle.dumps(function)) is function and "<" not in function.__qualname__


def test_errors_name_functions_as_they_are_called():
    for call, name in [
        (lambda: weft.ones(2).sum(axes=0), r"Tensor\.sum\(\)"),
        (lambda: weft.std(weft.ones(2), axes=0), r"(Tensor\.)?std\(\)"),
        (lambda: weft.ones(2).float(axes=0), r"Tensor\.float\(\)"),
    ]:
        with pytest.raises(TypeError, match=f"^{name} got an unexpected keyword argument"):
            call()
