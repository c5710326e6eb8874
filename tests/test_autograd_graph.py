"""weft.autograd.graph and anomaly detection: hooks on what is saved, edges, multi-grad hooks, lines of NaNs."""

import warnings
import weakref

import numpy as np
import pytest

import weft
from weft.autograd import Function, graph


def leaf(*values):
    return weft.tensor(list(values), dtype=weft.float64, requires_grad=True)


# --- hooks on saved tensors -------------------------------------------------------------------------------------------
def doubled(ns, x):
    with ns.autograd.graph.saved_tensors_hooks(lambda t: t.numpy().copy(), lambda a: ns.tensor(a * 2)):
        y = x.exp() * x
    return y.sum()


@pytest.mark.oracle
def test_what_unpack_gives_is_what_backward_reads():
    torch = pytest.importorskip("torch")
    found = []
    for ns in (weft, torch):
        x = ns.tensor([0.5, 1.0], dtype=ns.float64, requires_grad=True)
        doubled(ns, x).backward()
        found.append(x.grad.numpy())
    assert np.allclose(*found)


@pytest.mark.oracle
def test_second_derivatives_through_packed_tensors():
    torch = pytest.importorskip("torch")
    found = []
    for ns in (weft, torch):
        x = ns.tensor([0.5, 1.0], dtype=ns.float64, requires_grad=True)
        with ns.autograd.graph.saved_tensors_hooks(lambda t: t.numpy().copy(), lambda a, ns=ns: ns.tensor(a)):
            y = (x.exp() * x * x).sum()
            (first,) = ns.autograd.grad(y, x, create_graph=True)
        found.append(ns.autograd.grad((first * first).sum(), x)[0].numpy())
    assert np.allclose(*found)


def test_a_compiled_call_with_such_a_block_has_the_same_bits_and_says_so():
    def function(x):
        y = x * 3
        with graph.save_on_cpu():
            z = (y * y).tanh()
        return (z * y).sum()

    compiled = weft.compile(function)
    for _ in range(3):
        gradients = []
        for f in (function, compiled):
            x = leaf(0.1, 0.2, 0.3)
            f(x).backward()
            gradients.append(x.grad.numpy().tobytes())
        assert gradients[0] == gradients[1]
    assert "saved tensor hooks" in compiled.explain()


def test_a_compiled_function_called_in_the_block_runs_eagerly_and_says_so():
    packed = []
    compiled = weft.compile(lambda x: (x * x).sum())
    x = leaf(1.0, 2.0)
    compiled(x)
    with graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        y = compiled(x)
    y.backward()
    assert len(packed) == 2 and x.grad.tolist() == [2, 4] and "saved tensor hooks" in compiled.explain()
    assert compiled(x).item() == 5


def test_the_inner_block_counts():
    seen = []
    x = leaf(1.0)
    with graph.saved_tensors_hooks(lambda t: seen.append("outer") or t, lambda t: t):
        with graph.saved_tensors_hooks(lambda t: seen.append("inner") or t, lambda t: t):
            x.exp()
        x.exp()
    x.exp()
    assert seen == ["inner", "outer"]


def test_in_place_ops_in_the_block_save_what_was_there():
    x = leaf(1.0, 2.0)
    with graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        y = x * 1
        y.mul_(x)
    y.sum().backward()
    assert x.grad.tolist() == [2, 4]


def test_what_nodes_have_saved_has_names():
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    y = x * w
    assert y.grad_fn._saved_self is x and y.grad_fn._saved_other is w
    z = y.exp()
    assert z.grad_fn._saved_result.tolist() == z.tolist() and z.grad_fn._saved_result.grad_fn is z.grad_fn
    z.grad_fn._raw_saved_result.register_hooks(lambda t: 5, lambda _: weft.tensor([1.0, 1.0], dtype=weft.float64))
    z.sum().backward()
    assert x.grad.tolist() == [3, 4]
    with pytest.raises(RuntimeError, match="already been freed"):
        _ = z.grad_fn._saved_result
    with pytest.raises(AttributeError, match="'MulBackward0' object has no attribute '_saved_nothing'"):
        _ = y.grad_fn._saved_nothing


def test_errors_of_hooks():
    x = leaf(1.0)
    y = x.exp()
    y.grad_fn._raw_saved_result.register_hooks(lambda t: t, lambda t: 3)
    with pytest.raises(RuntimeError, match="hooks have already been set"):
        y.grad_fn._raw_saved_result.register_hooks(lambda t: t, lambda t: t)
    with pytest.raises(TypeError, match="unpack_hook expected to be a Tensor but got result of type int"):
        y.backward()
    changing = graph.saved_tensors_hooks(lambda t: t.mul_(2), lambda t: t)
    with pytest.raises(RuntimeError, match="modifying its input in place"), changing:
        x.exp()
    with graph.disable_saved_tensors_hooks("not here"), pytest.raises(RuntimeError, match="not here"), changing:
        pass
    with pytest.raises(RuntimeError, match="SavedTensor object from Python is forbidden"):
        weft.autograd.SavedTensor()


def test_saved_tensors_may_be_changed_in_a_block():
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y = x.clone()
        out = (y * y).sum()
        y.sin_()
        out.backward()
    with graph.allow_mutation_on_saved_tensors():
        y = x.clone()
        out = (y * y).sum()
        y[0] = 7.0
        y.sin_()
        out.backward()
    assert x.grad.tolist() == [2, 4]
    with graph.allow_mutation_on_saved_tensors():
        out = (x * x).sum()
        with pytest.raises(RuntimeError, match="cannot be nested"), graph.allow_mutation_on_saved_tensors():
            pass
    with pytest.raises(AssertionError, match="outside of the 'allow_mutation_on_saved_tensors' context"):
        out.backward()


# --- edges ------------------------------------------------------------------------------------------------------------
def test_edges_in_place_of_tensors():
    x = leaf(1.0, 2.0)
    y = x * 3
    edge = graph.get_gradient_edge(y)
    assert isinstance(edge.node, graph.Node) and edge == graph.GradientEdge(y.grad_fn, 0)
    y.mul_(5)
    before, after = weft.autograd.grad(y.sum(), (edge, y), retain_graph=True)
    assert before.tolist() == [5, 5] and after.tolist() == [1, 1]
    y.sum().backward(inputs=[graph.get_gradient_edge(x)])
    assert x.grad.tolist() == [15, 15]
    with pytest.raises(RuntimeError, match="gradient edge for a Tensor that does not require gradients"):
        graph.get_gradient_edge(weft.ones(1))


def test_backward_into_an_inner_tensor_runs_its_hooks():
    log = []
    x = leaf(1.0)
    y = x.clone()
    y.grad_fn.register_prehook(lambda g: log.append("node"))
    y.register_hook(lambda g: log.append("tensor"))
    (y * 2).sum().backward(inputs=[y], retain_graph=True)
    assert log == ["tensor", "node"] and y.grad.tolist() == [2] and x.grad is None
    weft.autograd.grad((y * 2).sum(), y)
    assert log == ["tensor", "node", "tensor"]


def test_backward_runs_nothing_that_leads_to_no_input():
    x, y = leaf(1.0), leaf(2.0)
    z = x * 2
    z.grad_fn.register_hook(lambda *_: pytest.fail("this node should not run"))
    z.backward(weft.ones(1, dtype=weft.float64), inputs=[y])
    assert y.grad is None and x.grad is None


def test_increment_version():
    x = leaf(1.0)
    y = x * 1
    out = (y * y).sum()
    graph.increment_version(y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


# --- hooks ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("wrap", [lambda f: f, weft.compile], ids=["eager", "compiled"])
def test_hooks_for_several_gradients(wrap):
    found, first = [], []
    x, y, z = leaf(1.0), leaf(2.0), leaf(3.0)
    handle = graph.register_multi_grad_hook((x, y, z), found.append)
    graph.register_multi_grad_hook((x, y), first.append, mode="any")
    total = wrap(lambda a, b, c: (a * b * 2).sum() + (c * 0).sum())
    total(x, y, z).backward()
    total(x, y, z).backward(inputs=[y])
    weft.autograd.grad((x * y).sum(), [x])
    assert [[g if g is None else g.item() for g in gradients] for gradients in found][0] == [4.0, 2.0, 0.0]
    assert [[g if g is None else g.item() for g in gradients] for gradients in found][1:] == [
        [None, 2.0, None],
        [2.0, None, None],
    ]
    assert len(first) == 3
    handle.remove()
    total(x, y, z).backward()
    assert len(found) == 3 and len(first) == 4
    with pytest.raises(ValueError, match="Expects mode to be one of"):
        graph.register_multi_grad_hook((x,), print, mode="some")


def test_hooks_of_a_leafs_node():
    x = leaf(3.0)
    y = x.clone()
    node = y.grad_fn.next_functions[0][0]
    seen = []
    node.register_hook(lambda inputs, outputs: seen.append((inputs, outputs[0].item())))
    x.register_hook(lambda g: g * 2)
    y.backward(weft.tensor([1.0], dtype=weft.float64))
    assert seen == [((), 2.0)]
    x.register_post_accumulate_grad_hook(lambda t: t.grad)
    with pytest.raises(RuntimeError, match="hooks should return None"):
        x.clone().sum().backward()


def test_callbacks_at_the_end_of_a_pass():
    log = []
    x = leaf(1.0)
    engine = weft.autograd.Variable._execution_engine
    x.register_hook(lambda g: (engine.queue_callback(lambda: log.append(x.grad.item())), log.append("hook"))[0])
    (x * 3).sum().backward()
    assert log == ["hook", 3.0]
    with pytest.raises(RuntimeError, match="only be installed during backward"):
        engine.queue_callback(print)


def test_callbacks_of_a_compiled_call_run_at_the_end_of_its_pass():
    """What a hook of a leaf had queued ran when the gradient of that leaf had been added, before those of others."""
    log, leaves = [], [leaf(1.0), leaf(2.0), leaf(3.0)]
    engine = weft.autograd.Variable._execution_engine
    for x in leaves[:2]:
        x.register_post_accumulate_grad_hook(
            lambda x: engine.queue_callback(lambda: log.append([x.grad is not None for x in leaves]))
        )

    @weft.compile
    def step():
        for x in leaves:
            x.grad = None
        (leaves[0] * leaves[1] * leaves[2]).sum().backward()

    for _ in range(5):
        step()
        assert log == [[True] * 3] * 2
        log.clear()


def test_metadata_lives_as_long_as_its_node():
    class Anything:
        pass

    y = leaf(1.0).exp()
    y.grad_fn.metadata["kept"] = kept = Anything()
    gone = weakref.ref(kept)
    del kept
    assert gone() is not None
    del y
    assert gone() is None


# --- anomaly detection ------------------------------------------------------------------------------------------------
def root_of_zero(x):
    y = x.sqrt()
    return (y * 0).sum()


@pytest.mark.parametrize("wrap", [lambda f: f, weft.compile], ids=["eager", "compiled"])
def test_anomaly_detection_names_the_line(wrap):
    function = wrap(root_of_zero)
    function(leaf(1.0))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        nan = pytest.raises(RuntimeError, match="Function 'SqrtBackward0' returned nan values in its 0th output")
        with weft.autograd.detect_anomaly(), nan:
            function(leaf(0.0)).backward()
    text = str(caught[-1].message)
    assert "Error detected in SqrtBackward0" in text and text.rstrip().endswith("y = x.sqrt()")
    function(leaf(0.0)).backward()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_anomaly_detection_of_short_floats(dtype):
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    with weft.autograd.set_detect_anomaly(True):
        x.to(getattr(weft, dtype)).float().square().sum().backward()
        assert x.grad.tolist() == [2.0, 4.0]
        with pytest.raises(RuntimeError, match="returned nan values in its 0th output"):
            (x.to(getattr(weft, dtype)) * float("nan")).sum().backward()


def test_anomaly_detection_as_a_switch():
    assert not weft.is_anomaly_enabled()
    weft.autograd.set_detect_anomaly(True, check_nan=False)
    try:
        assert weft.is_anomaly_enabled() and not weft.is_anomaly_check_nan_enabled()
        root_of_zero(leaf(0.0)).backward()
    finally:
        weft.autograd.set_detect_anomaly(False)
    assert not weft.is_anomaly_enabled()


def test_anomaly_detection_in_the_backward_of_a_backward():
    class Bad(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g * float("nan")

    x = leaf(1.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with weft.autograd.detect_anomaly():
            y = Bad.apply(x * x)
            with pytest.raises(RuntimeError, match="Function 'BadBackward' returned nan values"):
                y.sum().backward()
    assert "Bad.apply(x * x)" in str(caught[-1].message)


@pytest.mark.parametrize("compile", [lambda f: f, weft.compile])
@pytest.mark.parametrize("part", [lambda x: x.detach(), lambda x: (x * 1)[0].detach(), lambda x: x[1:].detach()[...]])
def test_what_detach_made_can_be_detached_in_place(compile, part):
    """It is no view. A view of it is one."""
    make, x = compile(lambda x: part(x).requires_grad_()), leaf(1.0, 2.0)
    for _ in range(5):
        made = make(x)
        if made._is_view():
            with pytest.raises(RuntimeError, match="Can't detach views in-place"):
                made.detach_()
        else:
            assert made.detach_() is made and not made.requires_grad


# --- small things -----------------------------------------------------------------------------------------------------
def test_small_things_of_tensors_and_modes():
    x = leaf(1.0, 2.0)
    first, second = (x * 1).max(), x.clone()
    assert first.output_nr == second.output_nr == 0
    assert second.detach_() is second and second.is_leaf and not second.requires_grad
    with pytest.raises(RuntimeError, match="Can't detach views in-place"):
        (x * 1)[0].detach_()
    with weft.no_grad():
        assert x.numpy().tolist() == [1, 2]
    with weft.autograd.set_multithreading_enabled(False):
        (x * 2).sum().backward()
    with pytest.raises(RuntimeError, match="If `is_grads_batched=True`, we interpret the first dimension"):
        weft.autograd.grad(x * 1, x, weft.ones(2, 3).double(), is_grads_batched=True)
    with pytest.warns(FutureWarning, match="Decorating classes is deprecated"):

        @weft.no_grad()
        class Quiet:
            def __init__(self):
                self.enabled = weft.is_grad_enabled()

    assert not Quiet().enabled


def test_the_number_of_a_backward_pass():
    seen = []
    x = weft.ones(2, requires_grad=True) * 1
    x.register_hook(lambda gradient: seen.append(weft._C._current_graph_task_id()))
    for _ in range(2):
        x.sum().backward(retain_graph=True)
    assert seen[1] > seen[0] >= 0 and weft._C._current_graph_task_id() == -1


def test_whether_a_backward_pass_comes_to_a_node():
    x, y = weft.ones(2, requires_grad=True) * 1, weft.ones(2, requires_grad=True) * 1
    out, seen = x * 2, []
    out.register_hook(lambda g: seen.extend(weft._C._will_engine_execute_node(t.grad_fn) for t in (x, y)))
    out.sum().backward()
    assert seen == [True, False]
    with pytest.raises(RuntimeError, match="can only be called during the backward pass"):
        weft._C._will_engine_execute_node(out.grad_fn)
    with pytest.raises(RuntimeError, match="expects an grad_fn, but got Tensor"):
        weft._C._will_engine_execute_node(out)


def test_nodes_for_tests_of_graphs():
    x, y = weft.ones(2, requires_grad=True), weft.ones(2, requires_grad=True)
    assert isinstance((x * 1).grad_fn.next_functions[0][0], weft._C._functions.AccumulateGrad)
    later = weft._C._functions.DelayedError("not yet", 1)(y)
    assert weft.autograd.grad((x * later).sum(), [x])[0].tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="not yet"):
        (x * later).sum().backward()
    z = weft.ones(2, requires_grad=True)
    weft._C._functions.UndefinedGrad()(z * 1).sum().backward()
    assert z.grad is None
    gone = weft._C._WeakTensorRef(weft.ones(1))
    assert gone.expired() and not weft._C._WeakTensorRef(x).expired()


def test_what_a_block_of_mutations_has_copied():
    with weft.autograd.graph.allow_mutation_on_saved_tensors() as context:
        x = weft.ones(2, 3, requires_grad=True).clone()
        first, second = x**2, x**2
        assert len(context.tid_to_weakhandle) == 1 and not context.cloned
        x.sin_()
        assert len(context.cloned) == 1
        third = x**2
        x.sin_()
        assert len(context.cloned) == 2
        del third
        assert len(context.cloned) == 1
        del first, second
        assert not context.cloned


def test_a_list_of_tensors_that_are_kept():
    """By PyTorch's private names: what is on it, and gone from it."""
    weft._C._set_cached_tensors_enabled(True)
    x = weft.rand(4)
    weft._C._add_cached_tensor(x)
    weft._C._add_cached_tensor(x)
    assert weft._C._is_cached_tensor(x) and not weft._C._is_cached_tensor(weft.rand(4))
    weft._C._remove_cached_tensor(x)
    assert not weft._C._is_cached_tensor(x)
    weft._C._add_cached_tensor(x)
    weft._C._set_cached_tensors_enabled(False)
    assert not weft._C._is_cached_tensor(x)


def test_the_function_of_pytorchs_that_resizes():
    x = weft.arange(6.0, requires_grad=True)
    y = weft.autograd._functions.Resize.apply(x * 1, (2, 3))
    (y * weft.arange(6.0).reshape(2, 3)).sum().backward()
    assert y.shape == (2, 3) and x.grad.tolist() == [0, 1, 2, 3, 4, 5]
    edge = weft.autograd.graph.get_gradient_edge(y)
    assert weft.autograd.grad((y * 2).sum(), edge)[0].tolist() == [[2] * 3] * 2
    with pytest.raises(RuntimeError, match="requested resize to 4"):
        weft.autograd._functions.Resize.apply(x, (4,))


def test_modules_show_torch_where_weft_stands_for_it(without_torch):
    with weft.as_torch():
        assert weft.autograd.torch is weft
    with pytest.raises(AttributeError):
        weft.autograd.torch  # noqa: B018


def test_the_order_of_a_pass_is_known_from_its_start():
    a, b = leaf(1.0), leaf(2.0)
    c, d = b.sin(), a.cos()
    out = c * d
    ran, known = [], []
    for x in (a, b, c, d, out):
        x.register_hook(lambda g, x=x: ran.append(edge_of_one(x)))
    out.register_hook(lambda g: known.append(weft._C._current_graph_task_execution_order()))
    d.register_hook(lambda g: known.append(weft._C._current_graph_task_execution_order()))
    with weft.autograd.set_multithreading_enabled(False):
        out.backward(retain_graph=True)
        assert known == [ran, ran]
        weft.autograd.grad(out, b)
    assert [type(node).__name__ for node in known[-1]] == ["MulBackward0", "SinBackward0", "AccumulateGrad"]
    with pytest.raises(RuntimeError, match="with multithreading disabled"):
        out.backward()
    with pytest.raises(RuntimeError, match="only be called during the backward pass"):
        weft._C._current_graph_task_execution_order()


def edge_of_one(x):
    return weft.autograd.graph.get_gradient_edge(x).node
