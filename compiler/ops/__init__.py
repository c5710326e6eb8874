"""The op table; table.py says what an entry holds. Importing this package fills `TABLE` with what most programs use;
modules of LATER are imported for whoever asks for one of their entries, or for all."""

from ..later import imported
from . import (
    arithmetic,
    bessel,
    comparison,
    complex_numbers,
    contraction,
    derived,
    division,
    indexing,
    neural,
    parts,
    pointwise,
    random,
    reduction,
    reinterpreted,
    rows,
    scattering,
    source,
    special,
    spelling,
    statistics,
    strided,
    transcendental,
    view,
)
from .table import TABLE, Meta, Op, OpError, Sample

# The entries of modules that are imported later: few programs use them that do not import what is made of them.
LATER = {
    "attention": """
        attention_rows masked_attention_rows attention_cotangents masked_attention_cotangents
        attention_gradient_in_products attention_gradient attention
    """,
    "convolution": "convolution convolution_input convolution_weight",
    "cylinder": """
        bessel_j0 bessel_j1 bessel_y0 bessel_y1 modified_bessel_k0 modified_bessel_k1 scaled_modified_bessel_k0
        scaled_modified_bessel_k1 airy_ai
    """,
    "decompositions": """
        settled_phase linalg_qr geqrf linalg_eigh linalg_eigvalsh linalg_svd linalg_svdvals lu_order
        lu_factor_by_elimination linalg_lu_factor
    """,
    "direct_convolution": "direct_convolution direct_convolution_input direct_convolution_weight rearranged",
    "distances": "cdist",
    "eigenvalues": "linalg_eig linalg_eigvals",
    "extended": "extended",
    "fourier": "fft_c2c fft_r2c fft_c2r",
    "linear_algebra": """
        inv_by_lapack linalg_inv cofactors_by_lapack cofactors det_by_lapack linalg_det slogdet_by_lapack
        linalg_slogdet solve_by_lapack linalg_solve solve_triangular_by_lapack solve_triangular cholesky_by_lapack
        linalg_cholesky linalg_pinv linalg_lstsq matrix_exp
    """,
    "normalization": "batch_norm group_norm normalized",
    "ordering": """
        sort_rows top_rows argsort first_positions ordered one_of_equals position_of_rank median_index mode_index
        searchsorted_by_numpy search_rows searchsorted
    """,
    "orthogonal": """
        polynomial_derivative chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v
        chebyshev_polynomial_w shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u
        shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he
        laguerre_polynomial_l legendre_polynomial_p
    """,
    "packed": "result",
    "pooling": "max_pool_index max_pool window_sum",
    "recurrent": "rnn_gradient lstm_gradient gru_gradient rnn lstm gru",
    "resampling": "resized sampled",
    "scan": """
        cumsum_rows cumsum_columns cumsum recurrence_rows recurrence_columns recurrence cumprod_rows cumprod_columns
        cumprod logcumsumexp_rows logcumsumexp cummax_index_by_numpy cummax_index_rows cummax_index
        cummin_index_by_numpy cummin_index_rows cummin_index
    """,
    "small_matrices": "succeeded cholesky_rows triangular_rows solve_rows pivots_rows lu_rows cofactors_rows",
    "symmetric": "linalg_ldl_factor ldl_solve",
    "windows": "windows unfold overlap_add constant_pad_nd",
}
TABLE.later.update({name: f"{__name__}.{module}" for module, names in LATER.items() for name in names.split()})
OWN = frozenset([*(op.name for op in TABLE.loaded()), *TABLE.later])  # not what users add

__all__ = [
    "OWN",
    "TABLE",
    "Meta",
    "Op",
    "OpError",
    "Sample",
    "arithmetic",
    "attention",
    "bessel",
    "comparison",
    "complex_numbers",
    "contraction",
    "convolution",
    "cylinder",
    "decompositions",
    "derived",
    "distances",
    "extended",
    "fourier",
    "indexing",
    "linear_algebra",
    "neural",
    "normalization",
    "ordering",
    "orthogonal",
    "parts",
    "pointwise",
    "pooling",
    "random",
    "recurrent",
    "reduction",
    "reinterpreted",
    "resampling",
    "rows",
    "division",
    "scan",
    "scattering",
    "source",
    "special",
    "spelling",
    "statistics",
    "strided",
    "symmetric",
    "transcendental",
    "view",
    "windows",
]


def __getattr__(name):
    if name in LATER:
        return imported(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
