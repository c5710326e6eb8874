"""Code of users' that is a copy of PyTorch's own, changed by them: what it imports from inside is there."""

import copy
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from weft import nn
from weft.nn.modules.transformer import (
    _detect_is_causal_mask,
    _generate_square_subsequent_mask,
    _get_activation_fn,
    _get_clones,
    _get_seq_len,
)
from weft.optim.optimizer import (
    Optimizer,
    ParamsT,
    _default_to_fused_or_foreach,
    _disable_dynamo_if_unsupported,
    _dispatch_sqrt,
    _get_scalar_dtype,
    _get_value,
    _stack_if_compiling,
    _to_scalar,
    _use_grad_for_differentiable,
    _view_as_real,
)


class CopiedAdam(Optimizer):
    """Adam as PyTorch writes it for single tensors."""

    def __init__(self, params: ParamsT, lr=1e-2, betas=(0.9, 0.999), eps=1e-8, differentiable=False):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "differentiable": differentiable})

    @_use_grad_for_differentiable
    def step(self, closure=None):
        self._cuda_graph_capture_health_check()
        for group in self.param_groups:
            params, grads, averages, squares, steps = [], [], [], [], []
            for p in group["params"]:
                if p.grad is not None:
                    state = self.state[p]
                    if not state:
                        state["step"] = weft.tensor(0.0, dtype=_get_scalar_dtype())
                        state["exp_avg"] = weft.zeros_like(p, memory_format=weft.preserve_format)
                        state["exp_avg_sq"] = weft.zeros_like(p, memory_format=weft.preserve_format)
                    params.append(p)
                    grads.append(p.grad)
                    averages.append(state["exp_avg"])
                    squares.append(state["exp_avg_sq"])
                    steps.append(state["step"])
            assert _default_to_fused_or_foreach(params, group["differentiable"]) == (False, False)
            adam(params, grads, averages, squares, steps, group)


@_disable_dynamo_if_unsupported()
def adam(params, grads, averages, squares, steps, group):
    beta1, beta2 = group["betas"]
    _view_as_real(params, grads, averages, squares)
    for p, grad, average, square, count in zip(params, grads, averages, squares, steps):
        count += 1
        average.lerp_(grad, 1 - beta1)
        square.mul_(beta2).addcmul_(grad, grad.conj(), value=1 - beta2)
        step = _get_value(count)
        root = _dispatch_sqrt(1 - beta2**step)
        (denominator,) = _stack_if_compiling([(square.sqrt() / root).add_(group["eps"])])
        p.addcdiv_(average, denominator, value=-_to_scalar(group["lr"]) / (1 - beta1**step))


def _trained(make, compiled):
    weft.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    optimizer = make(net.parameters())
    x, y = weft.randn(6, 3), weft.randn(6, 2)

    def step():
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = weft.compile(step) if compiled else step
    return [run().item() for _ in range(5)], [p.detach().numpy() for p in net.parameters()]


def test_a_copy_of_adam():
    losses, params = _trained(CopiedAdam, False)
    of_weft, expected = _trained(lambda params: weft.optim.Adam(params, lr=1e-2), False)
    np.testing.assert_allclose(losses, of_weft, rtol=1e-6)
    for x, y in zip(params, expected):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-7)
    compiled, after = _trained(CopiedAdam, True)
    assert compiled == losses
    assert all(x.tobytes() == y.tobytes() for x, y in zip(params, after))


def test_lists_of_tensors_in_groups():
    wide = weft.ones(3, dtype=weft.float64)
    tensors = [weft.ones(2), wide, weft.ones(1)]
    groups = Optimizer._group_tensors_by_device_and_dtype([tensors, [None] * 3, []], with_indices=True)
    (first, places), (second, place) = groups.values()
    assert list(groups) == [(weft.device("cpu"), weft.float32), (weft.device("cpu"), weft.float64)]
    assert [x.shape for x in first[0]] == [(2,), (1,)]
    assert (first[1:], places) == ([[None, None], []], [0, 2])
    assert second[0][0] is wide and place == [1]


def test_complex_parameters_as_real_ones():
    params, grads = [weft.ones(2), weft.ones(2, dtype=weft.complex64)], [weft.ones(2)] * 2
    grads[1] = params[1] * 2
    _view_as_real(params, grads)
    assert [p.shape for p in params] == [p.shape for p in grads] == [(2,), (2, 2)]


def test_wrappers_around_an_optimizer():
    class Twice(Optimizer):
        def __init__(self, optimizer):
            self._patch_step_function()
            self.optimizer, self.param_groups = optimizer, optimizer.param_groups

        def step(self, closure=None):
            self.optimizer.step()
            self.optimizer.step()

    x = nn.Parameter(weft.zeros(1))
    x.grad = weft.ones(1)
    Twice(weft.optim.SGD([x], lr=1.0)).step()
    assert x.item() == -2


def test_a_list_of_parameters_is_an_iterable_of_them():
    params = nn.ParameterList([weft.ones(2), weft.ones(1)])
    assert weft.optim.SGD(params, lr=0.1).param_groups[0]["params"] == list(params)
    with pytest.raises(TypeError, match="got a ModuleList; pass its parameters"):
        weft.optim.SGD(nn.ModuleList([nn.Linear(1, 1)]), lr=0.1)


class CopiedLayer(nn.TransformerEncoderLayer):
    """The forward that copies begin with."""

    def forward(self, src, src_mask=None, src_key_padding_mask=None, is_causal=False):
        is_causal = _detect_is_causal_mask(src_mask, None, _get_seq_len(src, self.self_attn.batch_first))
        assert is_causal == (src_mask is not None)
        return super().forward(src, src_mask, src_key_padding_mask, is_causal)


def test_a_copy_of_an_encoder_layer():
    layers = _get_clones(CopiedLayer(4, 2, 8, 0.0, _get_activation_fn("gelu"), batch_first=True), 2)
    x, mask = weft.randn(2, 3, 4), _generate_square_subsequent_mask(3)
    expected = copy.deepcopy(layers[0])
    expected.__class__ = nn.TransformerEncoderLayer
    assert weft.equal(layers[0](x, mask), expected(x, mask, is_causal=True))
    layers[1](x)
    assert _get_seq_len(x, False) == 2 and _get_seq_len(x[0], True) == 3
    assert not _detect_is_causal_mask(mask + 1) and _detect_is_causal_mask(None, True)
    with pytest.raises(RuntimeError, match="activation should be relu/gelu, not tanh"):
        _get_activation_fn("tanh")


def test_marks_for_tracers_change_nothing():
    from weft._subclasses.fake_tensor import is_fake
    from weft.fx.experimental.proxy_tensor import get_proxy_mode
    from weft.hub import HASH_REGEX
    from weft.jit.annotations import List

    @weft.fx.wrap
    def twice(x: List[Any]):
        return x + x

    assert twice(weft.ones(1)).item() == 2 and not is_fake(weft.ones(1)) and get_proxy_mode() is None
    assert HASH_REGEX.search("resnet18-5c106cde.pth").group(1) == "5c106cde"
    with pytest.raises(AttributeError, match=r"weft\.fx\.symbolic_trace: PyTorch 2\.13 has it, weft will not have it"):
        weft.fx.symbolic_trace(twice)
    with pytest.raises(ImportError, match=r"weft\.fx\.GraphModule: PyTorch 2\.13 has it"):
        from weft.fx import GraphModule  # noqa: F401


# --- PyTorch's dispatcher ---------------------------------------------------------------------------------------------
def test_what_needs_a_dispatcher_says_so():
    from weft.utils._mode_utils import no_dispatch
    from weft.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    mode = r"Counting is a TorchDispatchMode, and .*TorchFunctionMode"
    with pytest.raises(NotImplementedError, match=mode), Counting():
        weft.ones(1)

    class Logged(weft.Tensor):
        @staticmethod
        def __new__(cls, x):
            return weft.Tensor._make_wrapper_subclass(cls, x.size(), dtype=x.dtype)

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    class Wrapper(weft.Tensor):
        pass

    x = weft.ones(1)
    makers = (Logged, lambda x: x.as_subclass(Logged), lambda x: weft.Tensor._make_subclass(Logged, x))
    for make in makers:
        with pytest.raises(
            NotImplementedError, match=r"Logged has a __torch_dispatch__, .* Write a __torch_function__"
        ):
            make(x)
    with pytest.raises(NotImplementedError, match="Wrapper would have no memory of its own"):
        weft.Tensor._make_wrapper_subclass(Wrapper, x.size())
    assert not is_traceable_wrapper_subclass(x.as_subclass(Wrapper))
    with no_dispatch():
        assert (x + x).item() == 2


def test_questions_that_libraries_ask_of_tracers():
    asked = []

    def f(x):
        asked.append(weft._C._are_functorch_transforms_active())
        return (x * x).sum()

    weft.func.grad(f)(weft.ones(2))
    f(weft.ones(2))
    assert asked == [True, False]
    assert not isinstance(weft.ones(2).shape[0], (weft.SymInt, weft.SymFloat, weft.SymBool))
    weft._assert_async(weft.ones(1) > 0, "positive")
    check = weft.compile(lambda x: (weft._assert_async((x > 0).all(), "positive"), x * 2)[1])
    assert check(weft.ones(2)).tolist() == [2, 2]
    for run in (check, weft.compile(check), lambda x: weft._assert_async((x > 0).all(), "positive")):
        with pytest.raises(RuntimeError, match="positive"):
            run(-weft.ones(2))
