"""What native code of eager mode (eager_call.py) reads: an op's plan as structures of numbers, addresses and objects.

    Words --plans--> Routine: operands and attributes that it is for
                        |--steps--> Step: a kernel, and where in the slots its operands and its result are
                        `--nodes--> NodeRow: what the node of its result is, by which operands require gradients

A slot is the address of an operand's elements, of the result's, or of memory that stays where it is.
"""

import ctypes

import numpy as np

from ...compiler.ops.table import Meta
from ...compiler.translate.kinds import (
    F64,
    I32,
    I64,
    Address,
    Bool,
    Borrowed,
    Dict,
    Function,
    Inline,
    List,
    Maybe,
    Object,
    ObjectKind,
    Rows,
    Steals,
    Struct,
    Tuple,
)
from ...compiler.translate.language import External
from ..state.storage import Storage
from .function_node import FunctionNode
from .node import AccumulateGrad, Node, Recording, Saved
from .open_nodes import Hole, OpenDerivative
from .rebase import CopySlices
from .rebase import Place as PlaceInBase
from .saved import Shape

N_PLANS = 1 << 14  # places in the table of plans
PLACES = 4  # of them a plan may stand in, one after the other
N_OPEN, OPEN_PLACES = 1 << 12, 16  # the same of those that serve many sizes
N_SEEN = 1 << 12  # hashes of calls that those have served
MOST_SIZES, MOST_VALUES = 16, 512  # that such a one finds in operands and attributes; and with what follows from them
ADD, MULTIPLY, ADD_NUMBER, MULTIPLY_NUMBER, DIVIDE_NUMBER = range(5)
LESS, LESS_OR_EQUAL, EQUAL = range(3)
HASH_MASK = (1 << 40) - 1
MOST_SLOTS, MOST_OPERANDS, MOST_GIVEN = 1088, 1024, 16
MOST_TOLD_APART = 6  # operands, of which every one may require gradients or not; of more all or none do
MIXED = 2  # the place of a row that is never known: some of many require gradients
MOST_LOOPS, MOST_TABLE = 8, 2 * MOST_GIVEN + 2
ELEMENTWISE, REDUCTION, PRODUCT, LIMITS, ROUTINE = range(5)
MOST_ARGUMENTS = 24  # of a routine
KEPT_AS_IT_IS, KEPT_AS_SHAPE, SAVED = range(3)
WRITEABLE = 0x400  # NumPy's flag of arrays

ArrayObject = ObjectKind(
    "Array",
    np.ndarray,
    {
        "data": ("array_data", I64),
        "ndim": ("array_ndim", I32),
        "shape": ("array_shape", Address),
        "strides": ("array_strides", Address),
        "base": ("array_base", Maybe(Object)),
        "dtype": ("array_dtype", Object),
        "flags": ("array_flags", I32),
    },
)
NODE_FIELDS = (
    "edges", "sequence", "hooks", "pre_hooks", "retained", "op", "attributes", "operands", "out", "meta", "released",
    "recording", "sizes",
)  # fmt: skip
PLACE_NODE_FIELDS = "edges", "sequence", "hooks", "pre_hooks", "retained", "place"
PLACE_FIELDS = "shape", "strides", "offset", "base_shape", "base_strides", "dtype"
FUNCTION_FIELDS = "edges", "sequence", "hooks", "pre_hooks", "retained", "n_outputs"
LEAF_FIELDS = ("edges", "sequence", "hooks", "pre_hooks", "retained", "variable", "post_hooks")
NodeObject = ObjectKind("Node", Node, {name: (f"node_{name}", Object) for name in NODE_FIELDS})
FunctionObject = ObjectKind("Function", FunctionNode, {name: (f"function_{name}", Object) for name in FUNCTION_FIELDS})
PlaceNodeObject = ObjectKind(
    "PlaceNode", CopySlices, {name: (f"place_node_{name}", Object) for name in PLACE_NODE_FIELDS}
)
PlaceObject = ObjectKind("Place", PlaceInBase, {name: (f"place_{name}", Object) for name in PLACE_FIELDS})
LeafObject = ObjectKind("Leaf", AccumulateGrad, {name: (f"leaf_{name}", Object) for name in LEAF_FIELDS})
RecordingObject = ObjectKind("Recording", Recording, {"native": ("recording_native", Object)})
WordsObject = ObjectKind("ArrayOfWords", np.ndarray, {"data": ("array_data", Address)})
# Of any object: how often it is referred to.
CountedObject = ObjectKind("Counted", None, {"count": ("refcount", I32)})
MetaObject = ObjectKind("Meta", Meta, {name: (f"op_meta_{name}", Object) for name in ("shape", "dtype", "weak")})
ShapeObject = ObjectKind("Shape", Shape, {name: (f"shape_{name}", Object) for name in ("shape", "dtype")})
HoleObject = ObjectKind("Hole", Hole, {name: (f"hole_{name}", Object) for name in ("place", "shift", "is_first")})
NativeObject = ObjectKind("OpenDerivative", OpenDerivative, {"native": ("open_derivative_native", Object)})
SavedObject = ObjectKind("Saved", Saved, {name: (f"saved_{name}", Object) for name in ("tensor", "version")})
StorageObject = ObjectKind(
    "Storage", Storage, {name: (f"storage_{name}", Object) for name in ("version", "sharers", "changes", "exposed")}
)


class NoSteps(Exception):
    """Why an op stays with Python."""


class Operand(Struct):
    """kind: the type of a tensor's elements, or the class of a number. is_whole: of a number that kernels are given as
    an integer of 64 bits; is_narrow: of one that becomes an integer of 32; is_pair: of a complex one. strides: of a
    tensor that is not row-major. Its elements are in n_bytes from `lowest` bytes after the address of the first on.
    may_be_target: whether what is changed in place may be this one too."""

    kind: Object
    is_number: Bool
    is_whole: Bool
    is_narrow: Bool
    is_pair: Bool
    is_row_major: Bool
    shape: Rows(I64)
    strides: Rows(I64)
    lowest: I64
    n_bytes: I64
    may_be_target: Bool


class Attribute(Struct):
    name: Object
    value: Object


class Place(Struct):
    """offset: bytes from where the slot points to; strides: bytes between two turns of each of a step's loops."""

    slot: I64
    offset: I64
    strides: Rows(I64)


class Step(Struct):
    """A kernel that runs in loops of these extents, `rounds` times in all. The last place is the result's. strides:
    what the table says after the addresses. numbers: what else the kernel is told. Limits are no kernel: a step before
    has looked whether something is beyond them, and has left 0 where nothing is, else the call is Python's. rest: what
    a routine is given after the places."""

    kind: I64
    elementwise: Function((Address, I64))
    reduction: Function((I64,) * 5)
    product: Function((I64,) * 12)
    routine: Function((I64,) * MOST_ARGUMENTS)
    rest: Rows(I64)
    places: Rows(Place)
    strides: Rows(I64)
    extents: Rows(I64)
    rounds: I64
    size: I64
    numbers: Inline(I64, 9)
    found: Address


class Cell(Struct):
    word: I64


class FloatCell(Struct):
    word: F64


class Formula(Struct):
    """A number that follows from those before it: of the number in place `first`, and another one or that in place
    `second`."""

    kind: I64
    first: I64
    second: I64


class Guard(Struct):
    """Whether a number is <, <= or == 0 has this answer."""

    value: I64
    comparison: I64
    answer: Bool


class Written(Struct):
    """Where the number in a place is written to; of `Sizes.divided` what `numerator` divided by it is."""

    at: Address
    value: I64
    numerator: F64


class Sizes(Struct):
    """How words of another structure follow from n numbers, which only a call tells (runtime/replay/eager_open.py)."""

    n: I64
    formulas: Rows(Formula)
    guards: Rows(Guard)
    written: Rows(Written)
    floats: Rows(Written)
    divided: Rows(Written)


class OpenOperand(Struct):
    """Which of its sizes and strides are found here: the places of these numbers, -1 of others."""

    kind: Object
    is_number: Bool
    is_row_major: Bool
    item_bytes: I64
    places: Rows(I64)
    strides: Rows(I64)


class NodeRow(Struct):
    """is_known: whether the rest is; makes_node: whether there is one. kind: the node's class. differentiated: 1 for
    each operand that gets an edge. kept: how each operand is kept; shapes: what stands for it then."""

    is_known: Bool
    makes_node: Bool
    kind: Object
    meta: Object
    recording: Object
    differentiated: Rows(I64)
    kept: Rows(I64)
    shapes: Rows(Object)
    reads_out: Bool
    is_open: Bool
    types: Rows(Object)


class View(Struct):
    """Where the elements of a view are: strides, and an offset in bytes. kept_flags are those that it takes over of the
    array whose memory it shows."""

    dtype: Object
    ndim: I64
    shape: Address
    strides: Address
    offset: I64
    kept_flags: I64


class Routine(Struct):
    """A plan. hash: of what is asked for (eager_call.py: hash_of). fixed: the addresses in the slots after those of the
    operands and of the result. A view has no steps.

    Of large operands, and where there are no steps, a program may do all: `head` is how its table begins, `arrays` are
    the operands that follow before the result, `as_numbers` those that are its numbers, all of them integers if
    has_wholes. A large result is one of the `kept`, if there are any, that nobody else holds. run: what gives the
    result's array for the operands' where NumPy computes it, else None.

    changes: the steps that write the result over the first operand, if has_changes; overwrites: whether the program may
    do that. only_changes: whether there is nothing else. is_sure: whether nothing can make the call Python's any more
    once the result is begun, which then may be that of a tensor that no operand shows. is_for_all: whether it may be
    one element for all of a target's. lent: after how many calls Python is asked for a program in place of the steps
    (fused.py: lend), 0 for never."""

    op: Object
    hash: I64
    default_dtype: Object
    operands: Rows(Operand)
    attributes: Rows(Attribute)
    node_attributes: Object
    steps: Rows(Step)
    fixed: Rows(I64)
    dtype: Object
    ndim: I64
    shape: Address
    n_bytes: I64
    is_view: Bool
    view: View
    is_floating: Bool
    nodes: Inline(Address, 1 << MOST_TOLD_APART)
    is_program: Bool
    program: Function((Address,), I64)
    head: Rows(I64)
    arrays: Rows(I64)
    as_numbers: Rows(I64)
    has_wholes: Bool
    kept: Object
    run: Object
    lent: I64
    has_changes: Bool
    only_changes: Bool
    overwrites: Bool
    is_sure: Bool
    is_for_all: Bool
    changes: Rows(Step)
    fixed_in_changes: Rows(I64)


class Open(Struct):
    """A Routine for operands some of whose sizes only the call tells. Attributes may have a Hole where a number is.
    derivatives: what runs the nodes, by which operands require gradients."""

    hash: I64
    operands: Rows(OpenOperand)
    attributes: Rows(Attribute)
    sizes: Sizes
    routine: Routine
    derivatives: Inline(Address, 1 << MOST_TOLD_APART)


class Given(Struct):
    """What a derivative is given: the cotangent, the output, an operand. is_read: whether its elements are. What is not
    row-major is copied by a kernel to an address, if there is one."""

    is_read: Bool
    what: Inline(Operand)
    copier: Function((Address, I64))
    copied_to: I64
    item_bytes: I64


class Made(Struct):
    """An array that a derivative makes: a new one, or one of the `kept` that nobody else holds; `extents` is its shape
    as a tuple."""

    dtype: Object
    ndim: I64
    shape: Address
    kept: Object
    extents: Object


class Derivative(Struct):
    """The steps from a cotangent to those of the operands. results: of each edge which of the arrays it gets, or one of
    the codes below, which count downwards from SHOWN for views of the cotangent. released: what stands for the operands
    of a node that has let go of them. following: for another layout of the cotangent.

    A program may do all: `head` is how its table begins, `arrays` are those of the given that follow before what is
    made, `as_numbers` those that are its numbers, all of them integers if has_wholes.

    Where only the node tells sizes, `sizes` is how the words of this follow from them, `types` are the operands'.

    is_of_part: it puts the cotangent into zeros, which Python need not have where something has arrived (parts.py).
    lent: as a Routine's."""

    given: Rows(Given)
    steps: Rows(Step)
    fixed: Rows(I64)
    first_fixed: I64
    made: Rows(Made)
    results: Rows(I64)
    views: Rows(View)
    has_saved: Bool
    released: Rows(Object)
    following: Object
    is_program: Bool
    program: Function((Address,), I64)
    head: Rows(I64)
    arrays: Rows(I64)
    as_numbers: Rows(I64)
    has_wholes: Bool
    is_open: Bool
    sizes: Sizes
    types: Rows(Object)
    is_of_part: Bool
    lent: I64


NO_RESULT, COTANGENT, SHOWN = -1, -2, -3


class Update(Struct):
    """The steps of an optimizer's rule for one row. given: what its tensors must be; written: which of them change.
    n_elements: how many, if some are written before others are read, else 0; item_bytes: how long an element of each
    tensor is then, 0 if it is one for all."""

    given: Rows(Operand)
    written: Rows(I64)
    steps: Rows(Step)
    fixed: Rows(I64)
    n_elements: I64
    item_bytes: Rows(I64)


class Words(Struct):
    """What all calls share. replaying: where it says whether a usual call is in flight, whose ops `replay` calls.
    late_kind: a class of nodes that `run_late` runs where it can, in a pass in which nobody looks on.
    run_function: runs a node of a user's Function, and gives what it passes on. new_result: of a shape and a type.
    known_part: see parts.py.
    thread: the number of the one whose modes, in the next word, these are."""

    slow_sweep: Object
    slow_update: Object
    slow_inplace: Object
    slow_apply: Object
    slow_zero: Object
    slow_lend: Object
    slow_show: Object
    slow_data: Object
    slow_equal: Object
    slow_cut: Object
    slow_zeros: Object
    slow_reach: Object
    late_kind: Object
    run_late: Object
    run_function: Object
    known_part: Object
    new_result: Object
    replaying: Address
    replay: Function((Object, Tuple, Maybe(Dict)), Object)
    thread: I64
    modes: Dict
    grad_enabled: Object  # the mode's value where a thread has set none
    default_dtype: Object
    zero: Object
    minus_one: Object
    true: Object
    false: Object
    sequence: Object  # of nodes: what counts
    null: Address
    no_edges: Object
    array_class: Object
    memory_class: Object
    byte: Object
    extent: Inline(I64, 1)
    new_array: Function((Object, Steals(Object), I32, Address, Address, Address, I32, Address), Maybe(ArrayObject))
    new_view: Function((Object, Steals(Object), I32, Address, Address, I64, I32, Address), Maybe(ArrayObject))
    set_base: Function((Object, Steals(Object)), I32)
    copy_into: Function((Object, Object), I32)
    float32: Object
    float64: Object
    bfloat16: Object
    types: Tuple  # NumPy's that tensors have
    item_bytes: Rows(I64)
    is_whole: Rows(I64)  # 1 of bools and integers
    add_float32: Function((Address, I64))
    add_float64: Function((Address, I64))
    numbers: Inline(F64, MOST_GIVEN)
    numbers_at: I64
    wholes: Inline(I64, MOST_GIVEN)
    wholes_at: I64
    pairs: Inline(F64, 2 * MOST_GIVEN)
    pairs_at: I64
    slots: Inline(I64, MOST_SLOTS)
    table: Inline(I64, MOST_TABLE)
    turns: Inline(I64, MOST_LOOPS)
    calls_taken: I64
    nodes_taken: I64
    plans: Inline(Address, N_PLANS)
    sizes: Inline(I64, MOST_VALUES)
    open: Inline(Address, N_OPEN)
    seen: Inline(I64, N_SEEN)
    n_seen: Inline(I64, N_SEEN)


def _set_item(pair, k, x):
    pair[k] = x
    return 0


new_object = External(
    "PyType_GenericAlloc", (Object, I64), Object, fails="null", python=lambda kind, _: kind.__new__(kind)
)
is_subtype = External("PyType_IsSubtype", (Object, Object), I32, quiet=True, python=lambda x, y: int(issubclass(x, y)))
new_tuple = External("PyTuple_New", (I64,), Tuple, fails="null", python=lambda n: [None] * n)
set_tuple_item = External(
    "PyTuple_SetItem", (Tuple, I64, Steals(Object)), I32, fails="nonzero", quiet=True, python=_set_item
)
new_dict = External("PyDict_New", (), Dict, fails="null", quiet=True, python=dict)
delete_item = External("PyDict_DelItem", (Dict, Object), I32, fails="nonzero", quiet=True)
insert_item = External("PyList_Insert", (List, I64, Object), I32, fails="nonzero", quiet=True)
replace_part = External("PyList_SetSlice", (List, I64, I64, Address), I32, fails="nonzero")
next_item = External("PyDict_Next", (Dict, Address, Address, Address), I32, quiet=True)
hash_of_plain = External("PyObject_Hash", (Object,), I64, quiet=True, python=hash)
as_small = External("PyLong_AsLongLongAndOverflow", (Object, Address), I64, quiet=True, python=lambda x, _: int(x))
next_of = External("PyIter_Next", (Object,), Object, fails="null", quiet=True, python=next)
weak_target = External(
    "PyWeakref_GetObject", (Object,), Borrowed(Object), quiet=True, python=lambda reference: reference()
)
new_weak_reference = External("PyWeakref_NewRef", (Object, Address), Object, fails="null", quiet=True)
move_memory = External("memmove", (I64, I64, I64), I64, quiet=True)
set_memory = External("memset", (I64, I32, I64), I64, quiet=True)
thread_state = External("PyThreadState_Get", (), Address, quiet=True)
thread_number = External("PyThreadState_GetID", (Address,), I64, quiet=True)


def this_thread():
    """The number of this thread, which no other gets."""
    get, number = ctypes.pythonapi.PyThreadState_Get, ctypes.pythonapi.PyThreadState_GetID
    get.restype, number.argtypes, number.restype = ctypes.c_void_p, (ctypes.c_void_p,), ctypes.c_int64
    return number(get())
