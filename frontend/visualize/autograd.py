"""The autograd graph behind a tensor as a diagram: leaves blue, nodes grey, the tensor itself green."""

from ..runtime.state.tensor import Tensor
from .diagram import Box, Diagram
from .svg import render


def draw_autograd(tensor, params=None, *, title=None, width_px=1080):
    """The SVG of the nodes reached from tensor.grad_fn; params: name -> tensor, names for the leaves."""
    return render(diagram_of_autograd(tensor, params, title=title), width_px)


def diagram_of_autograd(tensor, params=None, *, title=None):
    """The Diagram of the nodes reached from tensor.grad_fn. ValueError for a tensor without one."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"draw_autograd: expected a tensor, got {type(tensor).__name__}")
    if tensor.grad_fn is None:
        raise ValueError("draw_autograd: the tensor has no grad_fn: no op that requires gradients made it")
    names = {id(t): name for name, t in (params or {}).items()}
    diagram = Diagram(title or "autograd graph")
    nodes = _nodes(tensor.grad_fn)
    numbers = {id(node): k for k, node in enumerate(nodes)}
    for k, node in enumerate(nodes):
        sources = [str(numbers[id(n)]) for n, _ in node.next_functions if n is not None]
        variable = getattr(node, "variable", None)
        if variable is not None:
            sources.append(diagram.add(_leaf(f"leaf {k}", variable, names)))
        diagram.add(Box(str(k), type(node).__name__, _shape_lines(node)), sources)
    diagram.add(
        Box("result", names.get(id(tensor), "result"), (_type(tensor),), kind="output"), [str(numbers[id(nodes[-1])])]
    )
    return diagram


def _nodes(root):
    """Every node reached from the root, each after those it leads to; the root is last."""
    done, order, stack = set(), [], [(root, False)]
    while stack:
        node, finished = stack.pop()
        if finished:
            order.append(node)
        elif id(node) not in done:
            done.add(id(node))
            stack.append((node, True))
            stack.extend((n, False) for n, _ in reversed(node.next_functions) if n is not None)
    return order


def _leaf(key, variable, names):
    return Box(key, names.get(id(variable), "leaf"), (_type(variable),), kind="leaf")


def _shape_lines(node):
    meta = getattr(node, "meta", None)
    return () if meta is None else (f"{meta.dtype.name}[{', '.join(map(str, meta.shape))}]",)


def _type(tensor):
    return f"{tensor.dtype.name}[{', '.join(map(str, tensor.shape))}]"
