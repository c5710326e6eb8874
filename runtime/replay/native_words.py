"""The numbers of the words that native code of usual calls reads in place of objects: of those of the module, a call,
an entry, a change, a span, a guard, of values and results.

native.py and native_records.py fill them in; native_text.py and the files beside it write the code that reads them.
"""

FUNCTIONS = (
    "PyObject_GetAttr", "PyDict_GetItem", "PyObject_RichCompareBool", "PyObject_VectorcallDict", "PyList_Append",
    "PyErr_Clear", "Py_IncRef", "Py_DecRef", "PyLong_FromLongLong", "PyLong_AsLongLong", "PyType_GenericAlloc",
    "PyFloat_AsDouble", "PyLong_AsUnsignedLongLongMask", "PyThreadState_Get", "PyDict_SetItem", "PyObject_Call",
    "PyList_SetSlice", "PyErr_Fetch", "PyErr_NormalizeException", "PyErr_Restore", "PyList_New", "PyTuple_New",
    "PyTuple_SetItem", "PyType_IsSubtype", "PyObject_GenericGetDict", "PyDict_Next", "PyDict_GetItemWithError",
    "PyErr_Occurred", "PyGC_Disable", "PyGC_Enable", "PyDict_Clear", "PyWeakref_NewRef", "PyWeakref_GetObject",
    "PyThreadState_GetID", "memcmp", "memcpy",
)  # fmt: skip
# The words of the module: where those of the usual call in flight are (0 if there is none), of each callable the Python
# function that does the same, what Module.__call__ needs, and functions of CPython.
SHARED = "weft_shared"
CALLABLE_NAMES = ("call_op", "call_module")
ACTIVE, CALLABLES = 0, 1
HOOKS_NAME, PRE_HOOKS_NAME, FORWARD_NAME, TYPE_OF_HOOKS = range(4, 8)
MODES_THREAD, THREAD_MODES, KNOWN_DICT, KNOWN_VERSION, KNOWN_FRAME, KNOWN_MODE, KNOWN_DTYPE = range(8, 15)
SHARED_API = 15
N_SHARED = SHARED_API + len(FUNCTIONS)

# The words of a call: of one UsualFrame.
K, ENTRIES, N_ENTRIES, TENSORS, NUMBERS, CHANGED_GRADIENTS, FRAME = range(7)
ARGUMENTS, N_ARGUMENTS, OWNERS, N_OWNERS, EXPECTED, N_EXPECTED, RESULTS, N_RESULTS, LIVE, N_LIVE = range(7, 17)
STATE, DICT_NAME, MODE_NAME, DTYPE_NAME, MODE_AT_START, DTYPE_AT_START, MODE, DTYPE = range(17, 25)
NONE, TRUE, FALSE, TUPLE, LIST, DICT, TENSOR, ARRAY, BACKWARD = range(25, 34)
KINDS = 34  # and two more: the types of Python numbers, bool, int, float
N_NUMBERS = 37  # how many run-time numbers a call has met when it ends
STORAGE, CHANGES, N_CHANGES = 38, 39, 40  # the class; where the records of changes in place are, the last one first
# Reads in the middle (native_segments.py): (position, words of its own, as an array) of each, how many there are and
# were done; the dict of the arrays they have computed, by number; records of the values. A segment has words like a
# call, and IN_THE_MIDDLE says so.
SEGMENTS, N_SEGMENTS, N_FLUSHED, ARRAYS, MADE, N_MADE, IN_THE_MIDDLE = range(41, 48)
GIVEN, N_GIVEN = 48, 49  # records of results that are views
FRESH_KIND = 50  # the type of tensors
PROGRAM, TABLE, ARENA, ARENA_BYTES, SCALARS, SCALARS_FROM, N_SCALARS, CHANGING, N_CHANGING = range(51, 60)
NEW_ARRAY = 60  # NumPy's PyArray_NewFromDescr
THREAD, MODES, FRAME_NAME = 61, 62, 63  # the thread the call runs in, the dict of its modes, the frame's name there
BUSY, DEPARTED = 64, 65  # whether a call is in flight; whether the last one departed
RECORDING_CALLS, PROGRAM_CALLS = 66, 67  # addresses of counters
VIEWS, N_VIEWS, N_TENSORS, REMEMBERED, ENDED = range(68, 73)
MAY_SHARE = 73  # whether arguments may share memory, because the call changes none of them
PARAMS_NAME, STATES, STEP_NAME = 74, 75, 76  # a group's parameters; the type of an optimizer's states; a count in one
GRADIENTS, RESTORE_STEPS = 77, 78  # what autograd.grad is among ops; what undoes a count
LEARN = 79  # the Python method that calls an object and learns what the call does
CLOSE, CLOSE_OTHER, CLOSE_UNUSUAL, CLOSE_FAILED, CLOSE_AFTER_ERROR = range(80, 85)  # Python ends of a call
N_OUTPUTS, OUTPUTS = 85, 86  # how many arrays the program writes, the results first; a list that gets all, or 0
WORKING = 87  # whether Python is at work on the frame: who comes in then is no part of the call (onlooker.py)
SLOW = 88  # and more: per method the Python method that does the same
# What Python does at the end of a call, before and after its program: makes what stands for the call, and hands out
# what native code does not know of. Null if there is nothing to do.
BEGIN_END, FINISH_END = 106, 107
# Numbers of the tensors from outside that are new in every call; the dict of copies of exposed ones (LAST_COPIES:
# the list of the last copies, by number; KEEPS_COPIES: whether they are kept for the next call).
FRESH_NUMBERS, N_FRESH_NUMBERS, COPIES = 108, 109, 110
# The native functions that make what stands for the call, and that open it when the program has run; null if Python
# does. The first gives None where it leaves that to Python.
MAKE_END, OPEN_END = 111, 112
# What gradients are added with to those that are there: an op and a dict without attributes; who adds the rest of them.
ADD, NO_ATTRIBUTES, ACCUMULATE_REST = 113, 114, 115
MEMORY = 116  # the class of what an array is a view of that owns its memory (state/aligned.py)
IS_FINISHED = 117  # whether FINISH_END is called wherever BEGIN_END is, and not only for views that lie otherwise
FINISHED_CALL = 118  # the class of what stands for a call in results that have a history (usual_calls.py)
WHOLE, ASKED = 119, 120  # what gives the results without a call (whole_call.py), or null; asked classes
READERS = 121  # finished calls that will read memory (state/tensor.py)
ENDED_CALL = 122  # the class of what stands for a call whose own backward has freed all (usual_ended.py)
LAST_COPIES, KEEPS_COPIES, API = 123, 124, 125
N_WORDS = API + len(FUNCTIONS)
METHODS = str.split(
    "begin apply call_again backward_again gradients_again before_gradient update update_again step_again count_steps "
    "drop_gradients run take call inplace_again materialize make_leaf"
)

# The words of an entry. OP is 0 for entries that Python compares; of an update it is the rule, and HAS_NUMBERS how many
# there are; of a backward and of a gradients, whose ROW_LENGTH is how many outputs it has, the word for it. STORAGES
# and N_STORAGES of a backward are the (leaf, gradient) numbers, UNDO what undoes it. ROOT: of a view, the number of its
# base, else -1.
OP, ATTRIBUTES, GRAD_ENABLED, N_OPERANDS, OPERANDS, VID, HAS_NUMBERS, ROW_LENGTH, STORAGES, N_STORAGES, UNDO = range(11)
ROOT, SPANS, N_SPANS = 11, 12, 13
DEAD, N_DEAD = 14, 15  # of an update: numbers of views of what it changes, which nobody may hold
CHANGE = 16  # of a change in place: where its words are
# Tensors from outside that come in with it: (number, position, words of an argument, bytes). In place of the number its
# operands have a code, like that of a number: the word with the type that is expected.
FRESH, N_FRESH, FRESH_CODE = 17, 18, -17
# Of a part whose place is a number, while its OP has it as an attribute: where words are that say how many operands
# come before the starts, the spec (null of a select), the names of attributes, a select's axis.
PLACE, N_BEFORE_STARTS, SPEC, NAMES, AXIS, MOST_STARTS = 19, 0, 1, 2, 4, 8
# Of an update: how many names show again what it changes, in the entries that follow.
N_SHOWN_AFTER, ENTRY_WORDS = 20, 21
# The words of a change: its op, the target's numbers before and after, whether the call makes the target (AS_LEAF: it
# becomes a leaf), the target if
# it is the same in every call (else 0), numbers of views, and of both numbers: the object, meta, flag.
CHANGE_OP, OLD, NEW, IS_MADE, TARGET, GROUP, N_GROUP, OLD_NUMBER, OLD_META, OLD_FLAG = range(10)
NEW_NUMBER, NEW_META, NEW_FLAG = range(10, 13)
AS_LEAF = 2
# The number of what the change is asked of, which may be another name of the target; how many names show the target
# again in the entries that follow; what follows from numbers of the call: (position, times, plus) each.
GIVEN_NAME, N_SHOWN, AGAIN, N_AGAIN, CHANGE_WORDS, AGAIN_WORDS = *range(13, 18), 3
# The words of a span (frame_spans.py): the object that is called, the numbers of its arguments, what must be as it was,
# gradient mode, the position after it (-1: never), the number of the result, a list of numbers it appends, numbers of
# views and their bases, how often it was taken, what comes in with it (as of an entry, but among its own arguments).
KEY, CODES, N_CODES, GUARDS, N_GUARDS, SPAN_MODE, END, RESULT, APPENDED, ROOTS, N_ROOTS, USES = range(12)
SPAN_FRESH, N_SPAN_FRESH, SPAN_WORDS = 12, 13, 14
# Of an optimizer's step, in place of numbers of arguments: params, states, names, numbers, its place after the first.
UPDATE_WORDS = 5
# The words of a guard: which kind, an object, a container, its size, the (key, value) pairs in it, the object's class.
KIND, OBJECT, CONTAINER, SIZE, PAIRS, CLASS = range(6)
GUARD_WORDS = 6
OF_ATTRIBUTES, OF_DICT, OF_ITEM, OF_TYPE, OF_LIST = range(5)
# A place (runtime/programs/places.py: words_of); flag, and WITH_HISTORY; its owner. Of what is no tensor: 0; its type.
ARGUMENT_WORDS, WITH_HISTORY = 7, 1
FRESH_WORDS = 4 + ARGUMENT_WORDS  # number, operand, an argument's, bytes, number of the argument that it is or -1
EXPECTED_WORDS = 3  # tensor, array, flag
RESULT_WORDS = 2  # number, whether it is alive
SCALAR_WORDS = 2  # position among the numbers, whether it is a float
CHANGING_WORDS = 7  # word of the program's table, number, place, the number as an object if a segment made the value
# A view that is a result: a value (as in MADE_WORDS), the place of its base, then its own number of dimensions, sizes,
# strides and distance from its base in bytes, the flag of elements that may be written, whether the base is made by the
# same segment, and what it is a view of after the call (usual_views.py).
GIVEN_PLACE, GIVEN_NDIM, GIVEN_SHAPE, GIVEN_STRIDES, GIVEN_OFFSET, GIVEN_FLAGS, BASE_IS_MADE = 5, 9, 10, 11, 12, 13, 14
GIVEN_ABOVE, GIVEN_WORDS = 15, 16
MADE_WORDS = 5  # of a value that a segment has made: its number, also as an object, meta, flag; IS_ENDED of a result
# The words of a result: its number, also as an object, meta, flag; whether its frame becomes the ended call, not None;
# its word in the table; its array's dtype and shape; a list of the last two arrays, and the one chosen now.
IS_ENDED, TABLE_WORD, DTYPE_OF, NDIM, SHAPE, POOL, CHOSEN = range(4, 11)
LIVE_WORDS = 11
# Of each mode: the word with its name, the one with its default, what is shared of it.
KNOWN_MODES = ((FRAME_NAME, NONE, KNOWN_FRAME), (MODE_NAME, MODE, KNOWN_MODE), (DTYPE_NAME, DTYPE, KNOWN_DTYPE))
