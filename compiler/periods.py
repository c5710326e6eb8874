"""Where a list repeats itself."""

# So many places of the same token are tried as the beginning of the next repetition, none further on than that.
_MOST_PERIODS, _LONGEST = 32, 4000


def repeated(tokens, least):
    """(start, period, count) of stretches in which `period` tokens stand `count` times, or `least` times or more, one
    after the other. From the front, of all that begin at a place the one that reaches furthest.

    a b c x y x y x y d  ->  (3, 2, 3)
    """
    following, seen = [None] * len(tokens), {}
    for k in reversed(range(len(tokens))):
        following[k], seen[tokens[k]] = seen.get(tokens[k]), k
    at, found, ends = 0, [], {}
    while at < len(tokens):
        period, count = _longest(tokens, at, following, least, ends)
        if count:
            found.append((at, period, count))
        at += max(period * count, 1)
    return found


def _longest(tokens, at, following, least, ends):
    """(period, count) of the longest repetition that begins at a place, (0, 0) if there is none. ends: by period, how
    far tokens are those one period before, from places that have been tried; from a later place of such a stretch they
    are so just as far. Compared again, what repeats itself less than `least` times would take its square."""
    best, place = (0, 0), following[at]
    for _ in range(_MOST_PERIODS):
        if place is None or place - at > _LONGEST:
            break
        period = place - at
        end = ends.get(period, 0)
        if end < place:
            end = ends[period] = _end_of(tokens, place, period)
        count = (end - at) // period
        if count >= least and count * period > best[0] * best[1]:
            best = period, count
        place = following[place]
    return best


def _end_of(tokens, place, period):
    """The first place from here on whose token is not the one a period before."""
    while place < len(tokens) and tokens[place] == tokens[place - period]:
        place += 1
    return place
