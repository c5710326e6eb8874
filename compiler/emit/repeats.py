"""Where a program does the same over and over: steps of a recurrence, layers of equal shape."""

# Fewer steps than this are not worth a loop: written one after the other, their addresses are constants in the code.
_LEAST_STEPS, _LEAST_COUNT = 64, 4
# Two places are compared if this many steps from there are the same.
_GRAM = 8
# Steps in one function.
_MOST_STEPS = 128


def repeats(tokens):
    """(start, period, count) of the stretches in which `period` tokens stand `count` times one after the other.

    a b c x y x y x y x y d  ->  (3, 2, 4)      if four times two were enough

    From the front, the first that is long enough wins. The time is linear: how far a period reaches is kept.
    """
    numbers = {}
    numbers = [numbers.setdefault(token, len(numbers)) for token in tokens]
    periods, known, found, start = _periods(numbers), {}, [], 0
    while start < len(numbers):
        period = periods[start]
        count = _length(numbers, start, period, known) // period if period else 0
        if count >= _LEAST_COUNT and count * period >= _LEAST_STEPS:
            found.append((start, period, count))
            start += count * period
        else:
            start += 1
    return found


def _periods(numbers):
    """Per place, how far it is to the next place that begins the same; 0 if there is none."""
    periods, seen = [0] * len(numbers), {}
    for k in reversed(range(len(numbers))):
        gram = tuple(numbers[k : k + _GRAM])
        periods[k] = seen.get(gram, k) - k
        seen[gram] = k
    return periods


def _length(numbers, start, period, known):
    """How many tokens from `start` on repeat with this period. `known`: period -> (from, to) where that is known."""
    first, last = known.get(period, (0, -1))
    if not first <= start <= last:
        last = start
        while last + period < len(numbers) and numbers[last] == numbers[last + period]:
            last += 1
        known[period] = start, last
    return last - start + period


def packed(steps):
    """The steps as lists of stretches (steps, period or None), a list for each function."""
    functions, n_steps = [[]], 0
    for stretch, period in _stretches(steps):
        length = period or len(stretch)
        if n_steps and n_steps + length > _MOST_STEPS:
            functions.append([])
            n_steps = 0
        functions[-1].append((stretch, period))
        n_steps += length
    return functions


def _stretches(steps):
    """(steps, period) of repeated stretches; (at most _MOST_STEPS steps, None) between them."""
    at = 0
    for start, period, count in [*repeats([s.token for s in steps]), (len(steps), 0, 0)]:
        for k in range(at, start, _MOST_STEPS):
            yield steps[k : min(k + _MOST_STEPS, start)], None
        at = start + period * count
        if count:
            yield steps[start:at], period
