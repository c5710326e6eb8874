"""Hooks of all modules against PyTorch, eager and compiled, before and after calls are replayed, and taken away."""

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle


def model_of(m):
    model = m.nn.Sequential(m.nn.Linear(3, 4), m.nn.Tanh(), m.nn.Linear(4, 2)).double()
    rng = np.random.default_rng(0)
    with m.no_grad():
        for p in model.parameters():
            p.copy_(m.tensor(rng.standard_normal(tuple(p.shape))))
    return model


def registered(m, kind, log):
    name = lambda module: type(module).__name__  # noqa: E731
    hooks = {
        "forward_pre": lambda module, args: log.append(("pre", name(module))) or (args[0] * 1.5,),
        "forward": lambda module, args, out: log.append(("after", name(module))) or out + 0.25,
        "full_backward_pre": lambda module, found: log.append(("back", name(module))) or (found[0] * 2,),
        "full_backward": lambda module, found, given: log.append(("done", name(module), len(found))),
    }
    return getattr(m.nn.modules.module, f"register_module_{kind}_hook")(hooks[kind])


def observed(m, compile, kind):
    """What calls give before there is a hook, with it (and one of a module's own), and without it again."""
    model, log, seen, handles = model_of(m), [], [], []

    def step(x):
        model.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        return loss

    step = compile(step)
    for call in range(90):
        if call == 70:
            handles.append(registered(m, kind, log))
            handles.append(model[0].register_forward_hook(lambda module, args, out: log.append("own")))
        if call == 80:
            for handle in handles:
                handle.remove()
        loss = step(m.tensor(np.full((2, 3), 0.1 * call)))
        seen.append([loss.item(), *(p.grad.sum().item() for p in model.parameters()), list(log)])
        log.clear()
    return seen


@pytest.mark.parametrize("kind", ["forward_pre", "forward", "full_backward_pre", "full_backward"])
def test_all_modules_are_asked(kind):
    expected, eager = observed(torch, lambda f: f, kind), observed(weft, lambda f: f, kind)
    compiled = observed(weft, weft.compile, kind)
    assert compiled == eager
    for ours, theirs in zip(eager, expected, strict=True):
        assert ours[-1] == theirs[-1]
        np.testing.assert_allclose(ours[:-1], theirs[:-1], rtol=1e-9)
    assert expected[75][-1] and not expected[85][-1]


@pytest.mark.parametrize("m", [torch, weft], ids=["torch", "weft"])
def test_options_and_blocks(m):
    model, seen = model_of(m), []
    register = m.nn.modules.module.register_module_forward_hook
    with register(lambda module, args, kwargs, out: seen.append((type(module).__name__, kwargs)), with_kwargs=True):
        model(input=m.zeros(1, 3, dtype=m.float64))
    with register(lambda *given: seen.append(len(given)), always_call=True), pytest.raises(RuntimeError):
        model(m.zeros(1, 5, dtype=m.float64))
    assert [x[0] for x in seen[:4]] == ["Linear", "Tanh", "Linear", "Sequential"] and list(seen[3][1]) == ["input"]
    assert seen[4:] == [3, 3]
    count = len(seen)
    model(m.zeros(1, 3, dtype=m.float64))
    assert len(seen) == count


def test_calls_whose_python_need_not_run():
    model, asked = model_of(weft), []
    compiled = weft.compile(lambda x: model(x))
    x = weft.ones(2, 3, dtype=weft.float64)
    for _ in range(2):
        plain = [compiled(x) for _ in range(200)][-1]
        with weft.nn.modules.module.register_module_forward_hook(lambda module, args, out: asked.append(1) or out * 2):
            assert (compiled(x) != plain).all() and compiled(x).equal(model(x)) and len(asked) == 12
        asked.clear()
        assert compiled(x).equal(plain) and not asked
