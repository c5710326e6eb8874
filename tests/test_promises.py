"""What weft promises its users, tried from outside: mostly a small training program in processes of its own.

No compiler is called; a warm start needs neither LLVM nor networkx; no state of the cache changes a result; equal seeds
give equal bits in every process, mode, linker and vector width; a call that fails leaves the training as it was.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import threading

import pytest
from compiled_twin import look, undecorated
from test_errors import CASES

import weft
from weft import nn

# What the processes below run: argv[1] says how. They print the bits of everything trained, one tensor a line, and then
# which of the heavy libraries were loaded. A process that tries to start another one fails.
PROGRAM = """
import sys

def refuse(event, arguments):
    if event.startswith(("subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork")):
        raise RuntimeError(f"a process was started: {event} {arguments}")

sys.addaudithook(refuse)
import weft
from weft import nn

def train(compile):
    weft.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.25), nn.Linear(16, 3))
    optimizer = weft.optim.Adam(model.parameters(), lr=0.02)
    x, y = weft.randn(8, 6), weft.randn(8, 3)

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    step = compile(step)
    losses = [step(x, y) for _ in range(4)]
    moments = [m for s in optimizer.state.values() for m in (s["exp_avg"], s["exp_avg_sq"])]
    return [t.detach().numpy().tobytes().hex() for t in (*losses, *model.parameters(), *moments)]

compile = {"eager": lambda f: f, "compiled": weft.compile}[sys.argv[1]]
bits = train(compile)
assert train(compile) == bits, "the same seed gave other bits"
print("\\n".join(bits))
print("loaded:", *sorted(name for name in ("llvmlite", "networkx") if name in sys.modules))
"""


def run(how, cache, **environment):
    """(bits, libraries loaded, stderr) of the program in a process whose environment holds nothing else."""
    environment = {"WEFT_CACHE_DIR": str(cache), **environment}
    if "SYSTEMROOT" in os.environ:
        environment["SYSTEMROOT"] = os.environ["SYSTEMROOT"]
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], env=environment, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    *bits, loaded = finished.stdout.splitlines()
    assert len(bits) == 4 + 4 + 8
    return bits, loaded.split()[1:], finished.stderr


@pytest.fixture(scope="module")
def cold(tmp_path_factory):
    """A compiled run without a program to call, in a cache that was empty: (bits, libraries, stderr, the cache)."""
    cache = tmp_path_factory.mktemp("cold") / "cache"
    return (*run("compiled", cache, PATH=""), cache)


@pytest.fixture(scope="module")
def eager(tmp_path_factory):
    return run("eager", tmp_path_factory.mktemp("eager"))


@pytest.fixture
def cache(cold, tmp_path):
    """A copy of the cache that the cold run left."""
    return shutil.copytree(cold[3], tmp_path / "cache")


# --- no compiler, and no library that is not needed -------------------------------------------------------------------
def test_no_compiler_is_called(cold, eager):
    """PATH is empty and starting a process is an error; the eager run was another process with the same seed."""
    bits, loaded, errors, _ = cold
    assert bits == eager[0]
    assert loaded == ["llvmlite"]
    assert errors == ""


def test_importing_weft_loads_neither_llvm_nor_networkx():
    code = "import sys, weft; print([m for m in ('llvmlite', 'networkx') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


def test_a_warm_process_loads_neither_llvm_nor_networkx(cold, cache):
    """Where weft has a loader of its own; elsewhere LLVM links."""
    own_loader = platform.machine() == "x86_64" and sys.platform == "linux"
    before = sorted(os.listdir(cache))
    bits, loaded, errors = run("compiled", cache)
    assert (bits, loaded, errors) == (cold[0], [] if own_loader else ["llvmlite"], "")
    assert sorted(os.listdir(cache)) == before


# --- the cache may be in any state ------------------------------------------------------------------------------------
def truncate(content):
    return content[: len(content) // 2]


def flip_a_bit(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 16]) + content[middle + 1 :]


def empty(content):
    return b""


def test_damaged_cache_files_are_made_again(cold, cache):
    files = sorted(cache.iterdir())
    assert len(files) > 4
    whole = {f: f.read_bytes() for f in files}
    for k, f in enumerate(files):
        f.write_bytes((truncate, flip_a_bit, empty)[k % 3](whole[f]))
    bits, loaded, errors = run("compiled", cache)
    assert (bits, errors) == (cold[0], "")
    assert {f: f.read_bytes() for f in cache.iterdir()} == whole


def test_an_unwritable_cache_warns_once(cold, tmp_path):
    """The path leads through a regular file, which stops even root."""
    (tmp_path / "file").write_text("")
    bits, _, errors = run("compiled", tmp_path / "file" / "cache")
    assert bits == cold[0]
    assert errors.count("RuntimeWarning") == 1
    assert "compiled programs are not kept on disk" in errors and "set WEFT_CACHE_DIR" in errors


def test_without_a_cache(cold, tmp_path):
    bits, _, errors = run("compiled", tmp_path / "cache", WEFT_CACHE="0")
    assert (bits, errors) == (cold[0], "")
    assert not (tmp_path / "cache").exists()


# --- linkers and vector widths ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("linker", ["lljit", "mcjit"])
def test_linkers_give_the_same_bits(cold, cache, linker):
    bits, loaded, errors = run("compiled", cache, WEFT_JIT=linker)
    assert (bits, loaded, errors) == (cold[0], ["llvmlite"], "")


def test_vector_widths_give_the_same_bits(cold, tmp_path):
    """v3 has vectors half as wide as AVX-512; v2 has no fused multiply-add, which a function of C then computes, and
    plain x86-64 has no rounding and no minimum of integers either."""
    for level in ("x86-64", "x86-64-v2", "x86-64-v3") if platform.machine() == "x86_64" else ():
        bits, _, errors = run("compiled", tmp_path, WEFT_CPU=level)
        assert (bits, errors) == (cold[0], ""), level


# --- every stage can be read ------------------------------------------------------------------------------------------
def test_the_stages_are_written(cold, tmp_path):
    stages = ("graph", "decomposed", "simplified", "fusion", "loops", "llvm", "asm")
    folder = tmp_path / "dump"
    bits, _, _ = run("compiled", tmp_path / "cache", WEFT_DUMP=",".join(stages), WEFT_DUMP_DIR=str(folder))
    assert bits == cold[0]
    names = sorted(f.name for f in folder.iterdir())
    assert [n for n in names if n.startswith("000")] == [f"000_step_{k}_{s}.txt" for k, s in enumerate(stages)]
    texts = {s: (folder / f"000_step_{k}_{s}.txt").read_text() for k, s in enumerate(stages)}
    assert texts["graph"].startswith("graph step {") and "linear(" in texts["graph"]
    assert "bmm(" in texts["decomposed"] and "linear(" not in texts["decomposed"]
    assert "sweep" in texts["loops"] and "define" in texts["llvm"] and "weft_program" in texts["asm"]


def test_only_the_stages_asked_for_are_written(tmp_path):
    run("compiled", tmp_path / "cache", WEFT_DUMP="loops", WEFT_DUMP_DIR=str(tmp_path / "dump"))
    assert {f.name.partition("_")[2] for f in (tmp_path / "dump").iterdir()} == {"step_4_loops.txt"}


# --- a call that fails ------------------------------------------------------------------------------------------------
class Training:
    """A network of an embedding and a layer, its optimizer, and a step that can be made to fail in several places."""

    def __init__(self, compile):
        weft.manual_seed(11)
        self.embedding, self.layer = nn.Embedding(5, 4), nn.Linear(4, 3)
        self.parameters = [*self.embedding.parameters(), *self.layer.parameters()]
        self.optimizer = weft.optim.Adam(self.parameters, lr=0.1)
        self.index, self.y = weft.tensor([0, 1, 4]), weft.randn(3, 3)
        self.step = compile(self.undecorated_step)

    def undecorated_step(self, index, y, stop=None):
        loss = nn.functional.mse_loss(self.layer(self.embedding(index)), y)
        if stop == "forward":
            raise KeyError(stop)
        self.optimizer.zero_grad()
        if stop == "zero_grad":
            raise KeyError(stop)
        loss.backward()
        if stop == "backward":
            raise KeyError(stop)
        self.optimizer.step()
        if stop == "step":
            raise KeyError(stop)
        return loss

    def usual_step(self):
        return self.step(self.index, self.y).item()

    def tensors(self):
        """The bits of the parameters and of the optimizer's tensors."""
        states = self.optimizer.state.values()
        return look([x.detach() for x in self.parameters]), look([[s["exp_avg"], s["exp_avg_sq"]] for s in states])

    def everything(self):
        counts = [s["step"] for s in self.optimizer.state.values()]
        return self.tensors(), counts, look([p.grad for p in self.parameters])


def failing(training, error, *arguments, **options):
    with pytest.raises(error) as caught:
        training.step(*arguments, **options)
    return str(caught.value)


def trained(compile):
    training = Training(compile)
    for _ in range(3):
        training.usual_step()
    return training


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_a_shape_error_changes_nothing():
    training = trained(weft.compile)
    before = training.everything()
    message = failing(training, RuntimeError, training.index, weft.randn(2, 2))
    assert training.everything() == before
    assert message == failing(trained(undecorated), RuntimeError, training.index, weft.randn(2, 2))
    training.usual_step()
    assert training.everything() != before


@pytest.mark.parametrize("stop", ["forward", "zero_grad", "backward", "step"])
def test_an_exception_in_the_middle_leaves_what_eager_mode_leaves(stop):
    """What came before the exception has happened, and nothing else; the next steps are those of eager mode too."""
    seen = []
    for compile in (undecorated, weft.compile):
        training = trained(compile)
        failing(training, KeyError, training.index, training.y, stop=stop)
        seen.append((training.everything(), training.usual_step(), training.everything()))
    assert seen[0] == seen[1]


def test_an_exception_before_the_backward_changes_nothing():
    training = trained(weft.compile)
    before = training.everything()
    failing(training, KeyError, training.index, training.y, stop="forward")
    assert training.everything() == before


def test_an_index_out_of_range_changes_nothing():
    """The index is checked when the program runs, after the Python of the call has run to its end: the gradients and
    the step counts it has written by then are taken back."""
    training = trained(weft.compile)
    before = training.everything()
    bad = weft.tensor([0, 7, 4])
    message = failing(training, IndexError, bad, training.y)
    assert message == failing(trained(undecorated), IndexError, bad, training.y)
    assert training.everything() == before
    training.usual_step()
    assert training.everything() != before


# --- threads ----------------------------------------------------------------------------------------------------------
def test_threads_may_share_a_compiled_function():
    """A program has one table for its arguments: one thread's number once reached another thread's call."""

    @weft.compile
    def scaled(x, factor):
        return (x * factor + 1.0).exp()

    x = weft.randn(500)
    expected = [(x * float(k) + 1.0).exp().tolist() for k in range(4)]
    scaled(x, 1.0)
    wrong = []

    def call(k):
        wrong.extend(k for _ in range(300) if scaled(x, float(k)).tolist() != expected[k])

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=call, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []


# --- the same errors --------------------------------------------------------------------------------------------------
# Where the words differ: eager mode names the operand and its version, a compiled call the line that saved it; and
# eager mode tells the strides of what view() refuses.
OTHER_WORDS = {
    "has been modified by an inplace operation: float32(3,), needed by PowBackward0, operand 0, is at version 1; "
    "expected version 0",
    "needed by ExpBackward0, output, is at version 1",
    "view: shape (6,) is not compatible with input tensor's size (3, 2)",
}


def caught(function):
    """(type, message) of the exception it raises."""
    with pytest.raises(Exception) as info:  # noqa: B017, PT011
        function()
    return type(info.value), str(info.value)


@pytest.mark.parametrize("message", list(CASES))
def test_errors_inside_a_compiled_function_are_those_of_eager_mode(message):
    expected = caught(CASES[message])
    compiled = weft.compile(lambda: CASES[message]())
    for _ in range(2):
        kind, words = caught(compiled)
        assert kind is expected[0]
        assert words == expected[1] or message in OTHER_WORDS and words.partition(",")[0] in expected[1]


def test_errors_of_arguments_are_those_of_eager_mode():
    """The tensors come in as arguments here, and an error leaves the recording as it was."""

    def product(x, y):
        return (x @ y).sum()

    compiled = weft.compile(product)
    good = (weft.ones(2, 3), weft.ones(3, 2))
    assert compiled(*good).item() == 12.0
    for wrong in [(good[0], weft.ones(2, 2)), (good[0], weft.ones(3, 2).double()), (good[0].bool(), good[1].bool())]:
        assert caught(lambda arguments=wrong: compiled(*arguments)) == caught(
            lambda arguments=wrong: product(*arguments)
        )
        assert compiled(*good).item() == 12.0


def test_messages_name_the_line_of_the_user():
    @weft.compile
    def look_up(table, index):
        return table[index].sum()

    with pytest.raises(IndexError) as info:
        look_up(weft.ones(3), weft.tensor([5]))
    notes = getattr(info.value, "__notes__", [])
    assert sys.version_info < (3, 11) or re.search(r"in a compiled call, at .*test_promises.py:\d+", notes[0])
