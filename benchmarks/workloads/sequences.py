"""Layers of sequences: an LSTM of 32 and 256 steps, attention, and a block of a transformer."""

import functools
import math

import numpy as np

from ..workload import Gradient

BATCH, INPUTS, HIDDEN = 32, 64, 128
HEADS, HEAD = 8, 64
WIDTH, POSITIONS, SEQUENCES, WIDER = 256, 128, 8, 1024


@functools.cache
def _layer(library, make):
    """The layer of a library, made once, and the names of its parameters."""
    layer = make(library)
    return layer, [name.rpartition(".")[::2] for name, _ in layer.named_parameters()]


def _called(library, make, parameters, x):
    """The layer on x. Its parameters are the leaves of the workload, which are the same in every call."""
    layer, names = _layer(library, make)
    for (path, name), parameter in zip(names, parameters):
        module = layer.get_submodule(path)
        if getattr(module, name) is not parameter:
            # A plain attribute: a parameter would be another leaf.
            delattr(module, name)
            setattr(module, name, parameter)
    return layer(x)


def _drawn(shapes):
    rng = np.random.default_rng(0)
    draws = {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
    # Weights as small as layers draw them, so that states and scores stay in their usual range.
    scales = {n: 1 / math.sqrt(s[-1]) if len(s) == 2 else 1.0 for n, s in shapes.items()}
    return {name: (draw * scales[name]).astype(np.float32) for name, draw in draws.items()}


# --- an LSTM ----------------------------------------------------------------------------------------------------------
def _lstm_layer(library):
    return library.nn.LSTM(INPUTS, HIDDEN)


def lstm(library, x, *parameters):
    return _called(library, _lstm_layer, parameters, x)[0]


def jax_lstm(jax, x, w_ih, w_hh, b_ih, b_hh):
    def step(state, gates):
        h, c = state
        i, f, g, o = jax.numpy.split(gates + h @ w_hh.T, 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jax.numpy.tanh(g)
        h = jax.nn.sigmoid(o) * jax.numpy.tanh(c)
        return (h, c), h

    start = jax.numpy.zeros((x.shape[1], HIDDEN), x.dtype)
    return jax.lax.scan(step, (start, start), x @ w_ih.T + b_ih + b_hh)[1]


def lstm_of(steps):
    shapes = {"x": (steps, BATCH, INPUTS), "w_ih": (4 * HIDDEN, INPUTS), "w_hh": (4 * HIDDEN, HIDDEN)}
    shapes |= {"b_ih": (4 * HIDDEN,), "b_hh": (4 * HIDDEN,), "cotangent": (steps, BATCH, HIDDEN)}
    return Gradient(
        f"lstm_{steps}",
        f"LSTM {INPUTS} to {HIDDEN} over {steps} steps of {BATCH} sequences, forward and backward",
        functools.partial(_drawn, shapes),
        tuple(shapes)[:-1],
        lstm,
        jax_lstm,
        # Sums over all steps and sequences, in whatever order a library takes them.
        tolerance=1e-4,
    )


# --- attention --------------------------------------------------------------------------------------------------------
def attention(library, q, k, v):
    return library.nn.functional.scaled_dot_product_attention(q, k, v)


def jax_attention(jax, q, k, v):
    weights = jax.nn.softmax(q @ jax.numpy.swapaxes(k, -1, -2) / math.sqrt(HEAD), axis=-1)
    return weights @ v


def attention_of(positions):
    shape = (1, HEADS, positions, HEAD)
    return Gradient(
        f"attention_{positions}",
        f"attention of {HEADS} heads of {HEAD} over {positions} positions, forward and backward",
        functools.partial(_drawn, dict.fromkeys(("q", "k", "v", "cotangent"), shape)),
        ("q", "k", "v"),
        attention,
        jax_attention,
        tolerance=1e-4,
    )


# --- a block of a transformer -----------------------------------------------------------------------------------------
def _block_layer(library):
    kind = library.nn.TransformerEncoderLayer
    return kind(WIDTH, WIDTH // HEAD, WIDER, 0.0, "gelu", batch_first=True, norm_first=True)


def block(library, x, *parameters):
    return _called(library, _block_layer, parameters, x)


def jax_block(jax, x, w_in, b_in, w_out, b_out, w_wide, b_wide, w_back, b_back, scale1, shift1, scale2, shift2):
    def norm(x, scale, shift):
        centred = x - x.mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * scale + shift

    def heads(x):
        return x.reshape(SEQUENCES, POSITIONS, WIDTH // HEAD, HEAD).transpose(0, 2, 1, 3)

    q, k, v = map(heads, jax.numpy.split(norm(x, scale1, shift1) @ w_in.T + b_in, 3, axis=-1))
    found = jax_attention(jax, q, k, v).transpose(0, 2, 1, 3).reshape(x.shape)
    x = x + found @ w_out.T + b_out
    wide = jax.nn.gelu(norm(x, scale2, shift2) @ w_wide.T + b_wide, approximate=False)
    return x + wide @ w_back.T + b_back


def _block_shapes():
    """In the order of the layer's parameters."""
    shapes = {"x": (SEQUENCES, POSITIONS, WIDTH), "w_in": (3 * WIDTH, WIDTH), "b_in": (3 * WIDTH,)}
    shapes |= {"w_out": (WIDTH, WIDTH), "b_out": (WIDTH,), "w_wide": (WIDER, WIDTH), "b_wide": (WIDER,)}
    shapes |= {"w_back": (WIDTH, WIDER), "b_back": (WIDTH,)}
    shapes |= dict.fromkeys(("scale1", "shift1", "scale2", "shift2"), (WIDTH,))
    return {**shapes, "cotangent": shapes["x"]}


LSTM_32, LSTM_256 = lstm_of(32), lstm_of(256)
ATTENTION_256, ATTENTION_1024 = attention_of(256), attention_of(1024)
TRANSFORMER_BLOCK = Gradient(
    "transformer_block",
    f"transformer block of width {WIDTH} on {SEQUENCES} sequences of {POSITIONS}, forward and backward",
    functools.partial(_drawn, _block_shapes()),
    tuple(_block_shapes())[:-1],
    block,
    jax_block,
    tolerance=1e-4,
)
