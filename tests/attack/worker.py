"""Runs programs in a process of its own, one seed after the other, and says on its standard output how they went.

run 17          begins with the program of seed 17
same | differs  how it ended; what differs is a file in the folder of findings
"""

import gc
import sys
import time

from random_programs import RandomProgram
from random_sharing import RandomSharing

from weft import contest, made_anew, whole_calls
from weft.runtime.record import frame_eager

from .again import RandomAgain
from .compare import difference_in, n_errors
from .in_python import difference_in_python, soon
from .many_sizes import RandomSizes
from .minimise import minimised
from .on_arrays import RandomOnArrays
from .programs import RandomAttack, RandomLoop
from .strange_programs import RandomStranger, RandomStrangerLoop
from .trainings import LongTraining
from .whole import RandomWhole

# Which kind of program a seed is, in turn.
KINDS = (
    *("attack", "stranger", "whole", "training", "arrays", "stranger"),
    *("sharing", "whole", "loop", "strange loop", "sizes", "program"),
    "again",
)
N_TRIED = 3
N_BETWEEN_FREEZES = 4
# One text is compiled many times here, and what is attacked are recorded calls.
made_anew.PAYS_AFTER = 0
contest.LOOKED_INTO_AFTER = 4  # programs are short
whole_calls.GAIN = 0.0
frame_eager.FEW = 2


def source_of(seed):
    """(kind, source) of the program of a seed."""
    kind = KINDS[seed % len(KINDS)]
    made = {
        "attack": lambda seed: _with_fewest_errors(RandomAttack, seed),
        "loop": lambda seed: _with_fewest_errors(RandomLoop, seed),
        "stranger": lambda seed: _with_fewest_errors(RandomStranger, seed),
        "strange loop": lambda seed: _with_fewest_errors(RandomStrangerLoop, seed),
        "whole": lambda seed: _with_fewest_errors(RandomWhole, seed),
        "training": LongTraining,
        "sizes": RandomSizes,
        "arrays": RandomOnArrays,
        "again": RandomAgain,
        "sharing": lambda seed: RandomSharing(seed, n_calls=24),
        "program": lambda seed: RandomProgram(2 * seed + 1, 4 + seed % 12),
    }
    source = made[kind](seed).source
    if "compiled_twin" in source:
        source = source.replace("yield type(error).__name__", "yield said(error)")
        source = source.replace("import weft\n", "from attack.compare import said\n\nimport weft\n", 1)
    return kind, source


def _with_fewest_errors(kind, seed):
    """Calls that fail show little: of a few programs the first in which eager mode hardly fails, or fails least."""
    tried = []
    for k in range(N_TRIED):
        made = kind(N_TRIED * seed + k)
        tried.append((n_errors(made.source), k, made))
        if tried[-1][0] <= 1:
            break
    return min(tried)[2]


def outcome(source, find=difference_in):
    """What differs, or None; an error that is no difference (of the comparison, of compiling) counts as one."""
    try:
        return find(source)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def source_of_eager(seed):
    """The same of programs that are about eager mode, which in Python does what native code does."""
    return source_of(seed) if seed % 4 == 3 else ("again", RandomAgain(seed).source)


def _natively():
    soon()
    return difference_in_python


def _beside_torch():
    import torch

    from .beside_torch import difference_beside_torch

    torch.set_num_threads(1)
    return difference_beside_torch


# How a program is run a second time, by the name of the option.
FINDS = {"compiled": lambda: difference_in, "torch": _beside_torch, "python": _natively}


def program_of(seed, beside):
    """(kind, source) of what a seed means where programs run a second time in this way."""
    return (source_of_eager if beside == "python" else source_of)(seed)


def attack(seed, folder, beside, find):
    """Whether the program of this seed does the same both times. If not, a smaller one that does not is kept."""
    kind, source = program_of(seed, beside)
    difference = outcome(source, find)
    if difference is None:
        return True
    raised = difference.split(":")[0]
    small = minimised(source, lambda text: _is_alike(outcome(text, find), difference))
    said = "".join(f"# {line}\n" for line in (outcome(small, find) or difference).split("\n"))
    (folder / f"{kind}_{seed}.py").write_text(f"# {kind}, seed {seed}: {raised}\n{said}\n{small}")
    (folder / f"{kind}_{seed}_whole.py").write_text(source)
    return False


def _is_alike(found, difference):
    """Whether a smaller program differs as the larger one does, and not because a name is gone."""
    unnamed = "NameError" in (found or "") and "NameError" not in difference
    return found is not None and found.split(" ")[0] == difference.split(" ")[0] and not unnamed


def _freeze():
    """Programs collect garbage, and count tensors, by looking at all objects there are: of those that are no
    program's, modules and what they have learned, there are a hundred thousand."""
    gc.collect()
    gc.freeze()


def work(first, folder, seconds, beside):
    find = FINDS[beside]()
    deadline = time.monotonic() + seconds
    seed = first
    while time.monotonic() < deadline:
        print("run", seed, flush=True)
        print("same" if attack(seed, folder, beside, find) else "differs", flush=True)
        seed += 1
        if (seed - first) % N_BETWEEN_FREEZES == 1:
            _freeze()
    sys.stdout.flush()
