"""Every public name is documented, and what its documentation shows is so.

The examples stand in frontend/manual/ (and in the docstrings of some modules); frontend/reference.py joins them to the
docstrings. If what an example prints has changed on purpose, run `python docs/reference.py` and read the difference.
"""

import doctest
import importlib
import importlib.util
import inspect
import subprocess
import sys
import warnings
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import ModuleType

import pytest

import weft
from weft import public, reference
from weft.compiler.dtypes import AbsentDType

FOLDER = Path(reference.FOLDER)

ROOT = Path(__file__).parent.parent
PATHS = sorted(reference.entries_by_path())


def documented(path):
    """{public name: docstring} of what can be called, and of properties."""
    home = public.resolve(path)
    found = {}
    for name in public.public_names(path):
        value = inspect.getattr_static(home, name, None)
        value = getattr(home, name) if value is None else getattr(value, "__func__", value)
        if not isinstance(value, ModuleType) and (callable(value) or inspect.isdatadescriptor(value)):
            found[name] = value.__doc__ or ""
    return found


def purpose(text):
    """What stands before the facts and the example."""
    return (
        text.partition(">>> ")[0]
        .partition("Options: ")[0]
        .partition("Shape: ")[0]
        .partition("Dtypes: ")[0]
        .partition("Raises: ")[0]
        .strip()
    )


@pytest.mark.parametrize("path", PATHS, ids=[path or "weft" for path in PATHS])
def test_every_public_name_says_what_it_is_for_and_shows_it(path):
    texts = documented(path)
    assert texts
    assert [name for name, text in texts.items() if not purpose(text)] == []
    assert [name for name, text in texts.items() if ">>> " not in text] == []


@pytest.mark.parametrize("name", ["GradScaler", "testing.gradcheck", "testing.gradgradcheck", "amp.GradScaler"])
def test_a_name_of_another_path_shows_its_example_at_once(name):
    """In a process in which nothing else has imported the module that says it."""
    program = f"import weft; assert '>>> ' in weft.{name}.__doc__"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stderr == ""


def test_help_shows_public_names():
    """Methods are made in many ways; help shows the name by which they are called. Nothing but answers that several
    share (`is_pinned`, `is_shared`: no) has the name of what it is made of."""
    shown = {}
    for name in public.public_names("Tensor"):
        method = inspect.getattr_static(weft.Tensor, name)
        if inspect.isfunction(method) and (method.__name__[0] in "_<" or method.__name__ == "method"):
            shown.setdefault(method, []).append(name)
    assert [names for names in shown.values() if len(names) < 3] == []
    assert weft.Tensor.add_.__name__ == "add_" and weft.Tensor.float.__name__ == "float"


def test_help_of_a_layer_says_what_its_options_are():
    assert "Options: " in weft.nn.Conv2d.__doc__ and "padding_mode" in weft.nn.ConvTranspose3d.__doc__


@pytest.mark.parametrize("path", ["", "Tensor", "nn", "nn.functional"])
def test_most_names_say_which_shapes_and_types_they_take(path):
    """Settings, questions and containers have none; whoever computes has."""
    texts = documented(path)
    silent = [name for name, text in texts.items() if "Shape: " not in text and "Dtypes: " not in text]
    assert len(silent) < len(texts) * (0.3 if path in ("", "Tensor") else 0.1), silent


def test_no_entry_is_about_a_name_that_is_not_there():
    for path in PATHS:
        named = {name for entry in reference.entries_by_path()[path] for name in entry.names}
        assert named - set(public.public_names(path)) == set(), path


def test_what_is_made_from_the_table_is_described_by_its_entry():
    assert "e to the power x." in weft.compiler.ops.TABLE["exp"].doc
    for name in ("exp", "erfinv", "bitwise_and", "gcd"):
        function = getattr(weft, name)
        assert function.__doc__.startswith(weft.compiler.ops.TABLE[name].doc), name
    assert "integers are converted" in weft.special.entr.__doc__
    assert "integers and bools are converted to the default floating type" in weft.exp.__doc__


# --- examples ---------------------------------------------------------------------------------------------------------
@pytest.fixture
def settings():
    """What examples may change, as it was."""
    yield
    weft.set_printoptions(profile="default")
    weft.use_deterministic_algorithms(False)
    weft.set_flush_denormal(False)


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.txt")), ids=lambda file: file.stem)
def test_every_example_prints_what_it_says(file, settings, without_torch):
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    printed = StringIO()
    for entry in reference.read(file.read_text(encoding="utf-8")):
        run_example(runner, entry, file, printed)
    assert runner.summarize(verbose=False).failed == 0, printed.getvalue()


def run_example(runner, entry, file, printed):
    names = {"weft": weft, "__name__": "example"}
    text = "\n".join(entry.example) + "\n"
    test = doctest.DocTestParser().get_doctest(text, names, " ".join(entry.names), str(file), 0)
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        runner.run(test, out=printed.write)


def test_the_written_examples_of_in_place_forms_are_those_of_their_functions():
    spec = importlib.util.spec_from_file_location("reference_text", ROOT / "docs" / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = (FOLDER / "inplace.txt").read_text(encoding="utf-8")
    assert written == module.inplace_text(), "run python docs/reference.py"


def test_the_docstrings_of_what_comes_with_weft_are_found_out_beforehand():
    spec = importlib.util.spec_from_file_location("reference_text", ROOT / "docs" / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = (FOLDER.parent / "docstrings.txt").read_text(encoding="utf-8")
    assert written == module.docstrings_text(), "run python docs/reference.py"


# --- what is public ---------------------------------------------------------------------------------------------------
def test_completion_shows_the_public_names_alone():
    shown = dir(weft)
    assert {"randn", "nn", "optim", "compile", "no_grad", "float32", "int64", "value_and_grad", "testing"} <= set(shown)
    for private in (
        "composed",
        "shaping",
        "methods",
        "absent",
        "public",
        "reference",
        "taking_out",
        "state",
        "inplace",
    ):
        assert private not in shown
    assert "FAMILIES" not in dir(weft.nn) and "Linear" in dir(weft.nn)
    assert "no_grad" not in dir(weft.nn.functional) and "relu" in dir(weft.nn.functional)
    assert dir(weft.autograd.functional)[3:] == ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def test_whatever_stands_in_weft_itself_is_public():
    """A new function of weft's own is entered in public.OWN, or else nobody finds it."""
    hidden = ModuleType, AbsentDType  # what no tensor has can be named, and is not offered
    standing = {name for name, value in vars(weft).items() if name[0] != "_" and not isinstance(value, hidden)}
    assert standing - set(dir(weft)) == set()


def test_private_names_can_be_reached_all_the_same():
    import weft.composed

    assert weft.composed is sys.modules["weft.composed"] and weft.shaping.reshape


@pytest.mark.parametrize(
    "make, public, private",
    [
        (lambda: weft.nn.Linear(2, 3), "forward weight bias training reset_parameters in_features", "_convert"),
        (
            lambda: weft.optim.SGD([weft.ones(1, requires_grad=True)], lr=0.1),
            "step zero_grad param_groups state_dict",
            "update_group",
        ),
        (weft.Generator, "manual_seed seed get_state", "next_key"),
        (lambda: weft.float32, "itemsize is_floating_point", "element category numpy size_bytes"),
        (
            lambda: weft.ones(1, requires_grad=True).exp().grad_fn,
            "name next_functions register_hook",
            "op operands release recording edges",
        ),
        (lambda: weft.compile(lambda x: x), "explain breaks recordings", ""),
    ],
    ids=["module", "optimizer", "generator", "dtype", "node", "compiled function"],
)
def test_what_completion_shows_of_objects_is_public(make, public, private):
    thing = make()
    shown = set(dir(thing))
    assert set(public.split()) <= shown and not set(private.split()) & shown
    assert [name for name in shown if name[0] != "_" and not hasattr(thing, name)] == []


def test_completion_shows_what_a_subclass_adds_and_what_it_takes_from_the_base():
    class Mine(weft.nn.Module):
        def dump_patches(self):
            """A name that PyTorch's class has, and weft's has not."""

        def mine(self): ...

    assert {"dump_patches", "mine", "parameters"} <= set(dir(Mine()))


MODULES = str.split("""
    amp autograd autograd.forward_ad autograd.functional autograd.graph backends compiler cuda distributions fft func
    jit linalg nn nn.functional nn.grad nn.init nn.utils nn.utils.parametrize nn.utils.prune nn.utils.rnn optim
    optim.lr_scheduler optim.swa_utils profiler random safetensors special testing utils utils.checkpoint utils.data
    visualize
""")


@pytest.mark.parametrize("path", MODULES)
def test_completion_shows_no_module_s_own_business(path):
    """No private names, and nothing that a module has imported for itself."""
    module = importlib.import_module(f"weft.{path}")
    shown = [name for name in dir(module) if name[:2] != "__"]
    assert shown and [name for name in shown if name[0] == "_"] == []
    assert not {"state", "of_module", "ops", "np", "math", "dtypes", "document"} & set(shown)
    for name in shown:
        value = getattr(module, name)
        assert not isinstance(value, ModuleType) or value.__name__.startswith("weft."), name


@pytest.mark.parametrize("of", [weft.ones(1), weft.Tensor, weft.nn.Parameter], ids=["tensor", "class", "subclass"])
def test_what_completion_shows_of_a_tensor_is_there(of):
    shown = dir(of)
    assert {"sum", "backward", "shape", "add_", "__len__"} <= set(shown)
    for private in ("array", "apply_op", "lend", "bump_version", "share_storage", "weak"):
        assert private not in shown
    assert [name for name in shown if name[0] != "_" and not hasattr(weft.Tensor, name)] == []
    mine = type("Mine", (weft.Tensor,), {"mine": 1})
    assert "mine" in dir(mine) and "mine" in dir(mine(weft.ones(1)._data)) and "lend" not in dir(mine)


# They are imported when they are called, or say what to write instead.
UNKNOWN = set(
    str.split("eig lstsq solve symeig hardshrink prelu storage untyped_storage is_set_to is_storage is_distributed")
)


@pytest.mark.parametrize("path", ["", "nn.functional", "Tensor", "linalg", "special", "fft"])
def test_signatures_name_the_parameters(path):
    home, vague = public.resolve(path), []
    for name in set(public.public_names(path)) - UNKNOWN:
        found = inspect.getattr_static(home, name, None)
        if inspect.isfunction(found) and {"args", "kwargs"} <= set(inspect.signature(found).parameters):
            vague.append(name)
    assert sorted(vague) == []


def test_help_reads_well():
    text = "\n".join(inspect.getdoc(weft.matmul).splitlines())
    assert text.startswith("The matrix product input @ other.")
    assert "(..., n, k) and (..., k, m) give (..., n, m)" in text and "Raises: ValueError" in text
    assert ">>> weft.matmul(weft.zeros(5, 2, 3), weft.zeros(3, 4)).shape\n(5, 2, 4)" in text
