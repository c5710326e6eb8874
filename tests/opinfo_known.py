"""What of PyTorch's OpInfo samples weft does not pass, and why: ops that are absent, and kinds of checks per op."""

ABSENT = {
    "slice": "x[a:b] under an internal name",
}

_TRIANGLE = "PyTorch's derivative has elements in the triangle that is not read"
_MEMORY = "as_strided is a copy, and about the elements of the tensor alone: docs/differences.md"
_ROUNDED = "PyTorch's float32 result has fewer correct digits: docs/differences.md"

KNOWN = {
    **dict.fromkeys(str.split("cholesky_inverse cholesky_solve"), {"backward": _TRIANGLE, "second": _TRIANGLE}),
    **dict.fromkeys(
        str.split("polygamma special.polygamma matrix_exp special.bessel_j0 special.bessel_y1"),
        {"forward": _ROUNDED, "inplace": _ROUNDED},
    ),
    **dict.fromkeys(
        str.split("__radd__ __rmul__ __rand__ __ror__ __rxor__"),
        {"errors": "methods of Python that are called as functions take a number first"},
    ),
    "as_strided": {"forward": _MEMORY, "backward": _MEMORY, "second": _MEMORY, "compiled": _MEMORY},
    "as_strided_scatter": dict.fromkeys(
        ("backward", "second"), "PyTorch's derivative reaches elements that are overwritten"
    ),
    "cov": {"second": "PyTorch rounds weights of float32 before their product"},
    "linalg.pinv": dict.fromkeys(("backward", "second"), "hermitian: PyTorch's derivative is not made symmetric"),
    "nn.functional.linear_cross_entropy": {"second": "PyTorch's loss in chunks has second derivatives of zero"},
    **dict.fromkeys(
        ("nn.functional.interpolate", "nn.functional.upsample_bilinear"),
        {"types": "of uint8 PyTorch's weights have fewer digits: docs/differences.md"},
    ),
    "narrow_copy": {"errors": "a dimension out of range is an IndexError everywhere"},
    "nn.functional.local_response_norm": {"forward": "PyTorch rounds means of integers"},
    "sum_to_size": {"forward": "PyTorch sums to int64 where the size is () alone"},
}
