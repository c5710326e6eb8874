"""What notebooks show, through IPython's own formatters."""

from html.parser import HTMLParser

import pytest

import weft
from weft import nn
from weft.notebooks import Drawing

VOID = {"input", "br"}


class Elements(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.text = [], [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.open += [tag] if tag not in VOID else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def shown(value):
    elements = Elements(value._repr_html_())
    assert elements.open == [] and "script" not in elements.seen
    return elements


@pytest.fixture(scope="module")
def notebook():
    pytest.importorskip("IPython")
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    yield shell
    InteractiveShell.clear_instance()


def test_a_large_tensor_is_short():
    elements = shown(weft.arange(10_000.0).reshape(100, 100))
    assert "weft.float32 (100, 100)" in elements.text and "..." in elements.text and len(elements.text) < 400
    assert repr(weft.arange(100.0)).count(",") == 99  # the options are what they were
    assert "requires_grad=True" in shown(weft.ones(2, requires_grad=True)).text


def test_columns_of_numbers_stand_below_each_other():
    """Whatever font and wrapping the page of the notebook gives to <pre>."""
    f = weft.compile(lambda x: x * 2)
    f(weft.ones(2))
    for value in (weft.ones(2, 3), nn.Linear(2, 3), f.explain()):
        text = value._repr_html_()
        assert text.count("<pre") == text.count("<pre style=") > 0 and "font-family:monospace" in text


def test_a_module_is_a_table_of_its_parameters():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.LazyLinear(2))
    model[0].bias.requires_grad = False
    elements = shown(model)
    assert "Sequential, " in elements.text and "0.weightLinear(4, 3)weft.float32" in elements.text
    assert "0.biasLinear(4,)weft.float32fixed" in elements.text
    assert "2.weightLazyLinearnot known yetweft.float32" in elements.text
    assert "1.running_meanBatchNorm1d(4,)weft.float32buffer" in elements.text
    model(weft.ones(5, 3))
    assert f"Sequential, {12 + 8 + 10} numbers to learn" in shown(model).text


class Odd(nn.Module):
    def extra_repr(self):
        return "<b>&"


def test_texts_are_escaped():
    assert "Odd(<b>&)" in shown(Odd()).text


def test_explanations_are_texts_of_lines():
    f = weft.compile(lambda x: x * 2)
    f(weft.ones(2))
    assert repr(f.explain()) == str(f.explain()) and "fast path" in shown(f.explain()).text
    gradient = weft.grad(lambda x: (x * x).sum())
    assert "not called yet" not in shown(gradient.explain([1.0, 2.0])).text


def test_drawings_scroll_and_say_in_words_what_they_show():
    pytest.importorskip("grandalf")
    from weft import visualize

    w = weft.ones(2, requires_grad=True)
    drawing = visualize.draw_autograd((w * 2).sum(), {"weight": w})
    assert isinstance(drawing, Drawing) and drawing._repr_svg_() == drawing
    elements = shown(drawing)
    assert {"svg", "desc"} <= set(elements.seen) and elements.seen.count("input") == 2
    assert (
        "weight" in elements.text.partition("from")[0] and "SumBackward0 float32[] from MulBackward0" in elements.text
    )


def test_ipython_shows_them(notebook):
    notebook.run_cell("import weft; model = weft.nn.Linear(2, 3); x = weft.ones(2); f = weft.compile(model); y = f(x)")
    for name, words in {"model": "6 + 3", "x": "tensor([1., 1.])", "f.explain()": "fast path"}.items():
        formats, _ = notebook.display_formatter.format(eval(name, notebook.user_ns))
        assert words.replace("6 + 3", "9 numbers to learn") in formats["text/html"]


def test_a_cell_that_fails_leaves_weft_as_it_was(notebook):
    result = notebook.run_cell("f(weft.ones(5))")
    assert "Linear" in str(result.error_in_exec)
    assert notebook.run_cell("z = f(x); assert (z == y).all()").success
