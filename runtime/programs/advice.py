"""What to write instead of what cannot be compiled, by the reason that is given for it."""

from ..state.modes import SIZES

_READ = "a value was read before the call ended"
_ADVICE = [
    (_READ, "return the value and read it after the call; of an `if` on data, weft.where can be the replacement"),
    (
        SIZES,
        "keep the shape and let weft.where choose: weft.where(x > 0, x, 0).sum() for x[x > 0].sum(); or return what is "
        "picked from, and pick after the call",
    ),
    (
        "a value was needed in the middle of it",
        "let weft compute it: most functions of NumPy have their names in weft; or take what NumPy computes out of the "
        "function, before or after it",
    ),
    (
        "what a backward after the call reads was changed in place before",
        "return y.detach(), or read the value after the call",
    ),
    ("many of its calls raise", "return y.detach() or raise before a value is read; or tell the caller by a result"),
    ("a tensor with a history was changed in place", "compute a new tensor: y = y + 1 for y += 1 of what came in"),
    ("a leaf that had been used was frozen", "freeze it before anything is computed from it"),
    (
        "goes on to the history of what comes in",
        "give x.detach().requires_grad_(), or compute what comes in in the function",
    ),
    ("custom autograd.Function", "return a new value that forward has computed with ops, and change no input"),
    ("weft.tensor(array) is a copy", "make the tensor with weft.tensor(array), once, outside the function"),
    (
        "whose memory a NumPy array or another tensor",
        "keep copies of arrays, x.numpy().copy(), and work on one of several tensors that show the same memory: "
        "x.detach() and x.data are other names of x",
    ),
    ("an update reads or writes memory that a NumPy array shares", "keep a copy: p.detach().numpy().copy()"),
    (
        "memory that another tensor of the call shares",
        "work on one of the two, or on a copy: x.clone()",
    ),
    ("has living views", "change it before a view is taken, or give away a copy: x[0].clone()"),
    ("that .data shows, and that a backward will read", "change it after backward()"),
    ("under no_grad of a tensor that has a history", "change x.detach(), or a leaf"),
    ("memory of a NumPy array", "make the tensor with weft.tensor(array), or let go of the array"),
    (
        "memory that a NumPy array shows",
        "weft.tensor(array) is a copy of its own; tensor.numpy() belongs after the call",
    ),
    ("set_default_dtype", "set the type before the call, or give dtype= where tensors are made"),
    ("many paths", "fewer outcomes of `if`s: weft.where, or a compiled function for each case"),
    (
        "paths were recorded",
        "fewer outcomes of `if`s: weft.where, or a compiled function for each case; of a number that is another one in "
        "every call, a tensor, or few values",
    ),
    (".data", "x.copy_(value) under weft.no_grad() keeps the memory that it has"),
    ("at other places than before", "take the part before the call, or index with a tensor: x[weft.tensor([i])]"),
    ("64 bits", "give the number as a tensor of a floating-point type"),
    ("no leaf, or not contiguous", "give x.detach().contiguous(), or compute the argument inside the function"),
    (
        "gradients pass through nodes",
        "return y.detach() of a value with hooks, or take the hooks out before: results with hooks need nodes",
    ),
    ("its body runs after the call", "compile the function that computes one of its values, and call that in the body"),
    ("the compiler failed", "nothing: this is a fault of weft, please report it"),
    ("ran outside its program", "see the breaks above: a call that has none of these is replayed"),
    (
        "no generated kernels",
        "float32 or float64, where the values allow it: ops on other types run one by one, as in eager mode "
        "(weft.autocast makes floats of 16 bits)",
    ),
    (
        "computed by NumPy",
        "nothing, if it computes for long: what is before and after it is compiled. Else call it before or after, or "
        "use ops that are compiled",
    ),
]


def advice_for(reason):
    """None if there is nothing to say."""
    return next((advice for part, advice in _ADVICE if part in reason), None)


def is_read(reason):
    return reason in (_READ, SIZES)
