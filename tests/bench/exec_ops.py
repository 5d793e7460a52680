"""Every op next to the NumPy expression that a person would write for it: f32, 1M elements, the NumPy engine.

Interleaved medians of processor time.

OPENBLAS_NUM_THREADS=1 python -m tests.bench exec_ops
"""

from __future__ import annotations

import math
from time import process_time

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ptir_tools.core.arrays import numpy_dtype
from ptir_tools.core.dtypes import BF16, F16, F32, F64, I1, SI8, SI32
from ptir_tools.core.evaluate import Context
from ptir_tools.core.ir import Element
from ptir_tools.core.types import tensor
from ptir_tools.engines import RunOptions
from ptir_tools.engines.choose import optimized
from ptir_tools.engines.numpy import Executable
from tests.bench.exec import measure, program

N = 1024
SQUARE = ((F32, (N, N)),)
PAIR = SQUARE * 2
IMAGE = ((F32, (1, 128, 128, 64)),)


def _erf(x):
    """Abramowitz and Stegun 7.1.26: what is written where SciPy is not at hand."""
    t = 1 / (1 + np.float32(0.3275911) * np.abs(x))
    p = ((((1.061405429 * t - 1.453152027) * t) + 1.421413741) * t - 0.284496736) * t + 0.254829592
    return np.sign(x) * (1 - p * t * np.exp(-x * x))


def _layer_norm(x, g, b):
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d * d).mean(-1, keepdims=True) + np.float32(1e-5)) * g + b


def _scatter(kind):
    def run(x, i, u):
        out = x.copy()
        kind.at(out, (i, np.arange(N)), u)
        return out

    return run


def _put(x, i, u):
    out = x.copy()
    np.put_along_axis(out, i, u, 0)
    return out


def _rows_added(x, i, u):
    out = x.copy()
    np.add.at(out, i, u)
    return out


def _segments(x, i):
    out = np.zeros((64, x.shape[1]), np.float32)
    np.add.at(out, i, x)
    return out


def _segment_max(x, i):
    out = np.full((64, x.shape[1]), -np.inf, np.float32)
    np.maximum.at(out, i, x)
    return out


def _updated(x, u, s):
    out = x.copy()
    out[s[0] : s[0] + u.shape[0], s[1] : s[1] + u.shape[1]] = u
    return out


def _windowed(x, s):
    return x[s[0] : s[0] + 1000, s[1] : s[1] + 1000].copy()


def _as_int32(x):
    return np.clip(np.nan_to_num(x), -(2**31), 2**31 - 128).astype(np.int32)


def _top_k(x, k):
    order = np.argsort(-x, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(x, order, 1), order


def _pool(x, kind):
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-np.inf if kind == "max" else 0)
    seen = sliding_window_view(padded, (3, 3), (1, 2))[:, ::2, ::2]
    return getattr(seen, kind)((-2, -1))


def _patches(x):
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    seen = sliding_window_view(padded, (3, 3), (1, 2)).transpose(0, 1, 2, 4, 5, 3)
    return seen.reshape(*x.shape[:3], -1)


def _counted():
    return np.broadcast_to(np.arange(N, dtype=np.float32), (N, N)).copy()


def _philox():
    return np.random.Generator(np.random.Philox(1))


def _box_muller():
    u, v = _philox().random((2, N, N))
    return (np.sqrt(-2 * np.log(1 - u)) * np.cos(2 * np.pi * v)).astype(np.float32)


def _quantized(x):
    return np.clip(np.rint(x.astype(np.float64) / 0.05), -128, 127).astype(np.int8)


ROW = ((F32, (N,)),)
INDICES = (SI32, (N, N))
IDS = (SI32, (N,))
POOL = {"window_dims": (1, 3, 3, 1), "strides": (1, 2, 2, 1), "padding": ((0, 0), (1, 1), (1, 1), (0, 0))}
POOL |= {"base_dilation": (1, 1, 1, 1), "window_dilation": (1, 1, 1, 1)}
PATCHES = {"window": (3, 3), "padding": ((1, 1), (1, 1))}
ROWS = {"update_window_dims": (1,), "inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,)}
WINDOW = {"sizes": (1000, 1000)}
SCALE = {"scales": (0.05,), "zero_points": (0,)}

# name: (op, types of the operands, attributes, the expression)
OPS = {
    "neg": ("neg", SQUARE, {}, lambda x: -x),
    "abs": ("abs", SQUARE, {}, np.abs),
    "exp": ("exp", SQUARE, {}, np.exp),
    "log": ("log", SQUARE, {}, lambda x: np.log(x)),
    "tanh": ("tanh", SQUARE, {}, np.tanh),
    "erf": ("erf", SQUARE, {}, _erf),
    "rsqrt": ("rsqrt", SQUARE, {}, lambda x: 1 / np.sqrt(x)),
    "reciprocal": ("reciprocal", SQUARE, {}, lambda x: 1 / x),
    "add": ("add", PAIR, {}, lambda x, y: x + y),
    "sub": ("sub", PAIR, {}, lambda x, y: x - y),
    "mul": ("mul", PAIR, {}, lambda x, y: x * y),
    "div": ("div", PAIR, {}, lambda x, y: x / y),
    "maximum": ("maximum", PAIR, {}, np.maximum),
    "minimum": ("minimum", PAIR, {}, np.minimum),
    "clamp": ("clamp", SQUARE * 3, {}, np.clip),
    "compare_lt": ("compare_lt", PAIR, {}, lambda x, y: x < y),
    "compare_eq": ("compare_eq", PAIR, {}, lambda x, y: x == y),
    "select": ("select", ((I1, (N, N)), *PAIR), {}, np.where),
    "cast to f64": ("cast", SQUARE, {"dtype": F64}, lambda x: x.astype(np.float64)),
    "cast to f16": ("cast", SQUARE, {"dtype": F16}, lambda x: x.astype(np.float16)),
    "cast to bf16": ("cast", SQUARE, {"dtype": BF16}, lambda x: x.astype(numpy_dtype(BF16))),
    "cast to si32": ("cast", SQUARE, {"dtype": SI32}, _as_int32),
    "cast to si8": ("cast", SQUARE, {"dtype": SI8}, lambda x: np.clip(np.nan_to_num(x), -128, 127).astype(np.int8)),
    "cast to i1": ("cast", SQUARE, {"dtype": I1}, lambda x: x != 0),
    "cast from i1": ("cast", ((I1, (N, N)),), {"dtype": F32}, lambda x: x.astype(np.float32)),
    "cast from si32": ("cast", (INDICES,), {"dtype": F32}, lambda x: x.astype(np.float32)),
    "dot_general": ("dot_general", PAIR, {"contract_lhs": (1,), "contract_rhs": (0,)}, lambda x, y: x @ y),
    "layer_norm": ("layer_norm", (*SQUARE, *ROW * 2), {"epsilon": 1e-5}, _layer_norm),
    "transpose": ("transpose", SQUARE, {"perm": (1, 0)}, lambda x: np.ascontiguousarray(x.T)),
    "reshape": ("reshape", SQUARE, {"new_shape": (N * N,)}, lambda x: x.reshape(-1).copy()),
    "broadcast_to": ("broadcast_to", ROW, {"result_shape": (N, N)}, lambda x: np.broadcast_to(x, (N, N)).copy()),
    "slice": ("slice", SQUARE, {"starts": (3, 5), "sizes": (1000, 1000)}, lambda x: x[3:1003, 5:1005].copy()),
    "concat rows": ("concat", ((F32, (N // 2, N)),) * 2, {"axis": 0}, lambda *xs: np.concatenate(xs, 0)),
    "concat columns": ("concat", ((F32, (N, N // 2)),) * 2, {"axis": 1}, lambda *xs: np.concatenate(xs, 1)),
    "pad": ("pad", SQUARE, {"low": (1, 2), "high": (3, 4)}, lambda x: np.pad(x, ((1, 3), (2, 4)))),
    "tile": ("tile", ((F32, (N // 2, N // 2)),), {"repeats": (2, 2)}, lambda x: np.tile(x, (2, 2))),
    "reduce_window sum": ("reduce_window", IMAGE, POOL | {"reduce": "sum"}, lambda x: _pool(x, "sum")),
    "reduce_window max": ("reduce_window", IMAGE, POOL | {"reduce": "max"}, lambda x: _pool(x, "max")),
    "extract_patches": ("extract_patches", IMAGE, PATCHES, _patches),
    "take": ("take", (*SQUARE, IDS), {}, lambda x, i: x[i]),
    "gather rows": ("gather", (*SQUARE, INDICES), {"axis": 0}, lambda x, i: np.take_along_axis(x, i, 0)),
    "gather columns": ("gather", (*SQUARE, INDICES), {"axis": 1}, lambda x, i: np.take_along_axis(x, i, 1)),
    "dynamic_slice": ("dynamic_slice", (*SQUARE, (SI32, (2,))), WINDOW, _windowed),
    "dynamic_update_slice": ("dynamic_update_slice", (*SQUARE, (F32, (1000, 1000)), (SI32, (2,))), WINDOW, _updated),
    "quantize": ("quantize", SQUARE, {"output_dtype": SI8, **SCALE}, _quantized),
    "dequantize": ("dequantize", ((SI8, (N, N)),), SCALE, lambda x: (x * 0.05).astype(np.float32)),
    "scatter_reduce add": ("scatter_reduce", (*SQUARE, INDICES, *SQUARE), {"axis": 0, "reduce": "add"}, _scatter(np.add)),
    "scatter_reduce max": ("scatter_reduce", (*SQUARE, INDICES, *SQUARE), {"axis": 0, "reduce": "max"}, _scatter(np.maximum)),
    "scatter_reduce replace": ("scatter_reduce", (*SQUARE, INDICES, *SQUARE), {"axis": 0, "reduce": "replace"}, _put),
    "scatter_add": ("scatter_add", (*SQUARE, IDS, *SQUARE), ROWS, _rows_added),
    "top_k 8": ("top_k", SQUARE, {"k": 8}, lambda x: _top_k(x, 8)),
    "segment_reduce sum": ("segment_reduce", (*SQUARE, IDS), {"num_segments": 64}, _segments),
    "segment_reduce max": ("segment_reduce", (*SQUARE, IDS), {"num_segments": 64, "kind": "max"}, _segment_max),
    "reduce_sum rows": ("reduce_sum", SQUARE, {"axes": (1,)}, lambda x: x.sum(1)),
    "reduce_sum columns": ("reduce_sum", SQUARE, {"axes": (0,)}, lambda x: x.sum(0)),
    "reduce_sum all": ("reduce_sum", SQUARE, {"axes": (0, 1)}, lambda x: x.sum()),
    "reduce_max rows": ("reduce_max", SQUARE, {"axes": (1,)}, lambda x: x.max(1)),
    "reduce_min columns": ("reduce_min", SQUARE, {"axes": (0,)}, lambda x: x.min(0)),
    "argmax rows": ("argmax", SQUARE, {"axis": 1}, lambda x: x.argmax(1)),
    "argmax columns": ("argmax", SQUARE, {"axis": 0}, lambda x: x.argmax(0)),
    "iota": ("iota", (), {"shape": (N, N), "dtype": F32, "axis": 1}, _counted),
    "rng_uniform": ("rng_uniform", (), {"shape": (N, N), "dtype": F32}, lambda: _philox().random((N, N)).astype(np.float32)),
    "rng_normal": ("rng_normal", (), {"shape": (N, N), "dtype": F32}, _box_muller),
}  # fmt: skip


def data(rng, dtype, shape, name):
    """Operands that every op takes: positive floats where a logarithm is taken, indices that hit rows more than once."""
    if dtype is SI32:
        return rng.integers(
            0, {"segment_reduce": 64, "dynamic_slice": 24, "dynamic_update_slice": 24}.get(name, N), shape, np.int32
        )
    if dtype is I1:
        return rng.random(shape) < 0.5
    if dtype is SI8:
        return rng.integers(-128, 128, shape, np.int8)
    x = rng.standard_normal(shape, np.float32)
    return np.abs(x) if name in ("log", "rsqrt") else x


def contenders(name):
    """The op on the NumPy engine, and the expression: calls without arguments."""
    op, types, attributes, plain = OPS[name]
    made, b, _ = program()
    params = [b.param(tensor(*t), f"p{i}") for i, t in enumerate(types)]
    out = b.op(op, *params, **attributes)
    b.results(*([Element(out, 0), Element(out, 1)] if op == "top_k" else [out]))
    rng = np.random.default_rng(0)
    inputs = [data(rng, *t, op) for t in types]
    ready = optimized(made, RunOptions())
    bound, context = Executable(ready, ready.main, RunOptions()).bind(inputs), Context()
    return {"ours": lambda: bound(context), "expression": lambda: plain(*inputs)}


def rows(rounds=11, wanted=()):
    """Each op next to its expression, milliseconds; last, the geometric mean of the ratios, in percent."""
    ratios = []
    with np.errstate(all="ignore"):
        for name in wanted or OPS:
            found = measure(contenders(name), rounds, process_time)
            ratios.append(found["ours"] / found["expression"])
            yield name, found["ours"], found["expression"], "ms"
    yield "geometric mean of the ratios", 100 * math.exp(np.mean(np.log(ratios))), 100.0, "%"
