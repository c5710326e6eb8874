"""Nodes of compiled calls (runtime/record/step_nodes.py): they can be called and have hooks, as eager ones do."""

import pytest
from compiled_twin import leaf, twin

import weft


def product(x, w):
    h = (x * w).tanh()
    return (h * w).sum(), h.t(), h


def called(compile):
    w, f = leaf(3, 4), compile(product)
    for call in range(6):
        results = f(weft.randn(3, 4), w)
        for r in results:
            yield r.grad_fn(weft.ones_like(r) * (call + 1))
        inner = results[0].grad_fn.next_functions[0][0]
        yield inner.name(), inner(weft.full((3, 4), 0.5))
        yield inner.next_functions[0][0](weft.ones(3, 4))
        results[0].backward()
        yield w.grad


def hooked(compile):
    w, f, seen = leaf(3, 4), compile(product), []
    for call in range(6):
        total, turned, h = f(weft.randn(3, 4), w)
        handle = total.grad_fn.register_hook(lambda into, out: seen.append((len(into), out)))
        total.grad_fn.next_functions[0][0].register_prehook(lambda out: (out[0] * 2.0,))
        turned.grad_fn.register_hook(lambda into, out, k=call: (into[0] * (k + 1.0),))
        if call == 3:
            handle.remove()
        (total + turned.square().sum() + h.sum()).backward()
        yield w.grad, seen


def held_alone(compile):
    w, f = leaf(3, 4), compile(product)
    for _ in range(4):
        node = f(weft.randn(3, 4), w)[2].grad_fn
        yield node.name(), node(weft.ones(3, 4))


def freed(compile):
    def step(x, w):
        h = (x * w).tanh()
        h.sum().backward()
        return h

    w, f, seen = leaf(3, 4), compile(step), []
    for _ in range(5):
        h = f(weft.randn(3, 4), w)
        h.grad_fn.register_hook(lambda into, out: seen.append(out))
        with pytest.raises(RuntimeError, match="second time"):
            h.grad_fn(weft.ones(3, 4))
        with pytest.raises(RuntimeError, match="second time"):
            h.sum().backward()
        yield h, w.grad, len(seen)


def in_flight(compile):
    def step(x, w):
        h = (x * w).tanh()
        h.grad_fn.register_hook(lambda into, out: tuple(None if g is None else g * 3.0 for g in into))
        found = h.grad_fn(weft.ones(3, 4))
        h.square().sum().backward()
        return found

    w, f = leaf(3, 4), compile(step)
    for _ in range(6):
        yield f(weft.randn(3, 4), w), w.grad


def of_a_changed_value(compile):
    def step(x, w):
        h = x * w
        h[1:].mul_(w[1:])
        h += 1.0
        return h.sin(), h

    w, f, seen = leaf(3, 4), compile(step), []
    for _ in range(5):
        wave, h = f(weft.randn(3, 4), w)
        wave.grad_fn.register_hook(lambda into, out: seen.append(into))
        h.grad_fn.register_prehook(lambda out: (out[0].clamp(-0.5, 0.5),))
        wave.sum().backward()
        yield w.grad, seen


def of_a_derivative(compile):
    def step(x, w):
        return weft.autograd.grad((x * w).sin().sum(), w, create_graph=True)[0]

    w, f = leaf(3, 4), compile(step)
    for _ in range(5):
        slope = f(weft.randn(3, 4), w)
        yield slope.grad_fn.name(), slope.grad_fn(weft.ones(3, 4))
        slope.grad_fn.register_prehook(lambda out: (out[0] * 2.0,))
        slope.sum().backward()
        yield w.grad


test_called = twin(called)
test_hooked = twin(hooked)
test_held_alone = twin(held_alone)
test_freed = twin(freed)
test_in_flight = twin(in_flight)
test_of_a_changed_value = twin(of_a_changed_value)
test_of_a_derivative = twin(of_a_derivative)
