"""Recurrent layers over sequences whose length changes: one program for all lengths, the bits of eager mode."""

import pytest

import weft
from weft import nn
from weft.compiler.extent import Fixed
from weft.compiler.ops.steps import STEPS

# More calls than a function needs to be compiled that is made anew for every layer.
LENGTHS = (5, 7, 6, 3, 12, 2, 1, 40, 100, 9, 8, 11, 4, 10, 13, 25, 14, 5, 64)
LAYERS = {
    "tanh": lambda: nn.RNN(4, 3),
    "relu": lambda: nn.RNN(4, 3, nonlinearity="relu", bias=False),
    "lstm": lambda: nn.LSTM(4, 3),
    "gru": lambda: nn.GRU(4, 3),
    "lstm_both_ways": lambda: nn.LSTM(4, 3, 2, bidirectional=True),
    "gru_both_ways": lambda: nn.GRU(4, 3, 2, bidirectional=True),
    "batch_first": lambda: nn.LSTM(4, 3, batch_first=True),
    "double": lambda: nn.GRU(4, 3, dtype=weft.float64),
}


def bits(results):
    return [t.detach().numpy().tobytes() for t in results]


def training(layer):
    def step(x):
        layer.zero_grad()
        out, last = layer(x)
        ((out * out).sum() + out[-1].sum()).backward()
        last = last if isinstance(last, tuple) else (last,)
        return out, *last, *(p.grad for p in layer.parameters())

    return step


def sequences(n, name):
    shape = (2, n, 4) if name == "batch_first" else (n, 2, 4)
    return weft.randn(*shape, dtype=weft.float64 if name == "double" else weft.float32)


def programs_of(f):
    """(those for several lengths, those for one alone)"""
    families = [family for form in f._sizes.forms.values() for family in form.families]
    several = sum(len(made) for family in families for made in family.programs.values())
    return several, sum("n" not in p.meta for r in f.recordings for p in r.programs)


@pytest.mark.parametrize("name", LAYERS)
def test_lengths_share_a_program(name):
    step = training(LAYERS[name]())
    f = weft.compile(step)
    for n in LENGTHS:
        x = sequences(n, name)
        found = bits(f(x))
        assert found == bits(step(x)), n
    several, alone = programs_of(f)
    # Those of the first length and of a single step are for themselves; so is the first call, which makes gradients.
    assert several == 1 and alone <= 3 and not f._sizes.refusals, f.explain()


@pytest.mark.parametrize("name", ["tanh", "lstm", "gru"])
def test_sequences_that_end_early(name):
    """Packed sequences: the steps after an end are masked."""
    layer = nn.utils.rnn
    model = LAYERS[name]()

    def step(x, lengths):
        model.zero_grad()
        packed = layer.pack_padded_sequence(x, lengths, enforce_sorted=False)
        out, _ = layer.pad_packed_sequence(model(packed)[0])
        (out * out).sum().backward()
        return out, *(p.grad for p in model.parameters())

    f = weft.compile(step)
    for n in LENGTHS:
        x, lengths = weft.randn(n, 3, 4), weft.tensor([n, max(n - 2, 1), 1])
        assert bits(f(x, lengths)) == bits(step(x, lengths)), n


@pytest.mark.parametrize("name", ["tanh", "relu", "lstm", "gru"])
def test_values_with_signs_of_zero(name):
    """A sum of cotangents that begins is no sum with 0.0: that would lose the sign of -0.0."""
    layer = LAYERS[name]()
    for parameter in layer.parameters():
        parameter.data.mul_(-0.0)

    def step(x):
        x = x.detach().requires_grad_()
        out, _ = layer(x)
        return out, *weft.autograd.grad((out * -0.0).sum(), [x, *layer.parameters()])

    f = weft.compile(step)
    for n in LENGTHS:
        x = weft.randn(n, 2, 4)
        assert bits(f(x)) == bits(step(x)), n


def test_a_model_around_a_layer_is_trained_on_lengths_as_they_come():
    def train(compiled):
        weft.manual_seed(3)
        embed, steps, last = nn.Embedding(20, 8), nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 20)
        parameters = [p for m in (embed, steps, last) for p in m.parameters()]
        optimizer = weft.optim.Adam(parameters, lr=0.01)

        def step(tokens):
            optimizer.zero_grad()
            logits = last(steps(embed(tokens[:, :-1]))[0])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            return loss

        run = weft.compile(step) if compiled else step
        losses = [run(weft.randint(0, 20, (3, n))).item() for n in LENGTHS if n > 2]
        return losses, bits(parameters), run

    (losses, parameters, f), (eager, expected, _) = train(True), train(False)
    assert losses == eager and parameters == expected
    several, alone = programs_of(f)
    # The optimizer makes its state in the first call, and some lengths are numbers of the model too.
    assert several == 1 and alone <= 3, f.explain()


def test_second_derivatives():
    layer = nn.RNN(4, 3)

    def penalty(x):
        x = x.detach().requires_grad_()
        (slope,) = weft.autograd.grad(layer(x)[0].sum(), x, create_graph=True)
        return weft.autograd.grad((slope * slope).sum(), layer.weight_hh_l0)

    f = weft.compile(penalty)
    for n in LENGTHS:
        x = weft.randn(n, 2, 4)
        assert bits(f(x)) == bits(penalty(x))


def test_a_derivative_of_steps_that_only_the_call_counts_is_refused():
    """Such a program is compiled for every length then."""
    with pytest.raises(Fixed, match="a derivative goes through steps"):
        STEPS.vjp_rule(0)


def test_the_program_has_one_step_however_long_the_sequence():
    layer = nn.GRU(4, 3)
    f = weft.compile(layer, dynamic=True)
    for n in (7, 60, 600):
        x = weft.randn(n, 2, 4)
        with weft.no_grad():
            assert bits(f(x)) == bits(layer(x))
    plans = [r.programs[0].meta["plan"] for r in f.recordings]
    assert [len(plan["kernels"]) for plan in plans] == [len(plans[0]["kernels"])] * 3
    assert [k["name"] for k in plans[0]["kernels"]].count("steps") == 1
