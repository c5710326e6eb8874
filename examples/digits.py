"""Handwritten digits, learned eagerly and compiled

A network learns the 1,797 digits that come with scikit-learn.

    python examples/digits.py            or `make demo`, which installs what it needs first

Both trainings start from the same seed and take the same steps. At the end their loss curves are compared bit for bit
(the exit status is 1 if one bit differs) and a page, weft-demo.html, shows what happened. Where PyTorch or JAX are
installed, they take the same steps beside it.
"""

import argparse
import inspect
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from digits_page import write_page
from digits_peers import steps_per_second
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tqdm import tqdm

import weft
from weft import Tensor, nn
from weft.utils.data import DataLoader, TensorDataset

BATCH_SIZE = 64
Step = Callable[[Tensor, Tensor], Tensor]
# 22 batches of 64 remain to train on, so that every step has the same shapes.
N_TEST = 389
# Steps that may record and compile: the first, and the second, which finds momentum where the first found none.
N_WARM = 3


@dataclass(frozen=True)
class Digits:
    """Images as rows of 64 grey values between 0 and 1, classes as int64; a stratified split that never changes."""

    train_images: Tensor
    train_classes: Tensor
    test_images: Tensor
    test_classes: Tensor


@dataclass(frozen=True)
class Training:
    """A finished training: the loss and the seconds of every step, and what was trained."""

    losses: list[float]
    seconds: list[float]
    step: Any  # a Step, compiled or as it was written
    model: nn.Module
    optimizer: weft.optim.Optimizer

    @property
    def steady_seconds(self) -> float:
        """Median seconds of a step, once everything is compiled and loaded."""
        return statistics.median(self.seconds[N_WARM:])

    @property
    def compile_seconds(self) -> float:
        """What the first steps took beyond what such steps take later."""
        return sum(self.seconds[:N_WARM]) - N_WARM * self.steady_seconds


@dataclass(frozen=True)
class Comparison:
    """Both trainings, whether their losses have the same bits, other libraries' steps in a second, and the code."""

    eager: Training
    compiled: Training
    equal: bool
    peers: dict[str, float]
    code: str


def load() -> Digits:
    images, classes = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)
    parts = train_test_split(images, classes, test_size=N_TEST, stratify=classes, random_state=0)
    train_images, test_images, train_classes, test_classes = (weft.from_numpy(np.ascontiguousarray(p)) for p in parts)
    return Digits(train_images, train_classes, test_images, test_classes)


def make_model() -> nn.Module:
    weft.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))


def train(digits: Digits, epochs: int, wrap: Callable[[Step], Any], name: str) -> Training:
    """Train a fresh network. `wrap` is weft.compile, or leaves the step as it is."""
    model = make_model()
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    criterion = nn.CrossEntropyLoss()

    @wrap
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    order = weft.Generator().manual_seed(1)
    batches = DataLoader(
        TensorDataset(digits.train_images, digits.train_classes), BATCH_SIZE, shuffle=True, generator=order
    )
    losses: list[float] = []
    seconds: list[float] = []
    # Of its own accord tqdm looks at the clock ever more seldom, and the bar of quick steps after slow ones would jump.
    # The rate that it averages would stay at that of the slow ones: the last epoch's is shown.
    bar: dict[str, Any] = {
        "file": sys.stdout,
        "miniters": 1,
        "bar_format": "{desc}{percentage:4.0f}% |{bar}| {n_fmt}/{total_fmt}{postfix}",
    }
    with tqdm(total=epochs * len(batches), desc=f"{name:9}", **bar) as progress:
        for _ in range(epochs):
            for x, y in batches:
                started = time.perf_counter()
                loss = step(x, y)
                seconds.append(time.perf_counter() - started)
                losses.append(loss.item())
                progress.update()
            rate = len(batches) / sum(seconds[-len(batches) :])
            progress.set_postfix_str(f"{rate:,.0f} steps/s, loss {losses[-1]:.4f}")
    return Training(losses, seconds, step, model, optimizer)


def probabilities(model: nn.Module, images: Tensor) -> NDArray[Any]:
    """Probabilities of the ten classes, one row per image."""
    with weft.no_grad():
        return nn.functional.softmax(model(images), dim=1).numpy()


def same_bits(first: list[float], second: list[float]) -> bool:
    """Whether two loss curves are equal in every bit of every step."""
    return np.array_equal(np.array(first).view(np.int64), np.array(second).view(np.int64))


def programs_of(training: Training) -> list[Any]:
    return [program for recording in training.step.recordings for program in recording.programs]


def where_from(programs: list[Any]) -> str:
    """Whether the machine code was made now or found on disk, in words."""
    from_disk = sum(program.meta["source"] == "disk" for program in programs)
    if from_disk == len(programs):
        return "loaded from the disk cache"
    return "compiled now" if not from_disk else f"{from_disk} of {len(programs)} programs from the disk cache"


def report(digits: Digits, eager: Training, compiled: Training, equal: bool, peers: dict[str, float]) -> list[str]:
    """Lines of the summary. peers: steps in a second of other libraries, by their names."""
    found = probabilities(compiled.model, digits.test_images).argmax(1)
    right = int((found == digits.test_classes.numpy()).sum())
    programs = programs_of(compiled)
    kernels = len(max(programs, key=lambda p: p.calls).meta["plan"]["kernels"])
    ratio = eager.steady_seconds / compiled.steady_seconds
    return [
        f"test accuracy      {100 * right / len(found):.1f} %, {right} of {len(found)} images held out",
        f"steps per second   eager {1 / eager.steady_seconds:,.0f}, compiled {1 / compiled.steady_seconds:,.0f} "
        f"({ratio:.1f} times)",
        *(f"{'':19}{name} {steps:,.0f}" for name, steps in peers.items()),
        f"compilation        {1e3 * compiled.compile_seconds:.0f} ms, {where_from(programs)}",
        f"kernels            {kernels} in one native program for the whole step",
        f"loss curves        {'equal bit for bit' if equal else 'DIFFERENT'}, {len(eager.losses)} steps",
    ]


def compare(digits: Digits, epochs: int, output: str) -> tuple[Comparison, Any]:
    """Train both ways, say and write to the page what came of it; the comparison and the test set's probabilities."""
    if (took := weft.fill_cache()) > 0.0:
        print(f"native code of replays and eager mode: compiled in {took:.1f} s, once per machine")
    eager = train(digits, epochs, lambda step: step, "eager")
    compiled = train(digits, epochs, weft.compile, "compiled")
    equal = same_bits(eager.losses, compiled.losses)
    peers = steps_per_second(digits, BATCH_SIZE, weft.get_num_threads())
    print("\n" + "\n".join(report(digits, eager, compiled, equal, peers)))
    compared = Comparison(eager, compiled, equal, peers, inspect.getsource(eager.step))
    found = probabilities(compiled.model, digits.test_images)
    write_page(output, digits, compared, found)
    print(f"page               {output}")
    return compared, found


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--output", default="weft-demo.html", help="where the page goes")
    options = parser.parse_args()
    compared, _ = compare(load(), options.epochs, options.output)
    return 0 if compared.equal else 1


if __name__ == "__main__":
    sys.exit(main())
