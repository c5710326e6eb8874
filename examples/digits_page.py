"""The page that digits.py writes: the loss curve, the graphs, the kernels and some predictions."""

from __future__ import annotations

import platform
import textwrap
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import llvmlite
import numpy as np
from numpy.typing import NDArray

import weft
from weft import nn, visualize

if TYPE_CHECKING:
    from digits import Comparison, Digits, Training

N_IMAGES = 24
# Below this the processor's cycle counter says little.
_SHORTEST_NS = 30


def write_page(path: str, digits: Digits, compared: Comparison, probabilities: NDArray[Any]) -> None:
    """Write the page of a comparison of an eager and a compiled training (digits.py: Comparison)."""
    eager, compiled = compared.eager, compared.compiled
    sections = [
        _head(digits, compared, probabilities),
        _code_section(compared.code),
        _loss_section(eager, compiled, compared.equal),
        _graph_section(digits, compiled),
        _kernel_section(compiled),
        _image_section(digits, probabilities),
    ]
    Path(path).write_text(visualize.html_page("Handwritten digits with weft", "\n".join(sections)), encoding="utf-8")


def _machine() -> str:
    versions = f"weft {weft.weft_version}, Python {platform.python_version()}, NumPy {np.__version__}"
    where = f"{_processor()}, {weft.get_num_threads()} thread(s), {platform.system()}"
    return f"{where}; {versions}, llvmlite {llvmlite.__version__}."


def _processor() -> str:
    """Its name as Linux tells it; else the kind of machine."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _section(title: str, text: str, *parts: str) -> str:
    return f"<section><h2>{title}</h2><p>{text}</p>{''.join(parts)}</section>"


# --- numbers at the top ----------------------------------------------------------------------------------------------
def _head(digits: Digits, compared: Comparison, probabilities: NDArray[Any]) -> str:
    eager, compiled, equal = compared.eager, compared.compiled, compared.equal
    right = float((probabilities.argmax(1) == digits.test_classes.numpy()).mean())
    _, program = visualize.busiest_program(compiled.step)
    found = "loaded from disk" if program.meta["source"] == "disk" else "compiled now"
    tiles = [
        (f"{100 * right:.1f} %", f"of {len(probabilities)} held-out images right", ""),
        (f"{1 / compiled.steady_seconds:,.0f}", "training steps per second, compiled", ""),
        (f"{1 / eager.steady_seconds:,.0f}", "training steps per second, eager", ""),
        *((f"{steps:,.0f}", f"training steps per second, {name}", "") for name, steps in compared.peers.items()),
        (_duration(compiled.compile_seconds), f"until the step was native code ({found})", ""),
        (str(len(program.meta["plan"]["kernels"])), "kernels in the program of one step", ""),
        ("equal" if equal else "different", "eager and compiled loss, bit for bit", "" if equal else " bad"),
    ]
    boxes = "".join(f'<div class="tile{kind}"><b>{value}</b><span>{words}</span></div>' for value, words, kind in tiles)
    return (
        f"<h1>Handwritten digits with weft</h1>{_headline(compared)}<p>A network of three linear layers learns the "
        "1,797 digits that come with scikit-learn, once eagerly and once with its whole training step (forward, loss, "
        f"backward, update) compiled by one decorator. {escape(_machine())} Steps per second are medians, taken one "
        f'after the other: what else the machine does shows in them.</p><div class="tiles">{boxes}</div>'
    )


def _headline(compared: Comparison) -> str:
    """How many times as many steps as each of the other libraries; nothing if there is none."""
    rate = 1 / compared.compiled.steady_seconds
    ratios = [f"{rate / steps:.1f} times as many as {escape(name)}" for name, steps in compared.peers.items()]
    return f'<p class="headline">{rate:,.0f} training steps a second: {", ".join(ratios)}</p>' if ratios else ""


def _code_section(code: str) -> str:
    return _section(
        "The code",
        "What both trainings do for each batch; for the compiled one <code>wrap</code> is <code>weft.compile</code>.",
        f"<pre>{escape(textwrap.dedent(code))}</pre>",
    )


# --- loss ------------------------------------------------------------------------------------------------------------
def _loss_section(eager: Training, compiled: Training, equal: bool) -> str:
    lines = [("eager", eager.losses, 5.0), ("compiled", compiled.losses, 1.3)]
    labels = ("training step", "cross-entropy of the batch")
    charts = [visualize.line_chart(lines, *labels, log=True, width=w, height=h) for w, h in ((1190, 380), (420, 300))]
    verdict = (
        "The two curves are the same numbers: all bits of all steps agree."
        if equal
        else "<b>The two curves differ, which they must not.</b>"
    )
    wide, narrow = map(visualize.figure, charts)
    drawn = f"<div class='wide'>{wide}</div><div class='narrow'>{narrow}</div>"
    return _section("Loss", f"{verdict} The scale is logarithmic.", drawn)


# --- graphs ----------------------------------------------------------------------------------------------------------
def _graph_section(digits: Digits, compiled: Training) -> str:
    tensors = dict(compiled.model.named_parameters())
    loss = nn.CrossEntropyLoss()(compiled.model(digits.train_images[:64]), digits.train_classes[:64])
    autograd = visualize.draw_autograd(loss, {**tensors, "loss": loss}, width_px=560)
    state = compiled.optimizer.state
    momenta = {f"{name}.momentum": state[p]["momentum_buffer"] for name, p in tensors.items()}
    drawn = visualize.draw_function(compiled.step, {**tensors, **momenta}, results=("loss",), width_px=1400)
    side_by_side = (
        f"<div class='pair'><div><h3>Forward, as recorded</h3>{visualize.figure(drawn['forward'])}</div>"
        f"<div><h3>Eager autograd: loss.grad_fn</h3>{visualize.figure(autograd)}</div></div>"
    )
    return _section(
        "Graphs",
        "First what the decorator recorded. Boxes of one colour and number are computed by one kernel (a linear layer "
        "by the kernel that finishes it; its matrix product is a kernel of its own). Beside it the same forward as "
        "eager autograd's nodes. Then the backward that is derived from the recording, and the optimizer's update of "
        "every parameter. All of it is one native program. Point at a box to read its line of the graph.",
        side_by_side,
        f"<h3>Backward</h3>{visualize.figure(drawn['backward'])}",
        f"<h3>Update</h3>{visualize.figure(drawn['update'])}",
    )


# --- kernels ---------------------------------------------------------------------------------------------------------
def _kernel_section(compiled: Training) -> str:
    _, program = visualize.busiest_program(compiled.step)
    kernels = program.meta["plan"]["kernels"]
    times = visualize.kernel_times(program)
    headers = ["", "kernel", "ops", "domain", "bytes", "flops", "time, µs", "", "GB/s", "GFLOP/s", "of the roof"]
    longest = max(times, default=1) if times else 1
    rows = [_kernel_row(k, kernel, times[k] if times else None, longest) for k, kernel in enumerate(kernels)]
    if times is None:
        text = "Times need the cycle counter of an x86-64 processor; this machine has another."
    else:
        step_us, together_us = 1e6 * compiled.steady_seconds, sum(times) / 1e3
        rest = "; the rest is the Python of the step, which runs on every call" if together_us < step_us else ""
        text = (
            f"Times are medians, read from the processor's cycle counter after each kernel inside the program: "
            f"{together_us:.1f} µs together. A whole step took {step_us:.0f} µs in training{rest}. Bytes and flops are "
            f"counted from shapes. {_roof_words()}"
        )
    table = visualize.html_table(headers, rows, numbers={4, 5, 6, 8, 9, 10})
    return _section("Kernels", text, f'<div class="scrolls">{table}</div>')


def _roof_words() -> str:
    roof = visualize.machine_roof()
    memory = ", ".join(f"{rate:.0f}" for _, rate in roof.bytes_per_ns)
    return (
        "The roof is what one thread can do at most here, measured just now: "
        f"{roof.flops_per_ns['float32']:.0f} GFLOP/s, and {memory} GB/s from the nearest cache to memory. An exp or a "
        "tanh counts as one flop, so kernels full of them are far below it."
    )


def _kernel_row(k: int, kernel: dict[str, Any], time_ns: float | None, longest_ns: float) -> list[str]:
    fill, border = visualize.group_color(k)
    chip = f'<span class="chip" style="background:{fill};border-color:{border}">{k}</span>'
    words = "matrix&nbsp;product" if kernel["kind"] == "bmm" else kernel["kind"]
    cells = [
        chip,
        words,
        f"<code>{escape(' '.join(kernel['ops']))}</code>",
        f"<code>{escape('×'.join(map(str, kernel['domain'])) or 'scalar')}</code>",
        f"{kernel['n_bytes']:,}",
        f"{kernel['n_flops']:,}",
    ]
    if time_ns is None:
        return [*cells, "–", "", "–", "–", "–"]
    if time_ns < _SHORTEST_NS:
        return [*cells, f"&lt; {_SHORTEST_NS / 1e3:g}", "", "–", "–", "–"]
    bar = f'<span class="bar" style="width:{90 * time_ns / longest_ns:.0f}px;background:{border}"></span>'
    rates = [f"{kernel['n_bytes'] / time_ns:.0f}", f"{kernel['n_flops'] / time_ns:.0f}"]
    least_ns = visualize.machine_roof().least_ns(kernel["n_flops"], kernel["n_bytes"], kernel["element"])
    return [*cells, f"{time_ns / 1e3:.2f}", bar, *rates, f"{100 * least_ns / time_ns:.0f} %"]


# --- images ----------------------------------------------------------------------------------------------------------
def _image_section(digits: Digits, probabilities: NDArray[Any]) -> str:
    images, classes = digits.test_images.numpy(), digits.test_classes.numpy()
    found = probabilities.argmax(1)
    wrong = np.flatnonzero(found != classes)
    shown = [*wrong, *np.flatnonzero(found == classes)][:N_IMAGES]
    boxes = [_image(images[k], int(classes[k]), int(found[k]), float(probabilities[k].max())) for k in shown]
    text = (
        f"The network gets {len(wrong)} of {len(classes)} held-out images wrong: they come first, then some that it "
        "gets right. Percentages are the probability it gives its answer."
    )
    return _section("Predictions", text, f'<div class="images">{"".join(boxes)}</div>')


def _image(pixels: NDArray[Any], true: int, found: int, probability: float) -> str:
    right = true == found
    words = f"<b>{found}</b>" if right else f"<b>{found}</b>, but it is <b>{true}</b>"
    note = f"<small>{100 * probability:.1f} %</small>"
    address = visualize.png_image(pixels.reshape(8, 8))
    kind = "image" if right else "image wrong"
    return f'<div class="{kind}"><img alt="a handwritten {true}" src="{address}">{words}{note}</div>'


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 10 else f"{1e3 * seconds:.0f} ms"
