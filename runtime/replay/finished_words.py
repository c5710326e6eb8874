"""What native code knows of the backward of finished usual calls (finished_backward.py, finished_nodes.py,
finished_walk.py).

    Words --sources--> Source: an input of the program that differs from call to call
          --gradients--> Gradient: an output, and the leaf that it is for

`Words` are those of one OutsideBackward.
"""

from ...compiler.translate.kinds import (
    F64,
    I32,
    I64,
    Address,
    Bool,
    Dict,
    Function,
    Maybe,
    Object,
    Rows,
    Steals,
    Struct,
    Tuple,
)
from ..eager.eager_words import ArrayObject
from ..eager.eager_words import Words as EagerWords


class Source(Struct):
    """An input of the program that differs from call to call: where it is, its word in the table, and what it is."""

    kind: I64
    place: I64
    word: I64
    dtype: Object
    shape: Rows(I64)
    strides: Rows(I64)  # none if it is row-major


class Number(Struct):
    position: I64
    is_float: Bool


class Gradient(Struct):
    """leaf: None if it differs from call to call; then it is in this place. pool: arrays that were made for it.
    position: which gradient it is."""

    leaf: Object
    place: I64
    dtype: Object
    ndim: I64
    shape: Address
    pool: Object
    position: Object


class Count(Struct):
    value: I64


class Words(Struct):
    """Of one OutsideBackward. present: the numbers of the results; ones: the cotangent of each that has one element.
    is_whole: whether these are all. after: what a call says of itself that was freed -> what it says after this.
    inner: for each tensor that differs from call to call its position among the leaves that get gradients, or None."""

    slow_backward: Object
    slow_gradients: Object
    slow_cotangents: Object
    slow_node: Object
    slow_begin: Object
    present: Rows(I64)
    is_whole: Bool
    after: Dict
    ones: Rows(Object)
    watched: Rows(Object)
    sources: Rows(Source)
    gradients: Rows(Gradient)
    positions: Rows(Number)
    numbers_at: I64
    floats: Rows(F64)
    integers: Rows(I64)
    program: Function((Address,), I64)
    table: Rows(I64)
    table_at: Address
    first_output: I64
    arena: Address
    arena_bytes: I64
    count: Count
    nothing: Tuple
    array_class: Object
    new_array: Function((Object, Steals(Object), I32, Address, Address, Address, I32, Address), Maybe(ArrayObject))
    null: Address
    zero: Object
    summed: Tuple
    inner: Rows(Object)
    n_results: Object
    eager: EagerWords
