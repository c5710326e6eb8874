"""What native code of eager mode (eager_backward.py) is told of the derivative of a plan: steps, or a program."""

from functools import partial
from math import prod

import numpy as np

from ...compiler.ops.comparison import cast
from ...compiler.translate.kinds import offset_of
from ..code import kernels
from ..code.packing import Packed
from ..eager.eager_complex import as_moved
from ..eager.eager_halves import wide
from ..eager.eager_planned import derivative_of
from ..eager.eager_steps import STRIDED, NoSteps
from ..eager.eager_words import COTANGENT, NO_RESULT, SHOWN, WRITEABLE, Derivative, Given, Made
from ..eager.parts import FEWEST_OF_MANY, is_part
from ..programs.large import results_of
from .eager_facts import operand, view
from .eager_programs import is_callable, table_of


class NativeDerivative:
    """What native code knows of a derivative. `numbers_at`: where it puts the numbers that programs are given."""

    def __init__(self, recording, layout, numbers_at):
        plan, program = recording.plan, recording.derivative[0]
        self.held = []  # what the words are the addresses of
        reads, made, codes, facts = self._found(recording, layout, numbers_at)
        metas = zip((plan.meta, plan.meta, *plan.metas), (None, None, *plan.kinds))
        self.packed = Packed(
            Derivative(
                given=[reads(k, m, kind, layout if k == 0 else None) for k, (m, kind) in enumerate(metas)],
                made=[self._made(*one) for one in made],
                results=[codes[r] for r in program.results],
                has_saved=recording.has_saved,
                released=list(recording.released),
                is_of_part=is_part(recording.plan, FEWEST_OF_MANY),
                **facts,
            )
        )

    def _found(self, recording, layout, numbers_at):
        fused = recording.derivative[0].fused
        if fused is None:
            return self._steps(recording, layout)
        try:
            return self._program(recording, layout, numbers_at)
        except NoSteps:
            if fused.is_large:
                raise
        return self._steps(recording, layout)

    def _steps(self, recording, layout):
        builder, new, shown = derivative_of(recording.plan, recording.derivative[0], layout)
        steps, fixed = builder.finish(new)
        views = [_shown(builder.values[r]) for r in shown]
        self.held += [builder, views]
        codes = {None: NO_RESULT, 0: COTANGENT, **{r: k for k, r in enumerate(new)}}
        codes |= {r: SHOWN - k for k, r in enumerate(shown)}
        made = [(builder.values[r].shape, builder.values[r].dtype.numpy) for r in new]
        facts = {"steps": steps, "fixed": fixed, "first_fixed": builder.n_given + builder.n_results}
        return partial(_given, builder), made, codes, facts | {"views": [view for view, _ in views]}

    def _program(self, recording, layout, numbers_at):
        program, roots = recording.derivative
        found, new = program.fused.programs.get(()), program.fused.results
        if found is None or layout is not None or not is_callable(found, program):
            raise NoSteps("no program that native code can call for such operands")
        if any(root is not None for root in roots) or not {None, 0, *new}.issuperset(program.results):
            raise NoSteps("a result that is or shows what was saved")
        self.held.append(found)
        codes = {None: NO_RESULT, 0: COTANGENT, **{r: k for k, r in enumerate(new)}}
        facts = table_of(found, numbers_at) | {"is_program": True}
        read = {0, *found.inputs, *facts["as_numbers"]}
        made = [(tuple(shape), dtype, results_of(tuple(shape), dtype)) for shape, dtype in found.program.outputs]
        return lambda k, *what: Given(is_read=k in read, what=operand(*what)), made, codes, facts

    def _made(self, shape, dtype, kept=None):
        extents = np.array(shape, np.int64)
        self.held.append(extents)
        return Made(dtype=dtype, ndim=len(shape), shape=extents.ctypes.data, kept=kept, extents=tuple(shape))

    def followed_by(self, other):
        """What native code tries for cotangents that lie in another way."""
        self.packed.words[offset_of(Derivative, "following") // 8] = id(other.packed.words)

    def waits(self, fused):
        """Whether the steps are taken until there is a program, which Python is asked for after some nodes."""
        at = offset_of(Derivative, "lent") // 8
        if not self.packed.words[at]:
            self.packed.words[at] = fused.lend(())
        return self.packed.words[at] != 0


def _shown(value):
    """A view of the cotangent. Nobody is to write where several elements are one."""
    size = value.dtype.size_bytes
    flags = 0 if any(s == 0 and n > 1 for n, s in zip(value.shape, value.strides)) else WRITEABLE
    return view(value, [s * size for s in value.strides], value.offset, flags)


def _given(builder, k, meta, kind, layout):
    is_read = k == 0 or builder.reads(k)
    facts = {"is_read": is_read, "what": operand(meta, kind, layout)}
    dtype = as_moved(meta.dtype)
    if is_read and not meta.weak and layout is None and not dtype.is_complex:
        copied_to = builder.reserve(prod(meta.shape) * meta.dtype.size_bytes)
        if copied_to is not None:
            facts |= {"copied_to": copied_to, "item_bytes": meta.dtype.size_bytes}
            types, lying = (wide(dtype),), (dtype,) * 2 if dtype.is_half else ()
            address = kernels.elementwise_address(cast, types, {"dtype": types[0]}, (STRIDED,), lying=lying)
            facts["copier"] = address
    return Given(**facts)
