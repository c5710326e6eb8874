"""The house rules of imports: one direction, no cycles, and few places that touch LLVM, ctypes and networkx."""

import ast
import functools
from pathlib import Path

import networkx
import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = {"compiler": "weft.compiler", "runtime": "weft.runtime", "frontend": "weft"}
# A package may import those before it.
ORDER = ["compiler", "runtime", "frontend"]
# A part of the runtime likewise.
PARTS = ["state", "code", "programs", "eager", "record", "batched", "gpu", "replay", "distributed"]

# Imports inside functions, with the reason.
LATE = {
    "networkx": "115 ms that only a cache miss, or a drawing, needs",
    "llvmlite": "a library of 179 MB that only a cache miss needs",
    "dis": "3 ms, which only a function needs that catches what a factorization raises",
    "difflib": "1 ms, which only a misspelt name needs",
    "fractions": "2 ms, which only bounds of sizes need",
    "json": "1.5 ms, which a process that never compiles need not pay",
    "importlib": "importlib.metadata: 15 ms, and only needed when imported from an archive",
    "weft.compiler.translate.translate": "the translator and ast, which only a cache miss needs",
    "mpi4py": "which only programs of many processes need, and which initialises MPI",
    "scipy": "of which SciPy's own callers have it, and nobody else needs it",
    "weft.array_api": "names for other libraries, which few programs need",
    "weft.c_functions": "the compiler's passes, which only who exports needs",
    "weft.gpu_programs": "the compiler's passes, which only who exports needs",
    "weft.runtime.record.apart": "builds graphs, which only code that looks on at a call in flight needs",
    "weft.runtime.record.frame_views": "which only a question about a value of a call in flight needs",
    "weft.runtime.record.build": "the compiler's passes, which only a cache miss needs",
    "weft.runtime.record.build_loops": "the compiler's passes, which only a cache miss needs",
    "weft.runtime.replay.eager_native": "what only a program needs that calls its ops often enough",
    "weft.runtime.programs.description": "the compiler's passes, which only a cache miss needs",
}
# Where networkx is used besides the compiler, with the reason.
NETWORKX = {"frontend/visualize/layout.py": "places the nodes of a drawing"}
CTYPES = {
    "frontend/visualize/roof.py": "calls what it has compiled to measure the machine",
    "runtime/replay/eager_python.py": "fills in the words that a native function reads",
    "runtime/code/cuda.py": "calls NVIDIA's driver",
    "runtime/replay/eager_facts.py": "asks NumPy where its functions are",
    "runtime/replay/eager_native.py": "fills in the words that native code of eager mode reads",
    "runtime/eager/eager_words.py": "asks for the number of a thread",
    "runtime/code/elf.py": "maps machine code",
    "runtime/code/emission.py": "starts native threads that call LLVM",
    "runtime/code/jit.py": "keeps linked code alive",
    "runtime/code/kernels.py": "calls eager kernels through their address",
    "runtime/code/lasting.py": "keeps objects for ever",
    "runtime/replay/compiled_call.py": "fills in the words that native code of compiled functions reads",
    "runtime/replay/native.py": "makes builtin functions",
    "runtime/replay/native_layout.py": "looks at the layout of objects",
    "runtime/replay/native_keys.py": "fills in words that native functions read",
    "runtime/replay/native_values.py": "fills in words that native functions read",
    "runtime/replay/native_questions.py": "makes descriptors of attributes",
    "runtime/replay/native_methods.py": "fills in words that native functions read",
    "runtime/replay/native_in_place.py": "fills in words that native functions read",
    "runtime/replay/native_operators.py": "fills in words that native functions read",
    "runtime/code/lookups.py": "calls kernels that add at computed places through their address",
    "runtime/replay/many_outside.py": "fills in words that native functions read",
    "runtime/code/packing.py": "asks for the address of a C function",
    "runtime/code/vector_calls.py": "makes a class whose objects hold the address of a C function",
    "runtime/state/aligned.py": "asks for the address of an array's elements",
    "runtime/programs/exported.py": "calls exported functions through their addresses",
    "runtime/programs/large.py": "calls programs of eager mode, and gives the interpreter's lock back meanwhile",
    "runtime/programs/program.py": "calls programs through their address",
    "runtime/code/workers.py": "hands addresses of system functions to the pool, and wakes its workers",
    "runtime/code/translated.py": "fills in the table of addresses that native functions read",
}
LINES = 500


def sources():
    return sorted(p for package in PACKAGES for p in (ROOT / package).rglob("*.py"))


def module_name(path):
    package, *rest = path.relative_to(ROOT).with_suffix("").parts
    return ".".join([PACKAGES[package], *[part for part in rest if part != "__init__"]])


NAMES = {module_name(p): p for p in sources()}
FILES = [str(p.relative_to(ROOT)) for p in sources()]


@functools.cache
def imports(path):
    """[(module, whether at the top level), ...], relative names resolved; `from x import y` names x.y too."""
    tree = ast.parse(path.read_text())
    late = {
        id(inner)
        for f in ast.walk(tree)
        if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for inner in ast.walk(f)
    }
    found = []
    for node in ast.walk(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            base = resolved(path, node)
            names = [f"{base}.{a.name}" if f"{base}.{a.name}" in NAMES else base for a in node.names]
        found += [(name, id(node) not in late) for name in names]
    return found


def resolved(path, node):
    if not node.level:
        return node.module
    package = module_name(path).split(".") + (["_"] if path.name == "__init__.py" else [])
    return ".".join([*package[: -node.level], *([node.module] if node.module else [])])


def package_of(name):
    """compiler, runtime or frontend for a module of weft, else None."""
    if name in ("weft.compiler", "weft.runtime") or name.startswith(("weft.compiler.", "weft.runtime.")):
        return name.split(".")[1]
    return "frontend" if name == "weft" or name.startswith("weft.") else None


@pytest.mark.parametrize("file", FILES)
def test_imports_run_one_way(file):
    own = ORDER.index(Path(file).parts[0])
    for name, _ in imports(ROOT / file):
        package = package_of(name)
        assert package is None or ORDER.index(package) <= own, f"{file} imports {name}"


@pytest.mark.parametrize("file", [f for f in FILES if f.startswith("runtime/") and f != "runtime/__init__.py"])
def test_imports_between_parts_of_the_runtime_run_one_way(file):
    """But for those inside functions: LATE says why each of them is made when it is needed."""
    own = PARTS.index(Path(file).parts[1])
    for name, top in imports(ROOT / file):
        if top and name.startswith("weft.runtime."):
            assert PARTS.index(name.split(".")[2]) <= own, f"{file} imports {name}"


def module_graph():
    graph = networkx.DiGraph()
    for name, path in NAMES.items():
        graph.add_edges_from((name, other) for other, top in imports(path) if top and other in NAMES and other != name)
    return graph


def test_no_cycles():
    """A package's __init__ runs before its modules: an import of it from inside is a cycle too, unless it is the
    package weft, whose modules import weft.runtime and weft.compiler while it is being imported."""
    graph = module_graph()
    assert graph.number_of_edges() > 100
    cycles = [sorted(c) for c in networkx.strongly_connected_components(graph) if len(c) > 1]
    assert cycles == []


def test_llvm_is_loaded_in_one_place():
    users = {f for f in FILES for name, _ in imports(ROOT / f) if name.startswith("llvmlite")}
    assert users == {"runtime/code/jit.py"}


def test_networkx_is_for_graph_passes_and_drawings():
    users = {f for f in FILES for name, _ in imports(ROOT / f) if name.split(".")[0] == "networkx"}
    assert {f for f in users if not f.startswith("compiler/")} <= set(NETWORKX), users


def test_ctypes_only_where_native_code_is_called():
    users = {f for f in FILES for name, _ in imports(ROOT / f) if name.split(".")[0] == "ctypes"}
    assert users <= set(CTYPES), users - set(CTYPES)


@pytest.mark.parametrize("file", FILES)
def test_imports_stand_at_the_top(file):
    late = {name if package_of(name) else name.split(".")[0] for name, top in imports(ROOT / file) if not top}
    assert late <= set(LATE), late - set(LATE)


@pytest.mark.parametrize("file", FILES)
def test_files_are_short(file):
    n_lines = len((ROOT / file).read_text().splitlines())
    assert n_lines <= LINES


def test_every_module_is_packaged():
    """pyproject.toml lists the packages by hand."""
    text = (ROOT / "pyproject.toml").read_text()
    packages = {module_name(p) for p in sources() if p.name == "__init__.py"}
    assert all(f'"{name}",' in text for name in packages), packages
