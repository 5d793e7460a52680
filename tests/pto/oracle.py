"""What every PTO tile op computes, written a second time: on NumPy's float64 and int64, rounded once to the element type.

Each table maps op names to functions of widened arrays. `pto/test_random.py` builds programs of them and knows what they make.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i32": np.int32, "i8": np.int8, "u8": np.uint8}
FLOATS = ("f32", "f16", "bf16")
INTEGERS = ("i32", "i8", "u8")


def wide(x: Any) -> Any:
    return x.astype(np.float64 if x.dtype not in map(np.dtype, (DTYPES[d] for d in INTEGERS)) else np.int64)


def rounded(x: Any, dtype: str) -> Any:
    """float64 or int64 as `dtype`: to nearest even, integers by their low bits."""
    with np.errstate(all="ignore"):
        if dtype == "bf16":  # through 8 bits of significand: a cast by way of float32 would round twice
            fraction, exponent = np.frexp(x)
            x = np.ldexp(np.rint(np.ldexp(fraction, 8)), exponent - 8)
        return np.asarray(x).astype(DTYPES[dtype])


def floor_mod(a: Any, b: Any) -> Any:
    """The remainder with the sign of `b`."""
    r = np.fmod(a, b)
    return np.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)


def in_order(fn: Any) -> Any:
    """A reduction by steps from left to right, each rounded to f32 (or exact for integers)."""

    def reduce(x: Any, axis: int) -> Any:
        parts = np.moveaxis(x, axis, 0)
        total = parts[0]
        for part in parts[1:]:
            total = fn(total, part)
            total = total.astype(np.float32).astype(np.float64) if total.dtype.kind == "f" else total
        return np.expand_dims(total, axis)

    return reduce


ANY, FLOAT, INTEGER = "any", "float", "integer"
UNARY = {
    "exp": (FLOAT, np.exp),
    "log": (FLOAT, np.log),
    "sqrt": (FLOAT, np.sqrt),
    "rsqrt": (FLOAT, lambda x: np.sqrt(x) ** -1.0),
    "recip": (FLOAT, lambda x: np.divide(1.0, x)),
    "abs": (ANY, lambda x: np.where(x < 0, -x, x)),
    "neg": (ANY, lambda x: 0 - x),
    "relu": (ANY, lambda x: np.where(x < 0, 0, x)),
    "not": (INTEGER, lambda x: -x - 1),
}
BINARY = {
    "add": (ANY, np.add),
    "sub": (ANY, np.subtract),
    "mul": (ANY, np.multiply),
    "max": (ANY, lambda a, b: np.where((a > b) | (a != a), a, b)),
    "min": (ANY, lambda a, b: np.where((a < b) | (a != a), a, b)),
    "div": (FLOAT, np.divide),
    "rem": (FLOAT, floor_mod),
    "fmod": (FLOAT, np.fmod),
    "pow": (FLOAT, np.float_power),
    "prelu": (FLOAT, lambda x, s: np.where(x > 0, x, s * x)),
    "and": (INTEGER, np.bitwise_and),
    "or": (INTEGER, np.bitwise_or),
    "xor": (INTEGER, np.bitwise_xor),
}
TERNARY = {"addc": (ANY, lambda a, b, c: a + b + c), "subc": (ANY, lambda a, b, c: a - b + c)}
SCALAR = {
    "adds": BINARY["add"],
    "subs": BINARY["sub"],
    "muls": BINARY["mul"],
    "divs": BINARY["div"],
    "maxs": BINARY["max"],
    "mins": BINARY["min"],
    "rems": BINARY["rem"],
    "fmods": BINARY["fmod"],
    "pows": BINARY["pow"],
    "lrelu": BINARY["prelu"],
    "ands": BINARY["and"],
    "ors": BINARY["or"],
    "xors": BINARY["xor"],
    "shls": (INTEGER, lambda a, b: a * 2**b),
    "shrs": (INTEGER, lambda a, b: np.floor_divide(a, 2**b)),
}
SHIFTS = {"shl": SCALAR["shls"], "shr": SCALAR["shrs"]}
PARTIAL = {f"part{name}": BINARY[name] for name in ("add", "mul", "max", "min")}
REDUCTIONS = {
    "sum": (ANY, in_order(np.add)),
    "prod": (ANY, in_order(np.multiply)),
    "max": (ANY, lambda x, axis: np.max(x, axis, keepdims=True)),
    "min": (ANY, lambda x, axis: np.min(x, axis, keepdims=True)),
}
EXPANDED = {
    **{name: BINARY[name] for name in ("add", "sub", "mul", "div", "max", "min")},
    "expdif": (FLOAT, lambda a, b: np.exp(a - b)),
}
COMPARISONS = {"EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal}
