"""The programs of PyTorch's introductions to autograd: what they print is what PyTorch prints.

The golden file holds weft's output; where PyTorch is installed its output must be the same text. Random numbers of the
originals are replaced by fixed ones, because the generators differ.
"""

import math
import re

import numpy as np
import pytest

import weft


def fixed(ns, *shape, seed=0):
    """Stands for randn."""
    return ns.tensor(np.float32(np.random.default_rng(seed).standard_normal(shape).round(3)))


def sixty_minute_blitz(ns, print):
    x = ns.ones(2, 2, requires_grad=True)
    print(x)
    y = x + 2
    print(y)
    print(y.grad_fn)
    z = y * y * 3
    out = z.mean()
    print(z, out)
    a = fixed(ns, 2, 2)
    a = (a * 3) / (a - 1)
    print(a.requires_grad)
    a.requires_grad_(True)
    print(a.requires_grad)
    b = (a * a).sum()
    print(b.grad_fn)
    out.backward()
    print(x.grad)
    x = fixed(ns, 3, seed=1).requires_grad_()
    y = x * 2
    while y.data.norm() < 1000:
        y = y * 2
    print(y)
    v = ns.tensor([0.1, 1.0, 0.0001], dtype=ns.float)
    y.backward(v)
    print(x.grad)
    print(x.requires_grad)
    print((x**2).requires_grad)
    with ns.no_grad():
        print((x**2).requires_grad)
    y = x.detach()
    print(y.requires_grad)
    print(x.eq(y).all())


def gentle_introduction(ns, print):
    a = ns.tensor([2.0, 3.0], requires_grad=True)
    b = ns.tensor([6.0, 4.0], requires_grad=True)
    Q = 3 * a**3 - b**2
    external_grad = ns.tensor([1.0, 1.0])
    Q.backward(gradient=external_grad)
    print(9 * a**2 == a.grad)
    print(-2 * b == b.grad)
    x, y = fixed(ns, 5, 5), fixed(ns, 5, 5, seed=1)
    z = fixed(ns, 5, 5, seed=2).requires_grad_()
    print(f"Does `a` require gradients?: {(x + y).requires_grad}")
    print(f"Does `b` require gradients?: {(x + z).requires_grad}")


def automatic_differentiation(ns, print):
    x = ns.ones(5)
    y = ns.zeros(3)
    w = fixed(ns, 5, 3).requires_grad_()
    b = fixed(ns, 3, seed=1).requires_grad_()
    z = ns.matmul(x, w) + b
    loss = ns.nn.functional.binary_cross_entropy_with_logits(z, y)
    print(f"Gradient function for z = {z.grad_fn}")
    print(f"Gradient function for loss = {loss.grad_fn}")
    loss.backward()
    print(w.grad)
    print(b.grad)
    z = ns.matmul(x, w) + b
    print(z.requires_grad)
    with ns.no_grad():
        z = ns.matmul(x, w) + b
    print(z.requires_grad)
    z = ns.matmul(x, w) + b
    z_det = z.detach()
    print(z_det.requires_grad)
    inp = ns.eye(4, 5, requires_grad=True)
    out = (inp + 1).pow(2).t()
    out.backward(ns.ones_like(out), retain_graph=True)
    print(f"First call\n{inp.grad}")
    out.backward(ns.ones_like(out), retain_graph=True)
    print(f"\nSecond call\n{inp.grad}")
    inp.grad.zero_()
    out.backward(ns.ones_like(out), retain_graph=True)
    print(f"\nCall after zeroing gradients\n{inp.grad}")


def fundamentals(ns, print):
    a = ns.linspace(0.0, 2.0 * math.pi, steps=25, requires_grad=True)
    print(a)
    b = ns.sin(a)
    print(b)
    c = 2 * b
    print(c)
    d = c + 1
    print(d)
    out = d.sum()
    print(out)
    print("d:")
    print(d.grad_fn)
    print(d.grad_fn.next_functions)
    print(d.grad_fn.next_functions[0][0].next_functions)
    print(d.grad_fn.next_functions[0][0].next_functions[0][0].next_functions)
    print(d.grad_fn.next_functions[0][0].next_functions[0][0].next_functions[0][0].next_functions)
    print("\nc:")
    print(c.grad_fn)
    print("\na:")
    print(a.grad_fn)
    out.backward()
    print(a.grad)
    a = ns.ones(2, 3, requires_grad=True)
    print(a)
    b1 = 2 * a
    print(b1)
    a.requires_grad = False
    b2 = 2 * a
    print(b2)
    a = ns.ones(2, 3, requires_grad=True) * 2
    b = ns.ones(2, 3, requires_grad=True) * 3
    c1 = a + b
    print(c1)
    with ns.no_grad():
        c2 = a + b
    print(c2)
    c3 = a * b
    print(c3)

    @ns.no_grad()
    def add_tensors2(x, y):
        return x + y

    print(add_tensors2(a, b))
    x = fixed(ns, 5).requires_grad_()
    y = x.detach()
    print(x)
    print(y)


def polynomial_by_hand(ns, print):
    x = ns.linspace(-math.pi, math.pi, 200, dtype=ns.float64)
    y = ns.sin(x)
    a, b, c, d = (ns.tensor(v, dtype=ns.float64, requires_grad=True) for v in (0.1, -0.2, 0.3, 0.05))
    learning_rate = 1e-6
    for t in range(200):
        y_pred = a + b * x + c * x**2 + d * x**3
        loss = (y_pred - y).pow(2).sum()
        if t % 100 == 99:
            print(t, f"{loss.item():.8f}")
        loss.backward()
        with ns.no_grad():
            a -= learning_rate * a.grad
            b -= learning_rate * b.grad
            c -= learning_rate * c.grad
            d -= learning_rate * d.grad
            a.grad = None
            b.grad = None
            c.grad = None
            d.grad = None
    print(f"Result: y = {a.item():.8f} + {b.item():.8f} x + {c.item():.8f} x^2 + {d.item():.8f} x^3")


def legendre_function(ns, print):
    class LegendrePolynomial3(ns.autograd.Function):
        @staticmethod
        def forward(ctx, input):
            ctx.save_for_backward(input)
            return 0.5 * (5 * input**3 - 3 * input)

        @staticmethod
        def backward(ctx, grad_output):
            (input,) = ctx.saved_tensors
            return grad_output * 1.5 * (5 * input**2 - 1)

    x = ns.linspace(-math.pi, math.pi, 200, dtype=ns.float64)
    y = ns.sin(x)
    a = ns.full((), 0.0, dtype=ns.float64, requires_grad=True)
    b = ns.full((), -1.0, dtype=ns.float64, requires_grad=True)
    c = ns.full((), 0.0, dtype=ns.float64, requires_grad=True)
    d = ns.full((), 0.3, dtype=ns.float64, requires_grad=True)
    learning_rate = 5e-6
    for t in range(200):
        P3 = LegendrePolynomial3.apply
        y_pred = a + b * P3(c + d * x)
        loss = (y_pred - y).pow(2).sum()
        if t % 100 == 99:
            print(t, f"{loss.item():.8f}")
        loss.backward()
        with ns.no_grad():
            for p in (a, b, c, d):
                p -= learning_rate * p.grad
                p.grad = None
    print(f"{abs(a.item()):.6f} + {b.item():.6f} * P3({abs(c.item()):.6f} + {d.item():.6f} x)")
    print(y_pred.grad_fn.next_functions[1][0].next_functions[1][0])


def what_leaves_are(ns, print):
    """From the notes on leaves and the common questions about .grad."""
    a = fixed(ns, 3).requires_grad_()
    b = a * 2
    for t in (a, b, a.detach(), fixed(ns, 2), b.detach().requires_grad_()):
        print(t.is_leaf, t.requires_grad, t.grad_fn)
    b.retain_grad()
    (b**2).sum().backward()
    print(a.grad, b.grad)
    frozen = fixed(ns, 3, seed=1)
    trained = fixed(ns, 3, seed=2).requires_grad_()
    (frozen * trained).sum().backward()
    print(frozen.grad, trained.grad)
    trained.grad.zero_()
    (frozen * trained).sum().backward()
    (frozen * trained).sum().backward()
    print(trained.grad)
    seen = []
    h = trained * 1
    handle = h.register_hook(lambda g: seen.append(g.tolist()))
    h.sum().backward()
    handle.remove()
    (trained * 1).sum().backward()
    print(len(seen), seen[0])
    double = trained * 3
    double.register_hook(lambda g: g * 10)
    print(ns.autograd.grad(double.sum(), trained))


def higher_derivatives(ns, print):
    x = ns.tensor([1.0, 2.0], dtype=ns.float64, requires_grad=True)
    y = (x**3).sum()
    (first,) = ns.autograd.grad(y, x, create_graph=True)
    print(first)
    (second,) = ns.autograd.grad(first.sum(), x, create_graph=True)
    print(second)
    (third,) = ns.autograd.grad(second.sum(), x)
    print(third)
    w = ns.tensor([0.5, -0.5], dtype=ns.float64, requires_grad=True)
    penalty = sum((g**2).sum() for g in ns.autograd.grad((w.sin() * x).sum(), [w, x], create_graph=True))
    penalty.backward()
    print(w.grad)
    print(x.grad)


PROGRAMS = [
    sixty_minute_blitz,
    gentle_introduction,
    automatic_differentiation,
    fundamentals,
    polynomial_by_hand,
    legendre_function,
    what_leaves_are,
    higher_derivatives,
]


def printed(program, module):
    """The output, with addresses and the library's name made neutral."""
    lines = []
    program(module, lambda *values: lines.append(" ".join(map(str, values))))
    text = re.sub("0x[0-9a-f]+", "0x0", "\n".join(lines)) + "\n"
    return text.replace("torch.", "weft.").replace("weft.autograd.function.", "").replace("<locals>.", "")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_prints_what_it_printed(program, golden):
    golden(f"tutorial_{program.__name__}.txt", printed(program, weft))


@pytest.mark.oracle
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_prints_what_torch_prints(program):
    torch = pytest.importorskip("torch")
    assert printed(program, weft) == printed(program, torch)
