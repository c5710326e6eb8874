"""The bound on the error of each function, in units in the last place of the exact result.

`tests/test_vmath.py` measures them; the docstrings of the functions say the same in words.
"""

ULP_BOUNDS = {
    ("exp", "f32"): 1.0,
    ("exp", "f64"): 1.0,
    ("expm1", "f32"): 1.5,
    ("expm1", "f64"): 1.5,
    ("exp2", "f32"): 1.1,
    ("exp2", "f64"): 1.0,
    ("log", "f32"): 1.0,
    ("log", "f64"): 1.0,
    ("log1p", "f32"): 1.0,
    ("log1p", "f64"): 1.0,
    ("log2", "f32"): 1.5,
    ("log2", "f64"): 1.5,
    ("log10", "f32"): 1.1,
    ("log10", "f64"): 1.1,
    ("tanh", "f32"): 2.8,
    ("tanh", "f64"): 2.8,
    ("sigmoid", "f32"): 2.3,
    ("sigmoid", "f64"): 2.3,
    ("erf", "f32"): 3.0,
    ("erf", "f64"): 3.0,
    ("sin", "f32"): 2.1,
    ("sin", "f64"): 2.1,
    ("cos", "f32"): 2.1,
    ("cos", "f64"): 2.1,
    ("tan", "f32"): 3.5,
    ("tan", "f64"): 3.0,
    ("pow", "f32"): 1.0,
    ("pow", "f64"): 1.1,
}
