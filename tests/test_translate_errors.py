"""What the translator says of text that is not of the subset, and of references that may be gone; and warm starts."""

import importlib.util
import os
import re
import subprocess
import sys
import textwrap

import pytest

from weft.compiler.translate.language import METHOD
from weft.compiler.translate.language import native as declare
from weft.compiler.translate.translate import translate
from weft.compiler.translate.unit import NotTranslatable
from weft.runtime.replay import native

_HEAD = """
from weft.compiler.translate.kinds import *
from weft.compiler.translate.kinds import F64, I64, Address, Borrowed, Dict, Inline, List, Maybe, Object, Rows, Tuple
from weft.compiler.translate.kinds import Atomic, Struct
from weft.compiler.translate.language import METHOD, RELEASE, SLOT, External, keep, local_array, native, require
from weft.runtime.code.native_kinds import TensorObject, get_attribute, new_long, thread
from weft.runtime.state.tensor import Tensor

class Words(Struct):
    k: I64
    y: F64
    op: Object
    rows: Rows(I64)
    count: Atomic(I64)
    slow: Object
"""


def translated_text(tmp_path, text):
    """The Translation of the last function of a file `bad.py`, and how many lines come before the text."""
    head = "\n".join(_HEAD.strip().splitlines())
    path = tmp_path / "bad.py"
    path.write_text(head + "\n" + textwrap.dedent(text))
    spec = importlib.util.spec_from_file_location("bad", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    functions = [f for f in vars(module).values() if hasattr(f, "declaration") and f.__module__ == "bad"]
    return translate(functions[-1:], native.layout()._asdict()), len(head.splitlines())


METHOD_HEAD = '@native(form=METHOD, slow="slow")\ndef f(words: Words, x: Object) -> Object:\n    '

# What is said of the line below.
ERRORS = """
@native()
def f(n: I64) -> I64:
    #! not an operator of the subset for I64: n // 2
    return n // 2
---
@native()
def f(n: I64) -> I64:
    #! Bool is no I64: n < 2
    return n < 2
---
@native()
def f(n: I64) -> I64:
    #! 1.5 is no I64: 1.5
    return n + 1.5
---
@native()
def f(n: I64) -> I64:
    if n > 2:
        y = 1
    #! unknown, or not set on all ways here: y
    return y
---
@native()
def f(n: I64) -> I64:
    #! unknown, or not set on all ways here: unheard
    return unheard
---
@native()
#! a way through the function ends without a value: def f(n: I64) -> I64:
def f(n: I64) -> I64:
    pass
---
@native()
def f(n: I64) -> I64:
    return n
    #! nothing leads here: n = 2
    n = 2
---
@native()
def f(n: I64) -> I64:
    #! not a statement of the subset: try:
    try:
        pass
    finally:
        pass
---
@native()
def f(n: I64) -> I64:
    #! not an expression of the subset: [i for i in range(n)]
    x = [i for i in range(n)]
---
@native()
def f(n: I64) -> I64:
    #! range has no step in the subset
    for i in range(0, n, 2):
        n = i
---
@native()
def f(n: I64) -> I64:
    #! neither a native function, nor one of C, nor of the vocabulary: print(n)
    return print(n)
---
@native()
def f(n: I64) -> I64:
    #! arguments are given by position: min(n, b=2)
    return min(n, b=2)
---
@native()
#! a function that may depart returns an object or nothing
def f(n: I64) -> I64:
    require(n > 2)
    return n
---
@native()
def f(n: I64) -> I64:
    #! assigns to one name at a time: a = b = n
    a = b = n
---
@native()
def f(n: I64) -> I64:
    #! assigns to a name, a field or an item: a, b = n, n
    a, b = n, n
---
@native()
def f(n: I64) -> I64:
    x = n
    #! x is I64 before the loop's body and F64 after
    while n > 2:
        x = 1.5
    return n
---
@native()
def f(n: I64) -> I64:
    #! not a comparison of the subset for Address: thread() is None
    return thread() is None
---
@native()
def f(words: Words, n: I64) -> I64:
    #! Words has no field z: words.z
    return words.z
---
@native()
def f(words: Words, n: I64) -> I64:
    #! Words has no field rows that can be assigned: words.rows = n
    words.rows = n
---
@native()
def f(words: Words, n: I64) -> I64:
    #! 1.5 is no I64: 1.5
    words.k = 1.5
---
@native()
def f(words: Words, n: I64) -> I64:
    #! not a memory order: 3
    words.count.store(n, 3)
---
@native()
def f(words: Words, n: I64) -> I64:
    #! Words has no items: words[n]
    return words[n]
---
@native()
def f(words: Words, n: I64) -> I64:
    #! I64 has no method add: words.k.add(1)
    words.k.add(1)
---
@native(form=METHOD, slow="slow")
def f(words: Words, x: Object) -> Object:
    #! words hold no references: store it in an object
    words.op = new_long(3)
    return x
---
@native()
def f(words: Words, n: I64) -> I64:
    #! Words has no length: len(words)
    return len(words)
---
@native()
def f(words: Words, n: I64) -> I64:
    #! the place is computed twice, so it must call nothing
    words.rows[get(n)] += 1
---
@native()
def f(words: Words, n: I64) -> I64:
    #! a condition must be Bool or I64, not Object
    if words.op:
        n = 1
    return n
---
@native()
def f(words: Words, n: I64) -> I64:
    #! must be a number that is known when this is translated: n
    local_array(I64, n)
---
@native(form=METHOD, slow="slow")
def f(words: Words, x: Object) -> Object:
    #! Object has no field _grad: x._grad
    return x._grad
---
@native(form=METHOD, slow="slow")
def f(words: Words, x: Object) -> Object:
    #! not a comparison of the subset for Object; objects are compared by `is`
    require(x == words.op)
    return x
---
@native(form=METHOD, slow="slow")
def f(words: Words, x: Object) -> Object:
    if type(x) is Tensor:
        #! Tensor has no field _gard: x._gard
        return x._gard
    return x
---
@native(form=METHOD, slow="slow")
def f(words: Words, x: Object) -> Object:
    #! both values must be of one kind
    return x if words.k else words.k
---
@native(form=METHOD, slow="slow")
def f(words: Words, x: Object) -> Object:
    require(type(x) is dict)
    #! Maybe(Object) is no Object; it may be missing
    return x.get('a')
---
@native()
#! parameter n needs a type
def f(n) -> I64:
    return n
---
@native()
#! not a type of the subset: <class 'int'>
def f(n: int) -> I64:
    return n
---
@native()
#! parameters are positional and have no defaults
def f(n: I64 = 2) -> I64:
    return n
---
@native(form=SLOT, slow="g")
#! a slot function takes an Object, a Tuple and a Maybe(Dict)
def f(x: Object) -> Object:
    return x
---
@native(form=METHOD, slow="slow")
#! a method takes its words, which are a structure, and Objects
def f(x: Object) -> Object:
    return x
---
@native(form=METHOD, slow="slow")
#! a method or slot function returns an Object
def f(w: Words) -> I64:
    return 1
---
@native(form=SLOT, slow="gone")
#! slow='gone' is no function of the file
def f(x: Object, o: Tuple, a: Maybe(Dict)) -> Object:
    require(x is None)
    return x
---
@native()
#! rows are given to inlined functions only
def f(r: Rows(I64)) -> I64:
    return 1
---
@native()
def f(n: I64) -> Borrowed(Object):
    #! the reference would be let go of before it is returned
    return new_long(n)
---
@native(inline=True)
def g(n: I64) -> I64:
    #! an inlined function calls itself: g(n)
    return g(n)
@native()
def f(n: I64) -> I64:
    return g(n)
---
@native(inline=True)
def g(n: I64) -> I64:
    return n
@native()
def f(n: I64) -> I64:
    #! takes 1 arguments, 2 are given: g(n, n)
    return g(n, n)
"""


@pytest.mark.parametrize("text", ERRORS.split("---"), ids=lambda text: re.search("#! (.*)", text)[1])
def test_messages_name_file_line_and_text(tmp_path, text):
    with pytest.raises(NotTranslatable) as error:
        translated_text(tmp_path, text.strip("\n"))
    lines = (tmp_path / "bad.py").read_text().splitlines()
    (place,) = [k for k, line in enumerate(lines) if "#! " in line]
    wanted = lines[place].partition("#! ")[2]
    assert str(error.value).startswith(f"bad.py:{place + 2}: {wanted}")


WARNINGS = [
    (
        "require(type(x) is list)\n    y = x[0]\n    z = get_attribute(x, words.op)\n    return y",
        "6: y was read from an object; code may have run since, so keep(y) first",
    ),
    ("require(type(x) is list)\n    y = keep(x[0])\n    z = get_attribute(x, words.op)\n    return y", None),
    ("require(type(x) is tuple)\n    y = x[0]\n    z = get_attribute(x, words.op)\n    return y", None),
    ("require(type(x) is tuple)\n    y = new_long(2)\n    z = (x, y)\n    return z[1]", None),
    ("y = (x, x)[0]\n    return y", "4: y was read from an object; code may have run since, so keep(y) first"),
    (
        "require(type(x) is list)\n    y = x[0]\n    for i in range(3):\n        require(y is not x)\n"
        "        z = get_attribute(x, words.op)\n    return words.op",
        "6: y was read from an object; code may have run since, so keep(y) first",
    ),
    ("require(type(x) is list)\n    x.append(x[0])\n    return x[0]", None),
]  # fmt: skip


@pytest.mark.parametrize("body, message", WARNINGS)
def test_what_may_be_gone_is_warned_about(tmp_path, body, message):
    translation, head = translated_text(tmp_path, METHOD_HEAD + body)
    expected = []
    if message is not None:
        line, rest = message.split(":", 1)
        expected = [f"bad.py:{int(line) + head}:{rest}"]
    assert list(translation.warnings) == expected


def test_native_takes_a_form_and_a_slow_way_together():
    with pytest.raises(TypeError, match="f needs both form= and slow=, or neither"):

        @declare(form=METHOD)
        def f():
            pass


WARM = """
import sys
sys.path.insert(0, {tests!r})
import native_object_sources as sources
from weft.runtime.code import translated
from weft.runtime.replay import native
before = set(sys.modules)
code = translated.load("warm", [sources.take, sources.next_number, sources.first_slot], native.layout())
assert code.address("take") and code.call_address("weft_table_address")
new = set(sys.modules) - before
print(sorted(m for m in new if m == "ast" or "llvmlite" in m or m == "weft.compiler.translate.translate"))
print("weft.compiler.translate.writer" in sys.modules, "llvmlite.binding" in sys.modules)
"""


def test_a_warm_start_needs_neither_the_translator_nor_llvm(tmp_path):
    environment = {**os.environ, "WEFT_CACHE_DIR": str(tmp_path / "cache"), "WEFT_CACHE": "1"}
    text = WARM.format(tests=os.path.dirname(os.path.abspath(__file__)))

    def run():
        done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    cold, warm = run(), run()
    assert cold[1].split() == ["True", "True"]
    assert warm == ["[]", "False False"]
