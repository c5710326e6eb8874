"""Where in scratch memory the values between native steps lie: of those that are never there at once, in one place.

steps   a = f(x)   b = g(a)   c = h(b)          b is written while a is still read; c may lie where a was
"""


def places_between(steps, n_bytes, reserve):
    """slot -> address, of the slots that n_bytes has the sizes of. `steps` are in the order in which they run;
    reserve(n_bytes) gives memory that is used for nothing else."""
    last = {place.slot: k for k, step in enumerate(steps) for place in step.places}
    found, free = {}, []
    for k, step in enumerate(steps):
        slots = [slot for slot in dict.fromkeys(place.slot for place in step.places) if slot in n_bytes]
        for slot in slots:
            if slot not in found:
                found[slot] = _taken(free, _whole_lines(n_bytes[slot]), reserve)
        for slot in slots:
            if last[slot] == k:
                _give_back(free, found[slot], found[slot] + _whole_lines(n_bytes[slot]))
    return found


def _whole_lines(n_bytes):
    return -(-n_bytes // 64) * 64


def _taken(free, n_bytes, reserve):
    """The beginning of the smallest free stretch that is long enough, or of new memory."""
    fitting = [stretch for stretch in free if stretch[1] - stretch[0] >= n_bytes]
    if not fitting:
        return reserve(n_bytes)
    start, end = min(fitting, key=lambda stretch: stretch[1] - stretch[0])
    free.remove((start, end))
    if end > start + n_bytes:
        free.append((start + n_bytes, end))
    return start


def _give_back(free, start, end):
    """Stretches that meet become one."""
    for one in [one for one in free if one[1] == start or one[0] == end]:
        free.remove(one)
        start, end = min(start, one[0]), max(end, one[1])
    free.append((start, end))
