"""Leaves, gradients, the graph behind them, and second derivatives: python examples/autograd_basics.py"""

import weft

x = weft.tensor([1.0, 2.0, 3.0], requires_grad=True)
w = weft.tensor([0.5, -1.0, 2.0], requires_grad=True)

# Every op on a tensor that requires gradients leaves a node behind; backward() walks them in reverse.
y = (w * x).tanh().sum()
y.backward()
print("y       ", y)
print("dy/dw   ", w.grad)
print("by hand ", x * (1 - (w * x).tanh() ** 2))

node = y.grad_fn
while node is not None:
    print("node    ", node.name())
    node = next((n for n, _ in node.next_functions), None)

# Gradients add up in .grad until they are cleared.
(w * x).sum().backward()
print("added   ", w.grad)
w.grad = None

# create_graph makes the gradient itself differentiable: d2/dx2 of x**3 is 6 x.
(slope,) = weft.autograd.grad((x**3).sum(), [x], create_graph=True)
(curvature,) = weft.autograd.grad(slope.sum(), [x])
print("6 x     ", curvature)
