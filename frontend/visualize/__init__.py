"""Graphs as pictures: what was recorded, how it was fused, what autograd holds, and how long the kernels take.

    from weft import visualize

    visualize.draw_autograd(loss, dict(model.named_parameters()))     the nodes behind loss.grad_fn
    visualize.draw_function(step, dict(model.named_parameters()))     the stages of a compiled function, by name
    visualize.draw_graph(text)                                        any compiler graph, or its text form
    visualize.to_dot(text)                                            the same for Graphviz
    visualize.kernel_times(program)                                   nanoseconds, measured inside the program
    visualize.machine_roof()                                          what arithmetic and memory give here at most

Drawings are SVG texts. They need grandalf, a layered layout in Python: pip install 'weft[demo]'.

Start in graphs.py (what becomes a box), then layout.py (where it goes) and svg.py (how it looks).
"""

from ..public import of_module
from .autograd import draw_autograd
from .charts import line_chart
from .dot import to_dot
from .functions import busiest_program, draw_function, value_names
from .graphs import draw_graph, stages
from .page import figure, html_page, html_table, png_image
from .roof import Roof, machine_roof
from .svg import group_color
from .timing import kernel_times

__getattr__, __dir__ = of_module(__name__)
__all__ = [
    "Roof",
    "busiest_program",
    "draw_autograd",
    "draw_function",
    "draw_graph",
    "figure",
    "group_color",
    "html_page",
    "html_table",
    "kernel_times",
    "line_chart",
    "machine_roof",
    "png_image",
    "stages",
    "to_dot",
    "value_names",
]
