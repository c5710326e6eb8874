"""PyTorch's import paths and names: what weft has is found where PyTorch has it, and what it lacks explains itself."""

import importlib
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import weft
from weft import absent, nn
from weft.paths import PATHS

ROOT = Path(__file__).parent.parent


IMPORTS = """
from weft.utils.data.dataloader import DataLoader, default_collate
from weft.utils.data.dataset import Dataset, TensorDataset, Subset, random_split
from weft.nn.modules.linear import Linear, Identity
from weft.nn.modules.module import Module
from weft.nn.modules.loss import _Loss, MSELoss
from weft.nn.modules.batchnorm import _BatchNorm
from weft.nn.modules.container import Sequential, ModuleList
from weft.nn.modules.utils import _pair, _ntuple
from weft.nn.modules import activation, Tanh
from weft.nn.parameter import Parameter
from weft.nn.utils import clip_grad_norm_, parameters_to_vector
from weft.nn.utils.clip_grad import clip_grad_norm_
from weft.nn.utils.rnn import pad_sequence
from weft.autograd import Variable, Function
from weft.autograd.function import Function, once_differentiable, FunctionCtx
from weft.autograd.grad_mode import no_grad
from weft.optim.optimizer import Optimizer, required
from weft.optim.lr_scheduler import _LRScheduler, LRScheduler, StepLR
from weft.optim.adamw import AdamW
from weft.cuda.amp import autocast, GradScaler
from weft.cuda.amp.grad_scaler import GradScaler
from weft.amp.autocast_mode import autocast
from weft.backends import cudnn
import weft.backends.cudnn as cudnn
import weft.backends.mps
from weft.utils.checkpoint import checkpoint
from weft.utils._pytree import tree_map
from weft.utils import checkpoint, data
from weft.utils.data.distributed import DistributedSampler
from weft.distributed import init_process_group, destroy_process_group
from weft.nn.parallel import DataParallel, DistributedDataParallel
import weft.multiprocessing as mp
import weft.distributed as dist
from weft.testing import assert_close
from weft.serialization import load
from weft.random import fork_rng
from weft.version import __version__
from weft.hub import load_state_dict_from_url
from weft import GradScaler
from weft.utils.model_zoo import load_url
from weft.functional import norm, einsum
from weft.nn.attention import SDPBackend, sdpa_kernel
from weft.nn.attention.flex_attention import flex_attention, create_block_mask
from weft.nn.attention.bias import causal_lower_right
from weft.nn.utils.weight_norm import weight_norm
from weft.profiler.profiler import profile
from weft.distributions.studentT import StudentT
from weft.distributions.lowrank_multivariate_normal import LowRankMultivariateNormal
import weft._dynamo
from weft.nn.modules import *
from weft.nn.functional import *
"""


@pytest.mark.parametrize("line", IMPORTS.strip().split("\n"))
def test_imports(line, without_torch):
    exec(line, {})
    with weft.as_torch():
        exec(line.replace("weft", "torch"), {})


def test_paths_show_what_is_there():
    import weft.nn.modules.linear as linear

    assert linear.Linear is nn.Linear is weft.nn.modules.Linear and "Linear" in dir(linear)
    assert weft.nn.modules.linear is linear and weft.utils.data.dataset.Dataset is weft.utils.data.Dataset
    linear.mine = 3
    assert weft.nn.modules.linear.mine == 3
    assert pickle.loads(pickle.dumps(weft.nn.modules.linear.Linear)) is nn.Linear


@pytest.mark.parametrize("path", sorted(PATHS))
def test_every_path_of_the_table(path, without_torch):
    module = importlib.import_module(f"weft.{path}")
    assert sys.modules[f"weft.{path}"] is module
    with weft.as_torch():
        assert importlib.import_module(f"torch.{path}") is module


@pytest.mark.oracle
def test_the_table_names_paths_of_pytorch():
    pytest.importorskip("torch")
    own = {"_dynamo.config", "_inductor", "_inductor.config", "cuda.streams", "_dynamo"}
    for path in sorted(PATHS.keys() - own):
        importlib.import_module(f"torch.{path}")


# --- the name torch ---------------------------------------------------------------------------------------------------
def alone(program, *arguments):
    """What a program prints in a process without PyTorch."""
    command = [sys.executable, "-c", program, *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_weft_under_the_name_torch():
    printed = alone(
        "import sys, weft\n"
        "with weft.as_torch() as torch:\n"
        "    import torch.nn as nn, torch.nn.functional as F\n"
        "    from torch.utils.data.dataset import Dataset\n"
        "    import torch as other\n"
        "    found = weft.utils.data.Dataset\n"
        "    print(other is weft is torch, nn is weft.nn, F is weft.nn.functional, Dataset is found)\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'torch'], weft.nn.__spec__.name)\n"
        "weft.as_torch()\n"
        "weft.as_torch()\n"
        "import torch.optim\n"
        "print(torch.optim is weft.optim)\n"
    )
    assert printed == "True True True True\n[] weft.nn\nTrue\n"


def test_a_module_as_a_program(tmp_path):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    (tmp_path / "pack" / "tool.py").write_text("import sys, torch\nprint(torch.ones(2).sum().item(), sys.argv[1:])\n")
    command = [sys.executable, "-m", "weft", "-m", "pack.tool", "--x", "1"]
    finished = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert finished.stdout == "2.0 ['--x', '1']\n", finished.stderr


def test_a_program_imports_its_neighbours(tmp_path):
    (tmp_path / "model.py").write_text("import torch\nsize = torch.ones(3).shape\n")
    (tmp_path / "main.py").write_text("from model import size\nprint(__name__, tuple(size))\n")
    command = [sys.executable, "-m", "weft", str(tmp_path / "main.py")]
    finished = subprocess.run(command, capture_output=True, text=True, cwd=os.sep, check=False)
    assert finished.stdout == "__main__ (3,)\n", finished.stderr


def test_libraries_find_torch_by_the_class_of_a_tensor():
    printed = alone(
        "import pickle, sys, weft\n"
        "def library_of(x):\n"
        "    return sys.modules[type(x).__module__.split('.')[0]]\n"
        "with weft.as_torch() as torch:\n"
        "    x, weight = torch.ones(2), torch.nn.Parameter(torch.ones(2))\n"
        "    print(type(x), type(weight), library_of(x) is library_of(weight) is weft)\n"
        "    written = pickle.dumps([x, weight, type(weight)])\n"
        "print(type(x), type(weight), library_of(x) is library_of(weight) is weft)\n"
        "print(b'torch' in written, [getattr(x, '__name__', None) or x.tolist() for x in pickle.loads(written)])\n"
        "print(all(pickle.loads(pickle.dumps(weft.Tensor, n)) is weft.Tensor for n in range(6)))\n"
    )
    assert printed.splitlines() == [
        "<class 'torch.Tensor'> <class 'torch.nn.parameter.Parameter'> True",
        "<class 'weft.Tensor'> <class 'weft.nn.parameter.Parameter'> True",
        "False [[1.0, 1.0], [1.0, 1.0], 'Parameter']",
        "True",
    ]


def test_torch_that_is_there_already(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", type(sys)("torch"))
    with pytest.raises(RuntimeError, match="torch has been imported already"):
        weft.as_torch()


# --- missing names ----------------------------------------------------------------------------------------------------
# Names that PyTorch has and weft will not have, so that the examples stay.
def message_of(path):
    home, _, name = path.rpartition(".")
    with pytest.raises(AttributeError) as error:
        getattr(eval(home, {"weft": weft}), name)
    return str(error.value)


def test_a_missing_name_explains_itself():
    assert message_of("weft.Tensor.to_mkldnn") == (
        "weft.Tensor.to_mkldnn: PyTorch 2.13 has it, weft will not have it (weft's tensors are dense arrays)"
    )
    assert message_of("weft.Tensor.to_mkldnn") == message_of("weft.ones(1).to_mkldnn")
    assert "weft computes on the CPU" in message_of("weft.cuda.nvtx")
    assert "scipy.stats.qmc.Sobol" in message_of("weft.quasirandom")
    assert "PyTorch 2.13 has it, weft does not have it yet" in message_of("weft.distributed.shrink_group")
    assert not hasattr(weft, "quasirandom") and not hasattr(weft.Tensor, "to_mkldnn")


def test_a_name_of_pytorchs_older_compiler_can_be_imported():
    from weft._C import Value

    assert not isinstance(weft.ones(1), Value)


@pytest.mark.parametrize(
    "line", ["import weft.utils.tensorboard", "from weft.utils import tensorboard", "weft.utils.tensorboard",
             "from weft.utils.tensorboard import SummaryWriter"]
)  # fmt: skip
def test_what_writes_for_tensorboard_is_named(line):
    with pytest.raises((ImportError, AttributeError), match="from tensorboardX import SummaryWriter"):
        exec(line, {"weft": weft})


@pytest.mark.parametrize("path", ["nn", "nn.functional", "nn.init", "nn.utils", "optim", "autograd", "utils.data", ""])
def test_every_name_of_pytorch_is_there_or_explained(path):
    home = importlib.import_module(f"weft.{path}".rstrip("."))
    for name in absent.names_in(path):
        if not hasattr(home, name):
            full = f"weft.{path}.{name}".replace("..", ".")
            assert message_of(full).startswith(f"{full}: PyTorch 2.13 has it, weft ")


@pytest.mark.parametrize("path", ["Tensor", "nn.Module", "optim.Optimizer"])
def test_every_method_of_pytorch_is_there_or_explained(path):
    for name in absent.names_in(path):
        if not hasattr(eval(f"weft.{path}"), name):
            assert message_of(f"weft.{path}.{name}").startswith(f"weft.{path}.{name}: PyTorch 2.13 has it, weft ")


def test_a_misspelt_name_is_an_ordinary_error_with_a_guess():
    assert message_of("weft.nn.Lineer") == "module 'weft.nn' has no attribute 'Lineer'. Did you mean: 'Linear'?"
    assert message_of("weft.zerros") == "module 'weft' has no attribute 'zerros'. Did you mean: 'zeros'?"
    assert message_of("weft.qqqq") == "module 'weft' has no attribute 'qqqq'"
    assert message_of("weft.nn.functional.sigmoidd").endswith("Did you mean: 'sigmoid'?")
    assert message_of("weft.ones(1).summ") == "'Tensor' object has no attribute 'summ'"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("from weft.sparse import solve", "'solve' from 'weft.sparse': weft.sparse.solve: PyTorch 2.13"),
        ("from weft.nn.modules.linear import Lineer", "Did you mean: 'Linear'"),
        ("import weft.nn.quantized.dynamic", "weft.nn.quantized: PyTorch 2.13 has it, weft will not have it"),
        ("import weft.backends.xnnpack", "weft.backends.xnnpack: PyTorch 2.13 has it, weft will not have it"),
        ("import weft._higher_order_ops.scan", "weft._higher_order_ops: PyTorch 2.13 has it, weft will not have it"),
        (
            "from weft.nn.modules.module import register_module_buffer_registration_hook",
            "PyTorch 2.13 has it, weft does not",
        ),
        ("from weft import onnx", "weft.onnx: PyTorch 2.13 has it"),
        ("import weft.onnx.errors", "weft.onnx: PyTorch 2.13 has it"),
    ],
)
def test_importing_what_is_missing_says_the_same(line, message, without_torch):
    with pytest.raises(ImportError) as error:
        exec(line, {})
    assert message in str(error.value)
    with weft.as_torch(), pytest.raises(ImportError) as error:
        exec(line.replace("weft", "torch"), {})
    assert message in str(error.value)


def test_one_process():
    assert not weft.distributed.is_initialized()
    layer = nn.Linear(2, 1)
    wrapped = nn.DataParallel(layer).to("cpu")
    assert (wrapped(weft.ones(3, 2)) == layer(weft.ones(3, 2))).all() and wrapped.module is layer
    assert list(wrapped.state_dict()) == ["module.weight", "module.bias"]
    assert weft.multiprocessing.get_start_method(allow_none=True) in (None, "fork", "spawn", "forkserver")


def test_older_names_of_initialisers():
    weight = weft.ones(3, 3)
    with pytest.warns(FutureWarning, match="deprecated in favor of `nn.init.xavier_uniform_`"):
        assert nn.init.xavier_uniform(weight) is weight


def test_a_module_of_nobodys_is_not_found_as_ever():
    with pytest.raises(ModuleNotFoundError, match="No module named 'weft.nn.nothing'"):
        importlib.import_module("weft.nn.nothing")
    assert importlib.util.find_spec("weft.nothing") is None


def test_a_class_of_a_users_may_define_what_weft_lacks():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.half = 3

        def share_things(self):
            return self.half

    assert Net().share_things() == 3
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'other'"):
        Net().other  # noqa: B018


# --- the page ---------------------------------------------------------------------------------------------------------
@pytest.mark.oracle
def test_pytorchs_names_are_those_of_the_file():
    torch = pytest.importorskip("torch")
    assert set(absent.names_in("optim")) == {
        n for n in torch.optim.__all__ if not n.startswith("_") and n != "lr_scheduler"
    } - {n for n in torch.optim.__all__ if type(getattr(torch.optim, n)) is type(sys)}
    assert {"unique", "einsum", "cumsum"} <= absent.names_in("") and "out" not in absent.names_in("")
    assert "cumsum" in absent.taking_out("") and "allclose" not in absent.taking_out("")


def test_private_names_that_libraries_import():
    from weft.distributions.transforms import _InverseTransform
    from weft.distributions.utils import _sum_rightmost
    from weft.nn.modules.module import _IncompatibleKeys
    from weft.serialization import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals
    from weft.utils.checkpoint import get_device_states, set_device_states

    result = weft.nn.Linear(2, 2).load_state_dict({"more": weft.ones(1)}, strict=False)
    assert isinstance(result, _IncompatibleKeys) and result.unexpected_keys == ["more"]
    assert _sum_rightmost(weft.ones(2, 3, 4), 2).tolist() == [12, 12]
    assert isinstance(weft.distributions.ExpTransform().inv, _InverseTransform) and not weft.cuda._initialized
    assert "CPU" in weft.__config__.show() and str(weft.get_num_threads()) in weft.__config__.parallel_info()
    assert add_safe_globals([dict]) is None and clear_safe_globals() is None and get_safe_globals() == []
    with safe_globals([dict]) as nothing:
        assert nothing is None
    with pytest.raises(weft._C._LinAlgError):
        weft.linalg.cholesky(-weft.eye(2))
    set_device_states(*get_device_states(weft.ones(1)))
    with pytest.raises(ValueError, match="weft computes on the CPU"):
        set_device_states([0], [weft.ones(1)])


def test_no_module_is_a_script_module_but_those_that_say_so():
    class Scripted(weft.jit.ScriptModule):
        def forward(self, x):
            return x + 1

    assert not isinstance(weft.jit.script(nn.Linear(2, 2)), weft.jit.ScriptModule)
    assert isinstance(Scripted(), nn.Module) and Scripted()(weft.ones(1)).item() == 2


def test_libraries_find_torch_by_name_where_weft_takes_its_place(tmp_path):
    program = """
        import weft
        with weft.as_torch():
            import torch
            from torch.distributions.constraints import __all__ as names
            from torch import linalg
            assert torch.__name__ == "torch" and torch.torch.Tensor is weft.Tensor and "simplex" in names
            assert torch.compile(lambda x: linalg.norm(x))(torch.ones(4)).item() == 2
        assert weft.__name__ == "weft" and not hasattr(weft, "torch")
        assert weft.special.erf(weft.zeros(1)).item() == 0
    """
    (tmp_path / "program.py").write_text("\n".join(line[8:] for line in program.splitlines()), encoding="utf-8")
    subprocess.run([sys.executable, "program.py"], cwd=tmp_path, check=True)


def test_names_of_annotations():
    from weft.nn.common_types import _ratio_any_t, _size_2_t
    from weft.types import Device, FileLike, Number, _dtype, _size

    def f(size: _size_2_t, ratio: _ratio_any_t, place: Device, file: FileLike, n: Number, kind: _dtype, shape: _size):
        return size

    assert f(1, 2.0, None, "x", 3, weft.float32, (2,)) == 1 and isinstance(weft.float32, _dtype)
    assert set(Number.__args__) == {int, float, bool}


def test_functions_that_ask_for_overrides():
    from weft import overrides

    class Loud:
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return function.__name__, types, args, kwargs

    def attend(query, key, scale=1.0):
        if overrides.has_torch_function((query, key)):
            return overrides.handle_torch_function(attend, (query, key), query, key, scale=scale)
        return query * key * scale

    x, loud = weft.ones(2), Loud()
    assert attend(x, x, 2.0).tolist() == [2, 2] and attend(x, loud) == ("attend", (Loud,), (x, loud), {"scale": 1.0})
    assert overrides.has_torch_function_unary(loud) and not overrides.has_torch_function_variadic(x, 2.0)
    assert overrides.is_tensor_like(x) and overrides.is_tensor_like(loud) and not overrides.is_tensor_like(2.0)
    with pytest.raises(TypeError, match="no implementation found for"):
        overrides.handle_torch_function(attend, (x,), x, x)


def test_what_programs_look_for_in_what_is_printed(without_torch):
    def printed():
        x = weft.ones(2, 3)
        return repr(x.shape), f"{x.shape}", str(x.dtype), x.type(), str(weft.LongTensor), repr(x.half()[0, :1])

    before = printed()
    with weft.as_torch():
        assert printed() == (
            "torch.Size([2, 3])",
            "torch.Size([2, 3])",
            "torch.float32",
            "torch.FloatTensor",
            "torch.LongTensor",
            "tensor([1.], dtype=torch.float16)",
        )
    assert printed() == before and before[:3] == ("(2, 3)", "(2, 3)", "weft.float32")


def test_what_a_tensor_lists_is_there_under_the_name_torch_too(without_torch):
    tensors = weft.ones(2, 2), weft.ones(2, 2, requires_grad=True) * 2, weft.nn.Parameter(weft.ones(2, 2))
    before = [dir(x) for x in tensors]
    with weft.as_torch():
        assert [dir(x) for x in tensors] == before
        for x in tensors:
            assert [n for n in dir(x) if n not in ("imag", "grad_dtype") and not hasattr(x, n)] == []


def test_what_copies_of_pytorchs_modules_import_of_its_older_compiler():
    from weft._jit_internal import BroadcastingList2, List, Optional, _overload, boolean_dispatch, ignore

    @_overload
    def pool(x, size: BroadcastingList2[int], indices: Optional[bool] = None) -> List[int]:
        return x.amax(0)

    def with_indices(x, size, indices=False):
        return x.max(0)

    pooled = boolean_dispatch("indices", 2, False, with_indices, pool, "pooling", "pooled")
    x = weft.tensor([[1.0, 4.0], [3.0, 2.0]])
    assert pooled.__name__ == "pooled" and ignore(pool) is pool
    assert pooled(x, 2).tolist() == pooled(x, 2, False).tolist() == [3, 4]
    assert pooled(x, 2, True)[1].tolist() == pooled(x, 2, indices=True)[1].tolist() == [1, 0]
    assert weft._jit_internal.Optional is Optional


IMPORTED = """
from weft.nn.modules.linear import NonDynamicallyQuantizableLinear
from weft.nn.modules.activation import xavier_uniform_, constant_, F, Tensor
from weft.nn.modules.conv import _pair, _single, _triple, _size_2_t, init
from weft.nn.modules.module import _addindent
from weft.nn.modules.rnn import PackedSequence
from weft.nn.functional import has_torch_function, handle_torch_function, _pair, boolean_dispatch
from weft.nn.init import _calculate_correct_fan
"""


@pytest.mark.parametrize("line", IMPORTED.split("\n")[1:-1])
def test_what_modules_of_layers_happen_to_import(line):
    exec(line, {})


def test_what_is_imported_so_is_what_it_is_elsewhere():
    from weft.nn.modules import activation, linear, module

    assert activation.F is weft.nn.functional and activation.xavier_uniform_ is weft.nn.init.xavier_uniform_
    assert isinstance(linear.NonDynamicallyQuantizableLinear(2, 3), weft.nn.Linear)
    assert module._addindent("a\nb", 2) == "a\n  b"
    assert not weft.nn.functional.has_torch_function((weft.ones(1),))
    assert weft.nn.init._calculate_correct_fan(weft.ones(2, 3), "fan_in") == 3
    with pytest.raises((ImportError, AttributeError), match="nonsense"):
        exec("from weft.nn.modules.conv import nonsense", {})


@pytest.mark.oracle
def test_what_arguments_of_to_name():
    torch = pytest.importorskip("torch")
    seen = []
    for T in (torch, weft):
        parse, x = T._C._nn._parse_to, T.zeros(1, dtype=T.float64)
        found = [
            parse(), parse(T.float64), parse("cpu", T.float16), parse(dtype=T.float32), parse(x), parse(tensor=x),
            parse("cpu", non_blocking=True), parse(T.device("cpu"), T.float32, True), parse(T.float32, True),
            parse(memory_format=T.channels_last), parse(device="cpu"),
        ]  # fmt: skip
        seen.append([[x if x is None else str(x).rpartition(".")[2] for x in row] for row in found])
    assert seen[0] == seen[1]
