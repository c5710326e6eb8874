"""Derivatives for sizes that only the node tells (open_plans.py)."""

from itertools import count

from ...compiler.dtypes import float32, float64
from ...compiler.extent import estimated
from ...compiler.ops.comparison import cast
from ...compiler.translate.kinds import offset_of
from ..code import kernels
from ..eager.eager_halves import wide
from ..eager.eager_places import row_major
from ..eager.eager_planned import derivative_of
from ..eager.eager_steps import STRIDED, NoSteps
from ..eager.eager_words import COTANGENT, NO_RESULT, SAVED, SHOWN, WRITEABLE, Derivative, Given, Made
from ..eager.open_nodes import WAITING
from ..eager.parts import takes_part
from ..programs.fused import spend
from ..programs.open_program import open_derivative
from ..programs.rules import Rule
from .open_builder import Cells, OpenBuilder, operand, with_sizes
from .open_formulas import Tape
from .open_large import OpenProgram, strides_in_elements

COPIED_BYTES = 1 << 15  # of what has to lie in a row first
MOST_GIVEN_COPIES = 3


class OpenNodes:
    """What knows the derivative of the nodes of such calls, for each way in which cotangents lie."""

    def __init__(self, call, differentiated, row, numbers_at):
        self.call, self.differentiated, self.numbers_at, self.held = call, differentiated, numbers_at, []
        self.reads_out, self.has_saved = row.reads_out, row.reads_out or SAVED in row.kept

    def native(self, numbers, cotangent):
        """A Derivative in memory, for such numbers and a cotangent that lies like this array."""
        scope, plan, _ = self.call.opened(numbers)
        found = open_derivative(
            plan.op, plan.metas, plan.meta, plan.attributes, self.differentiated, plan.default_dtype
        )
        layout = _layout_of(cotangent, plan.meta)
        if not found.needs_program:
            try:
                return self._of_steps(found.program, scope, plan, layout)
            except NoSteps:
                pass
        return self._of_program(found, scope, plan, layout)

    def _of_steps(self, program, scope, plan, layout):
        builder, new, shown = derivative_of(plan, program, layout, OpenBuilder)
        given = self._given(builder, plan, layout)
        steps, fixed = builder.finish(new)
        cells = Cells()
        codes = {None: NO_RESULT, 0: COTANGENT, **{r: k for k, r in enumerate(new)}}
        codes |= {r: SHOWN - k for k, r in enumerate(shown)}
        facts = {"steps": steps, "fixed": fixed, "first_fixed": builder.n_given + builder.n_results}
        facts |= {"results": [codes[r] for r in program.results]}
        facts |= {"views": [_shown(cells, builder.values[r]) for r in shown]}
        made = [builder.values[r] for r in new]
        return self._in_memory(plan, scope, cells, given, made, facts, builder)

    def _of_program(self, steps, scope, plan, layout):
        """A program that does it."""
        numbers = steps.program.results
        if steps.shows or any(r is not None and 0 < r < 2 + len(plan.metas) for r in numbers):
            raise NoSteps("a result that is or shows what was saved")
        computed = tuple(bool(r) for r in numbers)
        rule = Rule(plan.op, plan.metas, plan.meta, plan.attributes, plan.default_dtype, computed)
        spend(rule.kind, WAITING * sum(map(estimated, steps.sizes)))
        strides = strides_in_elements([layout], [plan.meta])
        program = OpenProgram(rule, strides, scope, steps, self.numbers_at)
        self.held.append(program)
        cells, codes = Cells(), count()
        given = [
            Given(is_read=k == 0 or k in program.arrays, what=operand(m, kind, layout if k == 0 else None))
            for k, m, kind in _described(plan)
        ]
        facts = {"results": [NO_RESULT if r is None else next(codes) if r else COTANGENT for r in numbers]}
        made = [m for m, is_made in zip(plan.metas, computed) if is_made]
        return self._in_memory(plan, scope, cells, given, made, facts | program.facts, None, program.written)

    def _in_memory(self, plan, scope, cells, given, made, facts, builder, written=()):
        """The Derivative of these facts. made: values or Metas of the arrays that it makes."""
        if given[1].is_read and not self.reads_out:
            raise NoSteps("the output, which such nodes do not keep")
        derivative = Derivative(
            given=given,
            made=[Made(dtype=x.dtype.numpy, ndim=len(x.shape), shape=cells.address_of(x.shape)) for x in made],
            has_saved=self.has_saved,
            is_open=True,
            is_of_part=takes_part(plan.op) and len(plan.metas) == 1 and plan.meta.dtype in (float32, float64),
            types=[m.dtype for m in plan.metas],
            **facts,
        )
        return with_sizes(derivative, Tape(scope.extents), scope, cells, builder, written)

    def _given(self, builder, plan, layout):
        return [_given(builder, k, m, kind, layout if k == 0 else None) for k, m, kind in _described(plan)]


def _described(plan):
    """(position, Meta, class) of what a derivative is given."""
    return zip(count(), (plan.meta, plan.meta, *plan.metas), (None, None, *plan.kinds))


def _given(builder, k, meta, kind, layout):
    is_read = k == 0 or builder.reads(k)
    facts = {"is_read": is_read, "what": operand(meta, kind, layout)}
    if is_read and not meta.weak and layout is None:
        n_bytes = meta.dtype.size_bytes
        for n in meta.shape:
            n_bytes = n_bytes * n
        copied_to = builder.reserve(COPIED_BYTES) if n_bytes <= COPIED_BYTES and k <= MOST_GIVEN_COPIES else None
        if copied_to is not None:
            facts |= {"copied_to": copied_to, "item_bytes": meta.dtype.size_bytes}
            types, lying = (wide(meta.dtype),), (meta.dtype,) * 2 if meta.dtype.is_half else ()
            address = kernels.elementwise_address(cast, types, {"dtype": types[0]}, (STRIDED,), lying=lying)
            facts["copier"] = address
    return Given(**facts)


def _shown(cells, value):
    """A view of the cotangent. Nobody is to write where several elements are one."""
    size = value.dtype.size_bytes
    is_expanded = any(s.__class__ is int and s == 0 and n != 1 for n, s in zip(value.shape, value.strides))
    flags = 0 if is_expanded else WRITEABLE
    return cells.view(value, [s * size for s in value.strides], value.offset, flags)


def _layout_of(array, meta):
    """The strides of a cotangent that is not row-major: that of another order of its dimensions, some of them
    expanded."""
    if array.flags.c_contiguous:
        return None
    order = sorted(range(array.ndim), key=lambda d: (-array.strides[d], d))
    moving = [d for d in order if array.strides[d]]
    strides = dict(zip(moving, row_major(tuple(meta.shape[d] for d in moving))))
    found = tuple([strides.get(d, 0) * meta.dtype.size_bytes for d in range(array.ndim)])
    if tuple(map(estimated, found)) != array.strides:
        raise NoSteps("a cotangent that lies in another way")
    return found


def chained(derivatives):
    """Each is followed by the next."""
    for one, other in zip(derivatives, derivatives[1:]):
        one.words[offset_of(Derivative, "following") // 8] = id(other.words)
