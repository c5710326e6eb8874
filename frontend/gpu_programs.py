"""The programs of a function, its gradients and its products with the Hessian, as kernels of one PTX text."""

from dataclasses import dataclass

from .c_calls import formulas_by_slot, packed_numbers
from .c_functions import Known, known, programs_of
from .compiler.gpu import GpuProgram, NotForGpu, compile_for_gpu, joined
from .runtime.code import jit


@dataclass(frozen=True, slots=True)
class Program:
    """One of them. `numbers`: its run-time numbers, as the bytes of 64-bit words; `formulas`: (which word it is,
    Formula) of those that follow from what optimizers count."""

    name: str
    known: Known
    gpu: GpuProgram
    numbers: bytes
    formulas: tuple


def made(name, function, example_args, gradients, hvp, architecture):
    """(PTX text, the Programs), as export_ptx is asked for them."""
    programs = []
    for p, _ in programs_of(function, example_args, gradients, hvp):
        found = known(f"{name}{p.ending}", p, function)
        gpu = _compiled(f"{name}{p.ending}", found)
        numbers, formulas = packed_numbers(found.run, found.followed), formulas_by_slot(found.run, found.followed)
        programs.append(Program(f"{name}{p.ending}", found, gpu, numbers, formulas))
    for p in programs:
        p.known.followed.read_again()
    return jit.ptx(joined([p.gpu.text for p in programs]), architecture), programs


def _compiled(name, found):
    try:
        return compile_for_gpu(found.graph, name=name)
    except NotForGpu as error:
        line = found.run.line_of(error.number) if error.number is not None else None
        at = f" [{line}]" if line else ""
        raise NotImplementedError(f"export_ptx: {name} cannot be run on a GPU yet: {error}{at}") from error
