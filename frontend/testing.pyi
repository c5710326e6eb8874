"""Written by docs/stubs.py from weft's own signatures: change those, and run it again."""

import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from typing_extensions import Self

from . import Tensor as Tensor

def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: Any = ...,
    atol: Any = ...,
    equal_nan: builtins.bool = ...,
    msg: builtins.str = ...,
) -> Any: ...
def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: builtins.bool = ...,
    rtol: Any = ...,
    atol: Any = ...,
    equal_nan: builtins.bool = ...,
    check_device: builtins.bool = ...,
    check_dtype: builtins.bool = ...,
    check_layout: builtins.bool = ...,
    check_stride: builtins.bool = ...,
    msg: Any = ...,
) -> Any: ...
def gradcheck(
    func: Any,
    inputs: Any,
    *,
    eps: Any = ...,
    atol: Any = ...,
    rtol: Any = ...,
    raise_exception: builtins.bool = ...,
    nondet_tol: Any = ...,
    check_undefined_grad: builtins.bool = ...,
    check_grad_dtypes: builtins.bool = ...,
    check_batched_grad: builtins.bool = ...,
    check_batched_forward_grad: builtins.bool = ...,
    check_forward_ad: builtins.bool = ...,
    check_backward_ad: builtins.bool = ...,
    fast_mode: builtins.bool = ...,
    masked: Any = ...,
) -> Any: ...
def gradgradcheck(
    func: Any,
    inputs: Any,
    grad_outputs: Any = ...,
    *,
    eps: Any = ...,
    atol: Any = ...,
    rtol: Any = ...,
    gen_non_contig_grad_outputs: builtins.bool = ...,
    raise_exception: builtins.bool = ...,
    nondet_tol: Any = ...,
    check_undefined_grad: builtins.bool = ...,
    check_grad_dtypes: builtins.bool = ...,
    check_batched_grad: builtins.bool = ...,
    check_fwd_over_rev: builtins.bool = ...,
    check_rev_over_rev: builtins.bool = ...,
    fast_mode: builtins.bool = ...,
    masked: builtins.bool = ...,
) -> Any: ...
def make_tensor(
    *shape: Any,
    dtype: Any,
    device: Any = ...,
    low: Any = ...,
    high: Any = ...,
    requires_grad: builtins.bool = ...,
    **options: Any,
) -> Any: ...
