"""The keywords of weft.compile, by PyTorch's names, and PyTorch's modules about its compiler."""

import copy
import pickle

import pytest

import weft

ACCEPTED = [
    *({"backend": name} for name in weft.compiler.list_backends(None)),
    *({"mode": mode} for mode in weft._inductor.list_mode_options()),
    *({"options": {"epilogue_fusion": True, "triton.cudagraphs": False, "max-autotune": True}}, {"dynamic": True}),
    *({"name": "step"}, {"recompile_limit": 4}, {"isolate_recompiles": True}, {"mode": None, "options": None}),
    {"fullgraph": True, "backend": "eager"},
]
REFUSED = [
    ({"backend": "nothing"}, RuntimeError, "Invalid backend: 'nothing', see `weft.compiler.list_backends"),
    ({"backend": "nothing", "disable": True}, RuntimeError, "Invalid backend"),
    ({"backend": lambda graph, inputs: graph.forward}, RuntimeError, "weft makes none: leave backend out"),
    ({"backend": 3}, TypeError, "backend must be the name of one, got int"),
    ({"mode": "fast"}, RuntimeError, "mode='fast', should be one of: default, lite, reduce-overhead"),
    ({"mode": "default", "options": {}}, RuntimeError, "Either mode or options can be specified"),
    ({"options": {"speed": 11}}, RuntimeError, "Unexpected optimization option speed"),
    ({"options": "fast"}, TypeError, "options must be a dict, got str"),
    ({"dynamic": "yes"}, TypeError, "dynamic must be None, True or False, got 'yes'"),
    ({"name": 3}, TypeError, "name must be a str, got int"),
    ({"recompile_limit": -1}, ValueError, "recompile_limit must be a number of programs, got -1"),
    ({"shapes_spec": ()}, NotImplementedError, "mark_dynamic"),
    ({"speed": 11}, TypeError, "unexpected keyword argument 'speed'"),
]


@pytest.mark.parametrize("given", ACCEPTED, ids=str)
def test_names_of_pytorch_change_no_result(given):
    for compiled in (weft.compile(lambda x: x.exp() * 2, **given), weft.compile(**given)(lambda x: x.exp() * 2)):
        x = weft.tensor([0.5, 1.5])
        assert [compiled(x).tolist() for _ in range(4)] == [(x.exp() * 2).tolist()] * 4


@pytest.mark.parametrize("given, kind, message", REFUSED)
def test_other_names_are_refused(given, kind, message):
    with pytest.raises(kind, match=message):
        weft.compile(lambda x: x, **given)


@pytest.mark.oracle
def test_pytorch_has_these_names():
    torch = pytest.importorskip("torch")
    from torch._inductor import list_mode_options

    assert set(weft._inductor.list_mode_options()) == set(list_mode_options())
    assert weft.compiler.list_backends() == torch.compiler.list_backends()
    assert set(weft.compiler.list_backends(None)) - {"onnxrt"} <= set(torch._dynamo.list_backends(None))
    assert weft._inductor.list_options() == sorted(torch._inductor.list_options())


def test_the_backend_eager_compiles_nothing():
    def double(x):
        return x * 2

    eager = weft.compile(double, backend="eager")
    for _ in range(100):
        assert eager(weft.ones(2)).tolist() == [2.0, 2.0]
    assert not eager.recordings
    assert "calls run eagerly, as the backend that was asked for does" in eager.explain()
    model = copy.deepcopy(weft.compile(weft.nn.Linear(2, 2), backend="eager"))
    for again in (model, pickle.loads(pickle.dumps(model))):
        again(weft.ones(1, 2))
        assert not again.recordings
        assert isinstance(again._orig_mod, weft.nn.Linear)


def test_the_default_backend():
    assert weft.compiler.get_default_backend() == "inductor"
    with pytest.raises(RuntimeError, match="Invalid backend"):
        weft.compiler.set_default_backend("nothing")
    weft.compiler.set_default_backend("eager")
    try:
        f = weft.compile(lambda x: x + 1)
        f(weft.ones(1))
        assert not f.recordings
    finally:
        weft.compiler.set_default_backend(None)
    assert weft.compiler.get_default_backend() == "inductor"


def test_settings_are_kept_and_change_nothing():
    import weft._dynamo.config as settings

    weft._inductor.config.triton.unique_kernel_names = True
    assert weft._inductor.config.triton.unique_kernel_names
    settings.suppress_errors = True
    assert weft._dynamo.config.suppress_errors
    with weft._inductor.config.patch({"max_autotune": True}):
        assert weft._inductor.config.max_autotune

    @weft._dynamo.config.patch(verbose=True)
    def is_verbose():
        return weft._dynamo.config.verbose

    assert is_verbose()
    assert not weft._dynamo.config.verbose


def test_functions_of_pytorchs_compiler():
    model = weft.compile(model=weft.nn.Linear(2, 2))
    assert isinstance(model, weft._dynamo.eval_frame.OptimizedModule)
    assert "1 call(s)" in weft._dynamo.explain(lambda x: x * 2)(weft.ones(3))
    assert weft._dynamo.optimize("inductor", nopython=True)(lambda x: x * 2)(weft.ones(1)).tolist() == [2.0]
    assert weft.compiler.nested_compile_region(abs) is weft.compiler.substitute_in_graph(len)(abs) is abs
    with pytest.raises(AttributeError, match=r"PyTorch 2.13 has it.*weft.for_numpy\(function\)"):
        _ = weft.compiler.wrap_numpy
    with pytest.raises(AttributeError, match="will not have it"):
        _ = weft._dynamo.export
