"""A step length that satisfies the strong Wolfe conditions (Nocedal and Wright, Numerical Optimization, 3.5 and 3.6).

    bracket:   lengths grow until two of them enclose a good one
    zoom:      the enclosure shrinks until one is good enough

The constants and the order of decisions are those of PyTorch's LBFGS, so that both evaluate the same points.
"""

from dataclasses import dataclass

import numpy as np

DECREASE, CURVATURE = 1e-4, 0.9  # c1 and c2 of the Wolfe conditions


@dataclass(frozen=True, slots=True)
class Point:
    """What is known at one step length: the loss, its gradient, and its slope along the direction."""

    length: float
    loss: float
    gradient: object
    slope: float


@dataclass(frozen=True, slots=True)
class Start(Point):
    """The Point at length 0, and what the conditions ask of others."""

    decrease: float = DECREASE
    curvature: float = CURVATURE

    def falls_too_little(self, point):
        return point.loss > self.loss + self.decrease * point.length * self.slope

    def is_flat(self, point):
        return abs(point.slope) <= -self.curvature * self.slope


def strong_wolfe(point_at, start, length, direction_size, tolerance, max_steps):
    """The point to go on from.

    point_at(length): evaluates a Point. direction_size: the largest element of the direction; the search ends where
    the enclosure times it is below `tolerance`.
    """
    points, steps = _bracket(point_at, start, length, max_steps)
    if len(points) == 1:
        return points[0]
    return _zoom(point_at, start, points, direction_size, tolerance, max_steps - steps)


def _bracket(point_at, start, length, max_steps):
    """([a good point], steps) or ([two points around one], steps)."""
    before, point = start, point_at(length)
    for step in range(max_steps):
        if start.falls_too_little(point) or step > 1 and point.loss >= before.loss:
            return [before, point], step
        if start.is_flat(point):
            return [point], step
        if point.slope >= 0:
            return [before, point], step
        bounds = point.length + 0.01 * (point.length - before.length), point.length * 10
        before, point = point, point_at(cubic_minimum(before, point, bounds))
    return [start, point], max_steps


def _zoom(point_at, start, points, direction_size, tolerance, max_steps):
    """The better end of the enclosure when it is small, or a good point in it."""
    low, near_edge = _lower(points), False
    for _ in range(max_steps):
        high = 1 - low
        if abs(points[1].length - points[0].length) * direction_size < tolerance:
            break
        length, near_edge = _trial(points, near_edge)
        point = point_at(length)
        if start.falls_too_little(point) or point.loss >= points[low].loss:
            points[high] = point
            low = _lower(points)
            continue
        if start.is_flat(point):
            return point
        if point.slope * (points[high].length - points[low].length) >= 0:
            points[high] = points[low]
        points[low] = point
    return points[low]


def _lower(points):
    return 0 if points[0].loss <= points[1].loss else 1


def _trial(points, near_edge):
    """The next length inside the enclosure, and whether it is near an edge, where a second one is moved inwards."""
    low, high = sorted(point.length for point in points)
    length = cubic_minimum(*points, (low, high))
    margin = 0.1 * (high - low)
    if min(high - length, length - low) >= margin:
        return length, False
    if not near_edge and low < length < high:
        return length, True
    return (high - margin if abs(length - high) < abs(length - low) else low + margin), False


def cubic_minimum(first, second, bounds):
    """The minimum, within bounds, of the cubic with the losses and slopes of two points, or their middle."""
    low, high = bounds
    near, far = (first, second) if first.length <= second.length else (second, first)
    # Points at the same length divide by zero, which is to give what PyTorch's tensors hold then.
    with np.errstate(all="ignore"):
        distance = np.float64(far.length - near.length)
        bend = first.slope + second.slope - 3 * (first.loss - second.loss) / np.float64(first.length - second.length)
        root_square = bend**2 - first.slope * second.slope
        if not root_square >= 0:
            return (low + high) / 2.0
        root = np.sqrt(root_square)
        fraction = (far.slope + root - bend) / (far.slope - near.slope + 2 * root)
        return float(min(max(far.length - distance * fraction, low), high))
