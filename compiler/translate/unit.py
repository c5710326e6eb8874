"""What the functions of one translation have in common: their sources, the table they read, what was noted."""

import ast
import linecache
import os
from dataclasses import dataclass
from typing import NamedTuple

from ..emit.builder import PTR, Module, Reg
from .kinds import Kind, kind_of, struct_bytes

TABLE = "weft_table"


class NotTranslatable(Exception):
    """Text that is not of the subset: file, line, what is wrong, and the text."""


class Source(NamedTuple):
    """A function's text, and what its names mean."""

    function: object
    tree: ast.FunctionDef
    file: str
    names: dict
    text: str
    lines: list

    def error(self, node, what):
        given = ast.get_source_segment(self.text, node) or ast.unparse(node)
        return NotTranslatable(f"{self.where(node)}: {what}: {given.splitlines()[0]}")

    def where(self, node):
        return f"{self.file}:{node.lineno}"


@dataclass
class Signature:
    """How a translated function is called. departs: whether it says if it departed. runs_code: whether Python code may
    run in it. `finished` is not yet so while it is being translated; who asks for it then calls it back, which
    `is_called_back` notes."""

    name: str
    parameters: list
    result: Kind | None
    form: str | None
    departs: bool = False
    runs_code: bool = True
    finished: bool = False
    is_called_back: bool = False


class Unit:
    """One translation. layout: {name: byte offset} of what is in objects. slots: the entries of the table, whose first
    words are filled in by who loads the code: ("function", its name), ("object", "module:name"), ("text", the string),
    and then the structures of the sources themselves: ("struct", "module:name") for every word of them."""

    def __init__(self, layout):
        self.layout = layout
        self.ir = Module()
        self.slots = {}
        self.structs = {}
        self.signatures = {}
        self.warnings = []
        self._files = {}
        self._assigned = {}

    # --- the table ------------------------------------------------------------------------------------------------
    def slot(self, kind, name):
        """The address of a word of the table."""
        return self.word(self.slots.setdefault((kind, name), len(self.slots)))

    def word(self, k):
        return Reg(f"getelementptr (i8, ptr @{TABLE}, i64 {8 * k})", PTR)

    def struct(self, name, instance):
        """The address of a structure that belongs to a source."""
        if name not in self.structs:
            self.structs[name] = struct_bytes(type(instance))
        return Reg(f"@{_symbol(name)}", PTR)

    def text(self):
        """The module's IR. The table's address, and those of structures, are given by functions, which every linker
        finds."""
        given = {TABLE: 8 * max(len(self.slots), 1)} | {_symbol(n): size for n, size in self.structs.items()}
        for name, size in given.items():
            self.ir.globals[name] = f"@{name} = internal global [{size} x i8] zeroinitializer, align 64"
            self.ir.functions.append(f"define ptr @{name}_address() #0 {{\n  ret ptr @{name}\n}}")
        return str(self.ir)

    # --- sources --------------------------------------------------------------------------------------------------
    def source(self, function):
        code = function.__code__
        closure = {k: c.cell_contents for k, c in zip(code.co_freevars, function.__closure__ or ())}
        file = os.path.basename(code.co_filename)
        trees, text, lines = self._file(code.co_filename, function.__globals__)
        tree = trees[code.co_name, code.co_firstlineno]
        return Source(function, tree, file, {**function.__globals__, **closure}, text, lines)

    def _file(self, path, names):
        """({(name, first line): function}, text, lines) of a file, or of a part of an archive, which is parsed once."""
        if path not in self._files:
            lines = linecache.getlines(path, names)
            text = "".join(lines)
            found = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef)]
            trees = {(n.name, min([n, *n.decorator_list], key=_line).lineno): n for n in found}
            self._files[path] = trees, text, lines
        return self._files[path]

    def assigned_names(self, tree):
        """The names that a function's text gives a value."""
        if tree not in self._assigned:
            names = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
            self._assigned[tree] = {n.id for n in names}
        return self._assigned[tree]

    def kinds(self, source):
        """([kind of each parameter], kind of the result or None)."""
        code, notes = source.function.__code__, source.function.__annotations__
        tree = source.tree
        if tree.args.vararg or tree.args.kwarg or tree.args.kwonlyargs or tree.args.defaults:
            raise source.error(tree, "parameters are positional and have no defaults")
        names = code.co_varnames[: code.co_argcount]
        for name in names:
            if name not in notes:
                raise source.error(tree, f"parameter {name} needs a type")
        try:
            result = notes.get("return")
            return [kind_of(notes[name]) for name in names], None if result is None else kind_of(result)
        except TypeError as error:
            raise source.error(tree, f"not a type of the subset: {error}") from None


def _line(node):
    return node.lineno


def _symbol(name):
    return name.replace(":", ".")
