"""Objects that say for themselves which C function calls of them go to: CPython's protocol `vectorcall`.

A class written in Python has one slot for calls, which is given a tuple and a dict; making these and taking them apart
again is most of what such a call costs. Objects of a class that inherits from VectorCalled hold the address of

    PyObject *function(PyObject *self, PyObject **arguments, size_t n, PyObject *names)

at PLACE, which is asked first once `ask_first` has said so of the class; where that is null, or nothing has been said,
calls go to the slot as ever.
"""

import ctypes
from typing import Any

PLACE = object.__basicsize__
# Of a class, in CPython 3.10 to 3.14: the word with its slot for calls, that with the place of the address in its
# objects, and that with its flags, one of which says that calls go there first.
CALL_SLOT, _OFFSET_SLOT, _FLAGS = 16, 7, 21
_HAS_VECTORCALL = 1 << 11
_NAME = b"weft.VectorCalled"
_CAN_BE_INHERITED_FROM = 1 << 10
_MEMBERS, _SIZE, _READ_ONLY = 72, 19, 1  # CPython's numbers


class _Member(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("kind", ctypes.c_int),
        ("offset", ctypes.c_ssize_t),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


class _Slot(ctypes.Structure):
    _fields_ = [("number", ctypes.c_int), ("content", ctypes.c_void_p)]


class _Spec(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("basic_size", ctypes.c_int),
        ("item_size", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("slots", ctypes.POINTER(_Slot)),
    ]


# CPython keeps the addresses of these texts.
_members = (_Member * 2)(_Member(b"__vectorcalloffset__", _SIZE, PLACE, _READ_ONLY, None))
_slots = (_Slot * 2)(_Slot(_MEMBERS, ctypes.addressof(_members)))
_spec = _Spec(_NAME, PLACE + ctypes.sizeof(ctypes.c_void_p), 0, _CAN_BE_INHERITED_FROM, _slots)
_make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.POINTER(_Spec))(("PyType_FromSpec", ctypes.pythonapi))
VectorCalled: Any = _make(_spec)


def ask_first(kind):
    """Calls of objects of this class go to the address they hold, if they hold one. Returns whether that is so: of
    what is not found where it is expected nothing is changed."""
    offset = ctypes.c_ssize_t.from_address(id(kind) + 8 * _OFFSET_SLOT).value
    flags = ctypes.c_ulong.from_address(id(kind) + 8 * _FLAGS)
    if offset != PLACE or flags.value != kind.__flags__:
        return False
    flags.value |= _HAS_VECTORCALL
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))
    return True
