"""Saving and loading without executing anything from the file.

The file is a zip archive, so `unzip` and `numpy.load` read it too:

    weft.json           {"format": "weft", "version": 1, "tree": ...}
    tensors/0.npy       one member per tensor, written and read with allow_pickle=False
    tensors/1.npy       ...

In the tree, JSON's own null, booleans, finite numbers and strings stand for themselves, and everything else is a list
that begins with its kind:

    ["list", ...] ["tuple", ...] ["dict", [key, value], ...] ["OrderedDict", [key, value], ...]
    ["state", metadata, [key, value], ...]
    ["float", "inf"] ["tensor", member number, requires_grad] ["parameter", member number, requires_grad]
    ["array", member number] ["dtype", name]
    ["sparse", layout, array of indices, ... values, tuple of sizes, requires_grad]      (the parts of a sparse tensor)

Tensors that are one object are stored once and load as one; tensors that merely share memory become separate.

    >>> import io, weft
    >>> file = io.BytesIO()
    >>> weft.save({"weights": weft.ones(2), "epoch": 3}, file)
    >>> _ = file.seek(0)
    >>> weft.load(file)
    {'weights': tensor([1., 1.]), 'epoch': 3}
"""

import io
import json
import math
import os
import tempfile
import zipfile
from collections import OrderedDict, defaultdict
from contextlib import contextmanager

import numpy as np

from . import placement, safetensors
from .compiler import dtypes
from .compiler.later import later
from .nn.parameter import Parameter
from .placement import check_keywords
from .runtime.state.device import gpu_given
from .runtime.state.elsewhere import values_of
from .runtime.state.tensor import Tensor, tensor_of
from .torch_files import Refusal, read_pickle
from .type_names import MAP_LOCATION  # noqa: F401 (PyTorch has it here)

_TREE = "weft.json"
_sparse_coo = later("sparse.creation:sparse_coo_tensor")
_sparse_compressed = later("sparse.creation:sparse_compressed_tensor")
_VERSION = 1


def save(obj, f, **options):
    """Write dicts, lists, tuples, numbers, strings, None, dtypes, tensors and NumPy arrays, nested in any way.

    f: a path, which is replaced as a whole or not at all, or a writable binary file. TypeError names the place inside
    obj of anything that cannot be written: save `module.state_dict()`, not the module. PyTorch's options about pickles
    change nothing. A path that ends in .safetensors gets that format, which holds a dict of tensors alone.
    """
    check_keywords("save", options, ("pickle_module", "pickle_protocol", "_use_new_zipfile_serialization"))
    write = _writing(obj, f)
    if hasattr(f, "write"):
        write(f)
        return
    path = os.fspath(f)
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path) or ".", prefix=os.path.basename(path) + ".")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, _permissions(path))
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _writing(obj, f):
    """A function that writes obj into an open file, in the format that the path asks for."""
    if not hasattr(f, "write") and os.fspath(f).endswith(".safetensors"):
        content = safetensors.save(obj)
        return lambda file: file.write(content)
    writer = _Writer()
    tree = writer.encode(obj, "obj")
    return lambda file: _write_archive(file, tree, writer.arrays)


def load(f, map_location=None, pickle_module=None, *, weights_only=True, mmap=None):
    """Read what `save` wrote, from a path or a readable binary file: also what `torch.save` wrote of tensors and plain
    data, such as state dicts, and safetensors.

    map_location may name the CPU, in any of PyTorch's ways, or a GPU that is there; weights_only and the others change
    nothing, since loading executes nothing either way.
    Raises RuntimeError for files that are damaged, of another format, or pickles: those would execute code.
    """
    # Tensors were saved from the CPU: a function or a dict says where those of other devices go.
    is_table = callable(map_location) or isinstance(map_location, dict)
    gpu = None if is_table else gpu_given("load", map_location)
    if hasattr(f, "read"):
        loaded = _read(f, getattr(f, "name", "file"))
    else:
        with open(f, "rb") as file:
            loaded = _read(file, os.fspath(f))
    return loaded if gpu is None else _moved(loaded, map_location)


def _moved(obj, place):
    """What was loaded, with its tensors on a device."""
    if isinstance(obj, Parameter):
        return Parameter(obj.detach().to(place), obj.requires_grad)
    if isinstance(obj, Tensor):
        return obj.detach().to(place).requires_grad_(obj.requires_grad)
    if isinstance(obj, dict):
        if type(obj) not in (dict, OrderedDict):
            return obj
        made = type(obj)((key, _moved(value, place)) for key, value in obj.items())
        if type(obj) is OrderedDict:
            vars(made).update(vars(obj))
        return made
    return type(obj)(_moved(x, place) for x in obj) if type(obj) in (list, tuple) else obj


def _permissions(path):
    """Those of the file that is replaced; for a new file what open() would give it."""
    if os.path.exists(path):
        return os.stat(path).st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


# --- writing --------------------------------------------------------------------------------------------------------
class _Writer:
    """Turns an object into a JSON tree, and collects the arrays that become members of the archive."""

    def __init__(self):
        self.arrays = []
        self.numbers = {}
        self.open = set()

    def encode(self, obj, where):
        if obj is None or type(obj) in (bool, int, str):
            return obj
        if type(obj) is float:
            return obj if math.isfinite(obj) else ["float", repr(obj)]
        if isinstance(obj, Tensor) and not obj.has_array:
            return ["sparse", obj.layout.name, *(self.encode(part, where) for part in obj.parts())]
        if isinstance(obj, Tensor):
            kind = "parameter" if isinstance(obj, Parameter) else "tensor"
            return [kind, self.member(obj, values_of(obj.detach())), obj.requires_grad]
        if isinstance(obj, np.ndarray):
            return ["array", self.member(obj, _plain_array(obj, where))]
        if isinstance(obj, np.generic):
            return self.encode(obj.item(), where)
        if isinstance(obj, dtypes.DType):
            return ["dtype", obj.name]
        return self.container(obj, where)

    def container(self, obj, where):
        kind = _CONTAINERS.get(type(obj))
        if kind is None:
            raise TypeError(_refusal(obj, where))
        if id(obj) in self.open:
            raise ValueError(f"save: {where} contains itself; only trees can be saved")
        self.open.add(id(obj))
        if kind in ("list", "tuple"):
            entries = [self.encode(x, f"{where}[{k}]") for k, x in enumerate(obj)]
        else:
            entries = [[self.key(k, where), self.encode(x, f"{where}[{k!r}]")] for k, x in obj.items()]
        metadata = getattr(obj, "_metadata", None)
        if metadata is not None:
            kind, entries = "state", [self.encode(metadata, f"the metadata of {where}"), *entries]
        self.open.discard(id(obj))
        return [kind, *entries]

    def key(self, key, where):
        if key is None or type(key) in (str, int, bool, float, tuple):
            return self.encode(key, f"a key of {where}")
        raise TypeError(f"save: {where} has the key {key!r}; keys must be strings, numbers or tuples of them")

    def member(self, owner, array):
        """The number of the member for an array; one per owner."""
        if id(owner) not in self.numbers:
            # The owner is kept with the array: an id is only unique among living objects.
            self.numbers[id(owner)] = (len(self.arrays), owner)
            self.arrays.append(array)
        return self.numbers[id(owner)][0]


_CONTAINERS = {list: "list", tuple: "tuple", dict: "dict", defaultdict: "dict", OrderedDict: "OrderedDict"}


def _refusal(obj, where):
    text = f"save: {where} is a {type(obj).__name__}, which cannot be saved without executing code when it is loaded"
    if hasattr(obj, "state_dict"):
        return f"{text}; save its .state_dict()"
    return f"{text}; supported are dict, list, tuple, numbers, str, bool, None, dtypes, tensors and numpy arrays"


def _plain_array(array, where):
    if array.dtype.hasobject:
        raise TypeError(f"save: {where} is an array of Python objects, which cannot be saved without executing code")
    return array


def _write_archive(file, tree, arrays):
    # Stored, not compressed: trained weights hardly compress, and deflate is twenty times slower than the disk.
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        header = {"format": "weft", "version": _VERSION, "tree": tree}
        archive.writestr(_TREE, json.dumps(header, allow_nan=False))
        for number, array in enumerate(arrays):
            with archive.open(f"tensors/{number}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array, order="C"), allow_pickle=False)


# --- reading --------------------------------------------------------------------------------------------------------
class _FormatError(Exception):
    """The archive is intact but not one of ours."""


# What reading a damaged archive, member or tree can raise.
_DAMAGE = (zipfile.BadZipFile, KeyError, IndexError, ValueError, TypeError, EOFError, OSError, RecursionError)


def _read(file, name):
    start = file.read(9)
    file.seek(0)
    is_zip = start.startswith(b"PK")
    if not is_zip and not safetensors.is_safetensors(start):
        raise RuntimeError(f"load: {name} {_why_not_zip(start)}")
    try:
        if not is_zip:
            return safetensors.load(file.read())
        with zipfile.ZipFile(file) as archive:
            return _contents(archive)
    except (_FormatError, Refusal) as error:
        raise RuntimeError(f"load: {name} {error}") from None
    except _DAMAGE as error:
        raise RuntimeError(f"load: {name} is damaged or incomplete ({type(error).__name__}: {error})") from error


_PICKLE = (
    "is a pickle by itself, as torch.save wrote it before PyTorch 1.6; loading it would execute code from the file and "
    "is refused. Write it again with a newer PyTorch: torch.save(torch.load(path), path)"
)


def _why_not_zip(start):
    if not start:
        return "is empty"
    if start[:1] == b"\x80":
        return _PICKLE
    return f"was not written by weft.save, or its beginning is damaged (first bytes {start!r})"


def _contents(archive):
    """What an archive of ours, or of PyTorch's, holds."""
    names = archive.namelist()
    if _TREE in names:
        return _Reader(archive).decode(_tree(archive))
    pickles = [name for name in names if name.rpartition("/")[2] == "data.pkl"]
    if any(name.rpartition("/")[2] == "constants.pkl" for name in names):
        raise _FormatError("holds a TorchScript program, which weft does not run")
    if len(pickles) != 1:
        raise _FormatError(f"was not written by weft.save: it has no member {_TREE}")
    return read_pickle(archive, pickles[0])


def _tree(archive):
    header = json.loads(archive.read(_TREE))
    if header["format"] != "weft" or header["version"] > _VERSION:
        raise _FormatError(f"has format {header['format']} {header['version']}; this weft reads up to weft {_VERSION}")
    return header["tree"]


def add_safe_globals(safe_globals):
    """Changes nothing: `load` makes no objects of any class, whatever is allowed, and what a file holds besides tensors
    and plain data is an error."""


def get_safe_globals():
    """None is asked about: `add_safe_globals` says why."""
    return []


def clear_safe_globals():
    """Changes nothing either."""


@contextmanager
def safe_globals(safe_globals):
    """A block in which nothing is different: `add_safe_globals` says why."""
    yield


class _Reader:
    """Turns a JSON tree back into the object, with the arrays from the archive."""

    def __init__(self, archive):
        self.archive = archive
        self.tensors = {}

    def decode(self, node):
        if not isinstance(node, list):
            return node
        kind, *rest = node
        return _READERS[kind](self, *rest)

    def read_list(self, *entries):
        return [self.decode(x) for x in entries]

    def read_tuple(self, *entries):
        return tuple(self.decode(x) for x in entries)

    def read_dict(self, *pairs):
        return {self.decode(key): self.decode(value) for key, value in pairs}

    def read_ordered_dict(self, *pairs):
        return OrderedDict((self.decode(key), self.decode(value)) for key, value in pairs)

    def read_state(self, metadata, *pairs):
        made = self.read_ordered_dict(*pairs)
        made._metadata = self.decode(metadata)
        return made

    def read_float(self, text):
        return float(text)

    def read_dtype(self, name):
        return dtypes.dtype_named(name)

    def read_array(self, number):
        # The member is read as a whole first, which checks its checksum.
        content = io.BytesIO(self.archive.read(f"tensors/{number:d}.npy"))
        return np.lib.format.read_array(content, allow_pickle=False)

    def read_tensor(self, number, requires_grad, make=tensor_of):
        if number not in self.tensors:
            array = self.read_array(number)
            dtypes.from_numpy(array.dtype)
            self.tensors[number] = make(array)
            self.tensors[number].requires_grad = requires_grad
        return self.tensors[number]

    def read_sparse(self, layout, *parts):
        """Made as a user makes it, so what does not fit is refused."""
        *places, values, sizes, requires_grad = [self.decode(part) for part in parts]
        places = [tensor_of(array) for array in places]
        make = _sparse_coo if layout == "sparse_coo" else _sparse_compressed
        options = {} if layout == "sparse_coo" else {"layout": vars(placement)[layout]}
        return make(*places, tensor_of(values), sizes, requires_grad=requires_grad, **options)

    def read_parameter(self, number, requires_grad):
        return self.read_tensor(number, requires_grad, make=lambda array: Parameter(tensor_of(array)))


_READERS = {
    "list": _Reader.read_list,
    "tuple": _Reader.read_tuple,
    "dict": _Reader.read_dict,
    "OrderedDict": _Reader.read_ordered_dict,
    "state": _Reader.read_state,
    "float": _Reader.read_float,
    "dtype": _Reader.read_dtype,
    "array": _Reader.read_array,
    "tensor": _Reader.read_tensor,
    "parameter": _Reader.read_parameter,
    "sparse": _Reader.read_sparse,
}
