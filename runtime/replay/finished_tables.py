"""The backward of the finished calls of a function as native functions: their words, filled in from what its calls have
in common."""

import functools
from collections import namedtuple
from math import prod

import numpy as np

from ...compiler.storage import ones
from ...compiler.translate.kinds import offset_of
from ..code import translated
from ..code.packing import Packed
from ..state.aligned import address_of
from . import eager_native, finished_backward, finished_nodes, finished_walk
from . import native as objects
from .finished_calls import NativeEnd, layout_of_calls
from .finished_words import Count, Gradient, Number, Source, Words
from .object_layout import layout_of_objects, places_of
from .usual_late import LateNode, run_in_sweep
from .usual_outside import KNOWN


class NativeBackward:
    """backward, gradients and cotangents for calls of an OutsideBackward, by a program from all results; of one from
    some results, backward alone."""

    def __init__(self, outside, present, program, sources, positions, slow_backward):
        """sources: (kind, place or array) of every input of the program; positions: which of the reached its outputs
        are for."""
        self._held = [program, sources]
        table, _ = program.own_table({})
        first = program.first_array
        for k, (kind, array) in enumerate(sources):
            if kind == KNOWN:
                program.places.require_one(k, array)
                table[first + k] = id(array)
        metas, positions_of = outside.step.metas_so_far(), {place: k for k, place in outside.inner}
        words = Words(
            slow_backward=slow_backward,
            slow_gradients=_not_found,
            slow_cotangents=_not_found,
            slow_node=_not_found,
            slow_begin=_not_found,
            present=list(present),
            is_whole=present == outside.needed.differentiable,
            after=outside.afters(present),
            ones=[_one(metas[vid]) for vid in present],
            watched=outside.watched,
            sources=[
                _source(program.places[k], kind, place, first + k)
                for k, (kind, place) in enumerate(sources)
                if kind != KNOWN
            ],
            gradients=[self._gradient(outside, program, k, position) for k, position in enumerate(positions)],
            positions=[Number(position=position, is_float=code == -3) for position, code in program.numbers],
            floats=[0.0] * len(program.numbers),
            program=program.address,
            table=table.view(np.int64).tolist(),
            first_output=first + len(program.inputs),
            arena=address_of(program.native_arena[0]),
            arena_bytes=program.native_arena[1],
            count=Count(),
            nothing=(),
            zero=0,
            summed=outside.summed,
            inner=[positions_of.get(place) for place in range(len(outside.inside))],
            n_results=len(outside.needed.differentiable),
            array_class=np.ndarray,
            new_array=objects._new_array_address(),
        )
        self._packed = Packed(words)
        self.words = self._packed.words
        self._point_to(program, self.words)
        functions = [objects.definition_of(name, _code().address(f"weft_{name}")) for name in _NAMES]
        self.backward, self.gradients, self.cotangents, self.node, self.begin, self.in_sweep = [
            objects.builtin(definition, self.words) for definition in functions
        ]

    def _gradient(self, outside, program, k, position):
        leaf, (shape, dtype) = outside.leaves[position], program.outputs[k]
        dims = np.array(shape, np.int64)
        self._held.append(dims)
        pool = program.pools[k]
        place = outside.places[outside.reached[position]] if leaf is None else -1
        return Gradient(
            leaf=leaf, place=place, dtype=dtype, ndim=len(shape), shape=address_of(dims), pool=pool, position=position
        )

    @staticmethod
    def _point_to(program, words):
        """What the words know by address: floats and integers are one memory, which the table tells the program of."""
        at = {name: offset_of(Words, name) // 8 for name in _BY_ADDRESS}
        words[at["table_at"]] = words[at["table"]]
        words[at["integers"] : at["integers"] + 2] = words[at["floats"] : at["floats"] + 2]
        words[at["numbers_at"]] = words[at["floats"]]
        words[at["count"]] = program.counter.buffer_info()[0]
        words[at["eager"]] = eager_native.words_address()


_BY_ADDRESS = "floats", "integers", "numbers_at", "table", "table_at", "count", "eager"
_NAMES = (
    *("finished_backward", "finished_gradients", "finished_cotangents", "finished_node", "finished_begin"),
    "finished_in_sweep",
)


def _one(meta):
    return ones(meta.shape, meta.dtype.numpy) if prod(meta.shape) == 1 else None


def _source(place, kind, number, word):
    strides = () if place.strides is None else [step * place.dtype.itemsize for step in place.strides]
    return Source(kind=kind, place=number, word=word, dtype=place.dtype, shape=place.shape, strides=strides)


def _not_found(*_):
    """Python finds them."""
    return None


def take_over(outside, present, program, sources, positions, slow_backward):
    """What does the backward of such calls from now on; None if there is no native code."""
    if any(place.is_written for place in program.places.items) or eager_native.install() is None:
        return None
    eager_native.let_run(LateNode, run_in_sweep)
    return NativeBackward(outside, present, program, sources, positions, slow_backward)


def end_natively(whose, slow_open):
    """A NativeEnd, filled in from that; None if there is no native code."""
    return None if eager_native.install() is None else NativeEnd(whose, slow_open)


_FUNCTIONS = [
    finished_backward.backward,
    finished_backward.gradients,
    finished_backward.cotangents_of_leaves,
    finished_nodes.late_node,
    finished_walk.begin,
    finished_walk.in_sweep,
]


def part(layout):
    """What is translated: its name, functions and layout."""
    places = layout_of_calls(layout)._asdict() | places_of(LateNode, finished_nodes.LATE_FIELDS, "late")
    return "finished backward", _FUNCTIONS, namedtuple("LateLayout", places)(**places)


@functools.cache
def _code():
    return translated.load(*part(layout_of_objects()))
