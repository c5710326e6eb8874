"""Names of C functions, parameters and fields: those that C and C++ leave to programs, each once."""

_KEYWORDS = frozenset(
    str.split("""
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl
    concept const const_cast consteval constexpr constinit continue co_await co_return co_yield decltype default
    delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long
    mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
    reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast struct switch
    template this thread_local throw true try typedef typeid typename typeof union unsigned using virtual void
    volatile wchar_t while xor xor_eq
""")
)
# Macros and types of headers that a program is likely to include beside ours.
_MACROS = frozenset(
    str.split("""
    EOF FILE I INFINITY NAN NULL assert errno int8_t int16_t int32_t int64_t linux offsetof size_t stderr stdin stdout
    uint8_t unix
""")
)
# Functions of the C library that an object of the same name would take the place of, in the whole program.
_FUNCTIONS = frozenset(
    str.split("""
    abort abs accept acos acosh aligned_alloc asin asinh atan atan2 atanh atexit atof atoi bind bsearch calloc cbrt
    ceil clock close connect copysign cos cosh div erf erfc exit exp exp2 expm1 fabs fclose fdim fflush floor fma fmax
    fmin fmod fopen fork fprintf fputs fread free frexp fwrite getenv hypot index j0 j1 jn kill ldexp lgamma link
    listen log log10 log1p log2 logb main malloc memcmp memcpy memmove memset modf nan nearbyint open pause pipe poll
    pow printf putchar puts qsort raise rand random read realloc recv remainder remove rename rint round scanf select
    send signal sin sincos sinh sleep sprintf sqrt srand stat strcmp strcpy strlen system tan tanh tgamma time trunc
    wait write y0 y1 yn
""")
)


def is_function_name(name):
    """Whether a C function of a program may be called that."""
    return name.isidentifier() and name.isascii() and name not in _KEYWORDS | _MACROS | _FUNCTIONS


def is_name(name):
    """Whether a parameter or a field may be."""
    return name.isidentifier() and name not in _KEYWORDS | _MACROS


def spelled(path):
    """A name of Python's, or a path, with nothing in it that C does not take."""
    return "".join(c if c.isalnum() and c.isascii() else "_" for c in path)


def distinct(name, taken):
    """The name, with an underscore after it, or several, where it is none for C or is taken."""
    while not is_name(name) or name in taken:
        name += "_"
    return name


def arguments(names):
    """Those of a function's arguments; results, state and scratch memory keep theirs."""
    fixed = {"scratch", "state", "result", "value", "rank", "size", *(f"result{k}" for k in range(len(names) + 32))}
    found = []
    for name in names:
        found.append(distinct(name, {*fixed, *found}))
    # Results are called grad_x and so on, by the new names.
    while clash := [k for k, name in enumerate(found) if name in _derived(found)]:
        found[clash[0]] = distinct(found[clash[0]] + "_", {*fixed, *found})
    return found


def _derived(names):
    return {f"{kind}_{name}" for name in names for kind in ("grad", "vector", "product")}
