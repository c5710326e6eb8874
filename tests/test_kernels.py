"""The seam between ops and kernels: entries answer for themselves, and no pass asks which op it has before it."""

import ast
from pathlib import Path

import numpy as np
import pytest
from graph_interpreter import check_equal

import weft
from weft.compiler import dtypes
from weft.compiler.dtypes import element_of
from weft.compiler.emit.builder import I64, PTR, Builder, Module, Type
from weft.compiler.graph import Graph
from weft.compiler.kernels.kernel import Kernel
from weft.compiler.kernels.nest import Nest
from weft.compiler.ops import TABLE
from weft.compiler.ops.kinds import elementwise, floating
from weft.compiler.ops.table import Meta, Op, register, unregister
from weft.compiler.pipeline import compile_graph
from weft.compiler.vmath import FUNCTIONS

COMPILER = Path(__file__).parent.parent / "compiler"
# Rewrite rules are about one op each.
RULES = {"simplify.py"}


def passes():
    files = [*COMPILER.glob("*.py"), *COMPILER.glob("emit/*.py"), *COMPILER.glob("kernels/*.py")]
    return sorted(str(f.relative_to(COMPILER)) for f in files if f.name not in RULES)


def _is_op_name(node):
    """x.op.name or op.name."""
    if not (isinstance(node, ast.Attribute) and node.attr == "name"):
        return False
    return getattr(node.value, "attr", None) == "op" or getattr(node.value, "id", None) == "op"


def _decisions(tree):
    """What a decision may depend on: the sides of comparisons, the keys of lookups."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            yield from ((side, node) for side in (node.left, *node.comparators))
        elif isinstance(node, ast.Subscript):
            yield node.slice, node
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", None) in ("get", "startswith", "endswith"):
            yield from ((argument, node) for argument in (*node.args, node.func.value))


@pytest.mark.parametrize("file", passes())
def test_no_pass_asks_for_the_name_of_an_op(file):
    tree = ast.parse((COMPILER / file).read_text())
    for part, node in _decisions(tree):
        named = [inner for inner in ast.walk(part) if _is_op_name(inner)]
        assert not named, f"{file}:{node.lineno} decides by an op's name; ask its kernel or its traits"


@pytest.mark.parametrize("file", passes())
def test_groups_are_not_told_apart_by_the_op_they_are_called_after(file):
    tree = ast.parse((COMPILER / file).read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(getattr(s, "attr", None) == "kind" for s in ast.walk(node)):
            words = {c.value for c in ast.walk(node) if isinstance(c, ast.Constant)}
            assert not words & TABLE.keys(), f"{file}:{node.lineno}"


@pytest.mark.parametrize("op", TABLE.values(), ids=str)
def test_every_primitive_names_its_kernel(op):
    if op.kind in ("composite", "library"):
        assert op.kernel is None
    else:
        assert isinstance(op.kernel, Kernel)


def test_an_entry_without_a_kernel_is_refused():
    with pytest.raises(ValueError, match="op shapeless: an entry of kind movement names its kernel"):
        register(Op("shapeless", "movement", None))
    assert "shapeless" not in TABLE


# --- costs ------------------------------------------------------------------------------------------------------------
def _n_instructions(op):
    sample = op.samples()[0]
    metas = [Meta(np.shape(x), dtypes.dtype_named(np.asarray(x).dtype.name)) for x in sample.operands]
    types = op.compute_dtype(metas, dtypes.float32)[0]
    b = Builder(Module(), "f", [(f"x{k}", Type(element_of(t), 16)) for k, t in enumerate(types)])
    options = {"fail": lambda bad: None} if op.checks else {}
    op.lower(b, *b.arguments, **options, **sample.attributes)
    return len(b.lines) - 1


@pytest.mark.parametrize("op", [o for o in TABLE.values() if o.kind == "elementwise" and o.lower], ids=str)
def test_what_an_op_costs_is_what_it_writes(op):
    assert (op.cost == "function") == (_n_instructions(op) > 16)


def test_an_op_from_outside_that_says_it_is_dear_is_computed_once_per_row():
    """x / sum(x) over a long row: the dear op's results are kept for the second pass."""

    def lower(b, x):
        return b.div(FUNCTIONS["sin"](b, x), x)

    def divided(cost):
        op = elementwise("sine_over", 1, floating, lower=lower, cost=cost)
        try:
            graph = Graph("rows")
            y = op(graph.input((3, 4096), dtypes.float32))
            graph.outputs = [TABLE["div"](y, TABLE["sum"](y, axes=(1,), keepdim=True))]
            text = compile_graph(graph).text
            return sum(line.count("frem") + line.count("fdiv") for line in text.splitlines())
        finally:
            unregister("sine_over")

    assert divided("cheap") > divided("function")


# --- an op that writes its loops --------------------------------------------------------------------------------------
def test_a_kernel_of_its_own_is_one_entry():
    """Every second element of a vector, as an op from outside: a shape rule, NumPy, and five lines of kernel."""

    def write(writer):
        (extent,) = writer.value.shape
        (step,) = writer.accesses[0].strides
        x = writer.load(0, (), (), lane=2 * step)
        writer.body.append(writer.sweep(extent, x, writer.store((), (), x, lane=1)))

    op = register(
        Op(
            "every_second",
            "movement",
            lambda operands, attributes, default_float: Meta((-(-operands[0].shape[0] // 2),), operands[0].dtype),
            lambda x: x[::2].copy(),
            kernel=Nest(write),
        )
    )
    try:
        graph = Graph("second")
        x = graph.input((75,), dtypes.float32)
        graph.outputs = [TABLE["neg"](op(TABLE["exp"](x)))]
        check_equal(graph, [np.linspace(-1, 1, 75, dtype=np.float32)])
        y = weft.tensor([1.0, 2.0, 3.0])
        assert weft.compile(lambda y: op(y) * 2.0)(y).tolist() == [2.0, 6.0]
    finally:
        unregister("every_second")


def test_functions_are_called_with_what_they_take():
    module = Module()
    b = Builder(module, "part", [("x", PTR), ("first", I64)])
    b.finish()
    caller = Builder(module, "whole", [("x", PTR)])
    with pytest.raises(AssertionError, match=r"part is void \(ptr, i64\) in one place and void \(ptr\) in another"):
        caller.call("void", "part", caller.arguments)
    caller.call("void", "part", [*caller.arguments, caller.i64(0)])
