"""One place knows the processor, and every processor gets the same bits."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from backend_models import layer_norm

from weft.compiler.dtypes import float32
from weft.compiler.eager_kernels import elementwise_text
from weft.compiler.graph import Graph
from weft.compiler.ops import TABLE
from weft.compiler.pipeline import compile_graph
from weft.compiler.plain import changed
from weft.compiler.target import AVX2, AVX2_WITH_HALVES, AVX512, AVX512_IN_HALVES, target_for
from weft.runtime.code import jit

COMPILER = Path(__file__).parent.parent / "compiler"
# Constants that look like a processor's and are none, with the reason.
ALLOWED = {
    "QUAD_BYTES": "how the product with a vector shuffles, whatever the vectors",
    "VIRTUAL_LANES": "the order of sums",
    "_TURN_BYTES": "a multiple of the panels of all processors",
    "_PART_NS": "how long a person waits for Ctrl-C",
    "TEAM_BYTES": "the memory that threads of an exported function share, as its header says",
}
ENDINGS = ("_NS", "_BYTES", "_LANES", "_NS_PER_BYTE", "_PER_NS", "_REGISTERS")


# One vector of AVX2 at a time: what no target wants now, and the compiler must be able to.
NARROW = changed(AVX2, name="narrow", sweep_bytes=32)


def sources():
    found = [
        *COMPILER.glob("*.py"),
        *(f for d in ("emit", "kernels", "ops", "vmath") for f in COMPILER.glob(f"{d}/*.py")),
    ]
    return sorted(str(f.relative_to(COMPILER)) for f in found if f.name != "target.py" and "pool" not in f.name)


def _assigned(tree):
    """(name, value) of assignments to names at the top level, tuples taken apart."""
    for node in tree.body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value] * len(names)
                yield from ((n.id, v) for n, v in zip(names, values) if isinstance(n, ast.Name))


@pytest.mark.parametrize("file", sources())
def test_no_figure_of_a_processor_stands_elsewhere(file):
    tree = ast.parse((COMPILER / file).read_text())
    figures = [name for name, value in _assigned(tree) if name.endswith(ENDINGS) and isinstance(value, ast.Constant)]
    assert set(figures) <= ALLOWED.keys(), "belongs in compiler/target.py"


@pytest.mark.parametrize("file", sources())
def test_what_depends_on_the_processor_is_decided_by_the_target(file):
    for node in ast.walk(ast.parse((COMPILER / file).read_text())):
        if isinstance(node, ast.Compare):
            words = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
            assert not words & {"vector_bytes", "n_registers"}, f"{file}:{node.lineno}: ask the Target"
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            text = ast.unparse(node)
            assert "prefer-vector-width" not in text or file == "emit/module.py", f"{file}:{node.lineno}"


@pytest.mark.parametrize("target", [AVX2, AVX512, NARROW], ids=lambda target: target.name)
def test_loop_nests_have_the_lanes_of_the_target(target):
    texts = {}
    compile_graph(layer_norm(4, 100, backward=True)[0], target=target, watch=texts.__setitem__)
    lanes = target.lanes({"f32"})
    assert f"lanes {lanes} " in texts["loops"] and f"<{lanes} x float>" in texts["llvm"]
    assert f"<{2 * lanes} x float>" not in texts["llvm"]
    assert f'"prefer-vector-width"="{8 * target.vector_bytes}"' in texts["llvm"]


def test_the_target_is_that_of_the_machine():
    converts_halves = "f16c" in jit.target().features.split()
    in_halves = jit.target().cpu.startswith("AuthenticAMD 25 ")
    assert jit.kernel_target() is target_for(jit.target().float_lanes, converts_halves, in_halves)
    assert target_for(16) is AVX512 and target_for(8) is AVX2 and target_for(8, True) is AVX2_WITH_HALVES
    assert target_for(16, True, True) is AVX512_IN_HALVES and target_for(8, True, True) is AVX2_WITH_HALVES


def kernels_with_short_vectors(target, outputs):
    """How many functions of a program are written with vectors of 32 bytes, and how many with the target's."""
    graph = Graph("moving")
    x = graph.input((64, 100), float32)
    graph.outputs = outputs(x)
    functions = re.findall(r"^define internal .*(#\d) {$", compile_graph(graph, target=target).text, re.MULTILINE)
    return functions.count("#2"), len(functions) - functions.count("#2")


def test_kernels_that_mostly_move_elements_have_vectors_as_long_as_memory_likes():
    moving = lambda x: [TABLE["mul"](x, x)]  # noqa: E731
    computing = [lambda x: [TABLE["exp"](x)], lambda x: [TABLE["sum"](x, axes=(1,), keepdim=False)]]
    (short, others), (none, all_of_them) = (kernels_with_short_vectors(t, moving) for t in (AVX512_IN_HALVES, AVX512))
    assert (short, none) == (1, 0) and all_of_them == others + 1
    assert [kernels_with_short_vectors(AVX512_IN_HALVES, outputs)[0] for outputs in computing] == [0, 0]
    text = elementwise_text(TABLE["mul"], (float32, float32), {}, AVX512_IN_HALVES)
    assert "#2 {" in text and '"prefer-vector-width"="256" "min-legal-vector-width"="0"' in text
    assert "#2 {" not in elementwise_text(TABLE["exp"], (float32,), {}, AVX512_IN_HALVES)


def test_halves_are_converted_by_instructions_where_all_processors_of_a_level_have_them():
    found = [jit.export_target(level).converts_halves for level in ("x86-64-v2", "x86-64-v3", "x86-64-v4")]
    assert found == [False, True, True]


def test_whole_vectors_are_stored_where_a_select_leaves_some_lanes_as_they_are():
    """LLVM makes stores of some lanes of them, which take dozens of cycles on processors without AVX-512."""
    graph = Graph("extremes")
    graph.outputs = [TABLE["amax"](graph.input((100, 160), float32), axes=(0,), keepdim=False)]
    stored = {target.name: "freeze" in compile_graph(graph, target=target).text for target in (AVX2, AVX512)}
    assert stored == {"AVX2": True, "AVX512": False}


PROGRAM = """
import weft
from weft.nn import functional as F
from weft.runtime.code import jit

weft.manual_seed(0)
model = weft.nn.Sequential(weft.nn.Linear(40, 33), weft.nn.LayerNorm(33), weft.nn.GELU(), weft.nn.Linear(33, 7))
optimizer = weft.optim.Adam(model.parameters(), lr=0.01)
x, y = weft.randn(70, 40), weft.randint(0, 7, (70,))

@weft.compile
def step(x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss, model(x).softmax(0).double().std(1)

for _ in range(2):
    results = step(x, y)
print(jit.kernel_target().name, *(t.detach().numpy().tobytes().hex() for t in (*results, *model.parameters())))
"""


def _bits(folder, level=None):
    environment = {**os.environ, "WEFT_CACHE_DIR": str(folder)}
    environment.pop("WEFT_CPU", None)
    if level:
        environment["WEFT_CPU"] = level
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.split()


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    return _bits(tmp_path_factory.mktemp("own"))[1:]


@pytest.mark.parametrize("level", ["x86-64", "x86-64-v2", "x86-64-v3"])
def test_narrower_processors_give_the_same_bits(level, own, tmp_path):
    """x86-64-v3 is AVX2; x86-64-v2 has 16 bytes and no fused multiply-add, for which the C library stands in; x86-64
    is SSE2, with which it computes roundings too."""
    name, *bits = _bits(tmp_path, level)
    assert name == ("AVX2+F16C" if level == "x86-64-v3" else "AVX2") and bits == own and len(bits) > 4
    assert np.frombuffer(bytes.fromhex(bits[0]), np.float32)[0] > 0
