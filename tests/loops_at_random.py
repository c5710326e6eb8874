"""Loops over states, rows and weights, made at random (test_compiled_loops.py, test_loops_differentiated_later.py)."""

import random

import weft

OPS = (weft.tanh, weft.sin, lambda a: a * 0.5, lambda a: 1 - a, weft.sigmoid)
PAIRS = (weft.add, weft.sub, weft.mul, weft.maximum, lambda a, b: a @ b.T @ a)


def loop_at_random(seed, weights, most_ops):
    """A function of rows x, of shape (n, 3, 4), to what the steps give, stacked, and the states after the last."""
    draw = random.Random(seed)
    plan = [
        (draw.choice(OPS), draw.choice(PAIRS), [draw.randrange(9) for _ in range(2)])
        for _ in range(draw.randint(2, most_ops))
    ]
    order, axis, n_states, kept = draw.choice([1, -1]), draw.randrange(3), draw.randint(1, 3), draw.randrange(3)

    def run(x):
        states = [weights[0] * (k + 1) for k in range(n_states)]
        outputs = []
        for row in list(x)[::order]:
            known = [*states, row, weights[1]]
            for op, pair, (a, b) in plan:
                known.append(op(pair(known[a % len(known)], known[b % len(known)])))
            states = known[-n_states:]
            outputs.append(known[-1 - kept % len(plan)])
        return weft.stack(outputs, axis), states

    return run
