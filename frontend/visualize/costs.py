"""What the kernels of a program cost, as text for `explain`: measured, and held against the machine's roof."""

from ..explain import microseconds
from ..runtime.code.threads import get_num_threads
from .roof import machine_roof
from .timing import kernel_times


def kernel_costs(program, estimates):
    """(a line on the whole, a text for each kernel of a program). `estimates`: what is said of each without times."""
    try:
        times = kernel_times(program)
    except ValueError as error:
        return f"times are not measured: {error}", estimates
    if times is None:
        return "times are not measured: this processor has no counter of cycles that programs may read", estimates
    n_threads = get_num_threads() if program.has_team else 1
    texts = [
        f"{about}, measured {microseconds(time)}{_share(kernel, time, n_threads)}"
        for kernel, about, time in zip(program.meta["plan"]["kernels"], estimates, times)
    ]
    return f"measured on {n_threads} thread(s): {microseconds(sum(times))}; {_roof_line()}", texts


def _share(kernel, time, n_threads):
    least = machine_roof().least_ns(kernel["n_flops"], kernel["n_bytes"], kernel["element"], n_threads)
    return f", {100 * least / time:.0f} % of the roof" if time > 0 and least else ""


def _roof_line():
    roof = machine_roof()
    arithmetic = ", ".join(f"{rate:.0f} Gflop/s of {element}" for element, rate in roof.flops_per_ns.items())
    memory = ", ".join(f"{rate:.0f} GB/s within {_size(size)}" for size, rate in roof.bytes_per_ns)
    return f"the roof of a thread: {arithmetic}, {memory}"


def _size(n_bytes):
    return f"{n_bytes >> 20} MB" if n_bytes >= 1 << 20 else f"{n_bytes >> 10} kB"
