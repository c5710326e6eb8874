"""Memory that a NumPy array comes to show after a compiled call, and that is written to before its backward
(runtime/state/exposure.py: LentSince)."""

import pytest
from compiled_twin import assert_same, leaf

import weft
from weft.runtime.state import exposure


def kept_apart(x, w):
    return (x.abs() ** 0.5 * w).sum(1)


def result_that_is_read(x, w):
    e = x.exp()
    return e, (e * w).tanh()


def parts_and_weights(x, w):
    return x[1:].sin() * w, x.softmax(1)


LENT = {
    "argument": lambda x, w, results: x,
    "parameter": lambda x, w, results: w,
    "first result": lambda x, w, results: results[0],
    "last result": lambda x, w, results: results[-1],
    "row": lambda x, w, results: x[0],
}


@pytest.mark.parametrize("way", ["backward", "grad", "create_graph", "twice", "of each result", "reads only"])
@pytest.mark.parametrize("lent", LENT)
@pytest.mark.parametrize("function", [kept_apart, result_that_is_read, parts_and_weights])
def test_memory_that_is_lent_and_written_to_after_the_call(function, lent, way):
    """Nodes of eager mode find what has been written in what they have saved, and only there: |x| is a value of its
    own, which a program computes again from x."""

    def scenario(compile):
        f, w = compile(function), leaf(4)
        for _ in range(6):
            x, w.grad = weft.randn(3, 4, requires_grad=True), None
            results = f(x, w)
            results = results if isinstance(results, tuple) else (results,)
            array, loss = LENT[lent](x, w, results).detach().numpy(), sum(r.sum() for r in results)
            if way != "reads only":
                array[...] = array * 0.5 + 1
            if way in ("backward", "reads only"):
                loss.backward()
            elif way == "twice":
                loss.backward(retain_graph=True)
                array += 1
                loss.backward()
            elif way == "of each result":
                results[-1].sum().backward(retain_graph=True)
                array *= 2
                results[0].sum().backward()
            else:
                found = weft.autograd.grad(loss, [x, w], create_graph=way == "create_graph")
                yield found
                if way == "create_graph":
                    sum(g.square().sum() for g in found).backward()
            del array  # or the next call would read a copy of the parameter
            yield results, x.grad, w.grad

    assert_same(scenario)


def test_large_memory_that_is_written_to_after_the_call():
    def scenario(compile):
        f = compile(lambda x: x.abs() ** 0.5)
        for _ in range(3):
            x = weft.randn(exposure.MOST_BYTES // 4 + 3, requires_grad=True)
            y = f(x)
            x.detach().numpy()[:7] = 1.0
            y.sum().backward()
            yield x.grad[:9]

    assert_same(scenario)


def test_what_has_only_been_looked_at_leaves_a_backward_compiled():
    f = weft.compile(lambda x: x.abs() ** 0.5)
    for _ in range(4):
        x = weft.randn(3, requires_grad=True)
        y = f(x)
        x.detach().numpy().sum()
        y.sum().backward()
    assert "through a NumPy array" not in f.explain()
    y = f(x)
    x.detach().numpy()[0] = 1.0
    y.sum().backward()
    assert "memory that it reads, written to through a NumPy array since" in f.explain()
