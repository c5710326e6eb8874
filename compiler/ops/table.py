"""The op table: what an op is, and the kinds of entry.

An entry holds every fact about one op, in this order:

    name        the public spelling, PyTorch's where PyTorch has one
    infer       shape and dtype rule: (operands, attributes) -> Meta; raises the errors a user sees
    evaluate    the NumPy function for eager mode; None: eager mode runs the kernel generated from `lower`
    change      for ops that are their first operand with a part of it written: (array, *arrays, **attributes) writes it
                into a row-major array, after all that can fail. `evaluate` is then this on a copy
    vjp         one rule per operand, (cotangent, output, *operands, **attributes) -> cotangent of that operand;
                None where the operand has no derivative. Rules are written with ops, so they run on tensors (double
                backward) and on graph values (compiled backward) alike. Whoever calls a rule sums its result to the
                operand's shape and converts it to the operand's dtype: a rule is calculus only.
    kernel      how compiled programs compute it (compiler/kernels/): what passes ask, they ask this object
    lower       what the code generator needs: for elementwise ops a function of the builder and registers
    cost        of one element: "cheap" as an addition (also of a few), "divide", "function" of dozens of instructions,
                or "gather"
    on_complex  the NumPy function for complex operands, or True where `evaluate` or `decompose` does for them too,
                or how a kernel computes them (`OnParts`).
                None: they are refused. Views and what only moves elements take all types.
    traits      words for what else passes must know:
                "checks"      its lowering can fail
                "checks-integers"  on integers it can
                "multiplies"  NumPy divides integers of 64 bits by one number in a fifth of the time: it multiplies
                "number"      a Python number written in a rule
                "fill"        one number everywhere
                "copy"        costs nothing where it is read element by element
                "conjugate"   the rule gives PyTorch's gradient of a complex operand as it is. All other rules are
                              linear in the cotangent, with the derivative of a holomorphic function (autodiff.py)
                "fits"        numbers must fit into operands that are integers; else they wrap around
                "own-type"    is computed in no wider type: it cannot be, or need not
                "wide-number" a single number is not rounded to operands of 16 bits, before it is computed with
                "moves"       elements of its result are those of its operands, bit for bit
                "by-parts"    does the same with real and imaginary parts, each for itself
                "row-major"   a view of the same elements in the same order
                "part"        a view of some elements, each once; its derivative puts their cotangents there, into zeros
    decompose   for composites: the same result written with other ops; the graph compiler sees only primitives
    samples     operands and attributes that the generated tests use
    spelling    its public names, if the frontend makes them from the entry (`Spelling`)
    oracle      the PyTorch function the tests compare with: its name under `torch.`, or where the spellings differ a
                function (torch, *operands, **attributes) -> tensor
    tolerance   how far PyTorch's own result is off, where that is more than the tests allow

Ops are called like functions on tensors or graph values; the first tensor-like operand says how (`apply_op`).
"""

import sys
from functools import partial

import numpy as np

from ..later import imported
from ..plain import Plain


class Table(dict):
    """The entries by their names. Those of modules that come later are there for whoever asks for one of them, or goes
    through all: their modules are imported then."""

    def __init__(self):
        super().__init__()
        self.later = {}  # name of an entry -> its module

    def loaded(self):
        """The entries whose modules are imported."""
        return dict.values(self)

    def is_taken(self, name):
        """Whether an entry has this name, or will have it, other than of the module that is being imported."""
        return dict.__contains__(self, name) or name in self.later and self.later[name] not in sys.modules

    def __missing__(self, name):
        if name not in self.later:
            raise KeyError(name)
        imported(self.later[name])
        return dict.__getitem__(self, name)

    def __contains__(self, name):
        return dict.__contains__(self, name) or name in self.later

    def get(self, name, default=None):
        try:
            return self[name]
        except KeyError:
            return default

    def __len__(self):
        return dict.__len__(self._whole())

    def __iter__(self):
        return dict.__iter__(self._whole())

    def keys(self):
        return dict.keys(self._whole())

    def values(self):
        return dict.values(self._whole())

    def items(self):
        return dict.items(self._whole())

    def _whole(self):
        for module in dict.fromkeys(self.later.values()):
            imported(module)
        return self


TABLE = Table()


class Meta(Plain):
    """Shape and dtype of a value, without the value. `weak` marks a Python number (it does not decide a dtype)."""

    __slots__ = ("shape", "dtype", "weak")

    def __init__(self, shape, dtype, weak=False):
        self.shape = shape
        self.dtype = dtype
        self.weak = weak


class Sample(Plain):
    """One test call: operands as NumPy arrays or Python numbers, and the attributes."""

    __slots__ = ("operands", "attributes")

    def __init__(self, operands, attributes=None):
        self.operands = operands
        self.attributes = {} if attributes is None else attributes


class OpError(ValueError, RuntimeError):
    """Operands that an op cannot take: their shapes, types, options. Also a RuntimeError, which is what PyTorch raises.

    >>> try:
    ...     weft.ones(2, 3) @ weft.ones(4)
    ... except weft.OpError as error:
    ...     print(error)
    matmul: shapes (2, 3) and (4,) cannot be multiplied: 3 columns on the left, 4 rows on the right
    """


class NotForType(OpError, NotImplementedError):
    """An op that could be computed for operands of a type, and is not, as in PyTorch: products of bools."""


class OutOfRange(OpError, IndexError):
    """An index outside its dimension, or a dimension without elements: PyTorch raises one or the other, by function.

    >>> try:
    ...     weft.zeros(2, 3).sum(2)
    ... except weft.OutOfRange as error:
    ...     print(error)
    sum: Dimension out of range (expected to be in range of [-2, 1], but got 2)
    """


class OnParts(Plain):
    """How a kernel computes an elementwise op on complex numbers: a function of the builder and the operands, complex
    ones as pairs of registers, which gives a pair where the result is complex. `exact`: NumPy gives the same bits."""

    __slots__ = ("lower", "exact")

    def __init__(self, lower, exact=False):
        self.lower = lower
        self.exact = exact


class Spelling(Plain):
    """How users call an elementwise op: the frontend makes its functions, methods and in-place forms from this, and
    lists them nowhere (frontend/spelled.py). Names are separated by spaces: all of them are the same function.

        function    names below `weft`: the op's own name if None, "" for none. The first is the function's __name__
        special     names below `weft.special`
        method      whether tensors have the names of `function` as methods
        in_place    whether they have forms that change them: those names with an underscore
        operands    what it takes: one is (input), two are (input, other)
        numbers     which of two may be numbers: "both", "either" (not both), "other" or "none"
        promotes    whether two operands are converted here, since the op wants them of one type: to the "same", which
                    they promote to, or to a "floating" one. "" leaves it to the op's own rule
    """

    __slots__ = ("function", "special", "method", "in_place", "operands", "numbers", "promotes")

    def __init__(
        self, function=None, special="", method=True, in_place=True, operands=1, numbers="either", promotes=""
    ):
        self.function = function
        self.special = special
        self.method = method
        self.in_place = in_place
        self.operands = operands
        self.numbers = numbers
        self.promotes = promotes


_MOVING = ("view", "movement", "indexing")


def _changed_copy(change, x, *rest, **attributes):
    result = np.array(x, order="C")
    change(result, *rest, **attributes)
    return result


class Op:
    """One entry. `kind` is one of elementwise, source, reduction, view, movement, indexing, scan, contraction,
    composite, library (NumPy's), routine (of weft's)."""

    __slots__ = str.split(
        "name kind infer evaluate vjp lower decompose node_name compute_dtype samples oracle tolerance doc extra "
        "kernel cost traits on_complex spelling change"
    )

    def __init__(
        self,
        name,
        kind,
        infer,
        evaluate=None,
        vjp=(),
        lower=None,
        decompose=None,
        node_name="",
        compute_dtype=None,
        samples=None,
        oracle="",
        tolerance=None,
        doc="",
        extra=None,
        kernel=None,
        cost="cheap",
        traits=frozenset(),
        on_complex=None,
        spelling=None,
        change=None,
    ):
        self.name = name
        self.kind = kind
        self.infer = infer
        self.evaluate = partial(_changed_copy, change) if evaluate is None and change is not None else evaluate
        self.vjp = vjp
        self.lower = lower
        self.decompose = decompose
        self.node_name = node_name
        self.compute_dtype = compute_dtype
        self.samples = samples
        self.oracle = oracle
        self.tolerance = tolerance
        self.doc = doc
        self.extra = {} if extra is None else extra
        self.kernel = kernel
        self.cost = cost
        self.traits = traits
        self.on_complex = on_complex
        self.spelling = spelling
        self.change = change

    @property
    def takes_complex(self):
        """Whether it has a meaning for complex operands."""
        return self.on_complex is not None or self.kind in _MOVING or "view" in self.extra

    @property
    def checks(self):
        return "checks" in self.traits

    def checks_on(self, is_float):
        """Whether its lowering can fail on operands of such a type."""
        return self.checks or not is_float and "checks-integers" in self.traits

    @property
    def is_number(self):
        return "number" in self.traits

    def __call__(self, *operands, **attributes):
        # Nearly always the first operand is the tensor.
        apply_op = getattr(operands[0], "apply_op", None) if operands else None
        if apply_op is None:
            apply_op = next((x.apply_op for x in operands if hasattr(x, "apply_op")), None)
            if apply_op is None:
                raise TypeError(f"{self.name}: no tensor among its operands {operands!r}")
        return apply_op(self, operands, attributes)

    def vjp_rule(self, index):
        """The rule for one operand, or None. `vjp` is a tuple, or for variadic ops a function of the index."""
        if callable(self.vjp):
            return self.vjp(index)
        return self.vjp[index] if index < len(self.vjp) else None

    def __repr__(self):
        return self.name


# What is done with an entry that comes or goes while weft is in use: the frontend gives it its names, or takes them.
ON_REGISTER, ON_UNREGISTER = [], []


def register(op):
    """Add an entry to the table. The name must be new."""
    if TABLE.is_taken(op.name):
        raise ValueError(f"op {op.name} is already in the table")
    if op.kernel is None and op.kind not in ("composite", "library"):
        raise ValueError(f"op {op.name}: an entry of kind {op.kind} names its kernel (compiler/kernels/)")
    if not op.node_name:
        op.node_name = "".join(part.capitalize() for part in op.name.split("_")) + "Backward0"
    for announce in ON_REGISTER:
        announce(op)
    TABLE[op.name] = op
    return op


def unregister(name):
    """Take an entry out again (for ops added at run time)."""
    op = TABLE.pop(name)
    for announce in ON_UNREGISTER:
        announce(op)
