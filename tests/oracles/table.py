"""Which dtypes each op takes: the table of text PTIR, row by row. Any other dtype is `DTypeNotSupported`."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.ptir.oracle import ALL, COMPLEX, FLOATS, INTEGERS, NUMERIC, SIGNED

REAL = INTEGERS + FLOATS
INEXACT = FLOATS + COMPLEX


class Row(NamedTuple):
    """An op, with the attributes that decide its dtypes, and the dtypes of its data operands (of its result, if it has none)."""

    op: str
    dtypes: tuple[str, ...]
    attrs: dict[str, Any] = {}  # noqa: RUF012  (never changed)

    def __str__(self) -> str:
        return "-".join([self.op, *map(str, self.attrs.values())])


_DTYPES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("neg", SIGNED + INEXACT),
    ("abs", SIGNED + FLOATS),
    ("exp log tanh rsqrt reciprocal", INEXACT),
    ("erf layer_norm quantize rng_uniform rng_normal", FLOATS),
    ("add sub mul div reduce_sum dot_general scatter_add", NUMERIC),
    ("maximum minimum clamp compare_lt compare_le compare_ge compare_gt reduce_max reduce_min argmax top_k iota", REAL),
    ("compare_eq compare_ne select stop_gradient take cast constant", ALL),
    ("reshape transpose broadcast_to slice concat tile pad gather dynamic_slice dynamic_update_slice extract_patches", ALL),
    ("requantize dequantize", INTEGERS),
    ("cond while scan", ALL),
    ("sin cos tan asin acos atan sinh cosh asinh acosh atanh log1p expm1", INEXACT),
    ("cbrt floor ceil round_even round_away is_finite atan2", FLOATS),
    ("sign", SIGNED + FLOATS),
    ("pow reduce_prod", NUMERIC),
    ("rem mod bitcast argmin", REAL),
    ("bitwise_and bitwise_or bitwise_xor bitwise_not reduce_and reduce_or reduce_xor", ("i1", *INTEGERS)),
    ("erf_inv lgamma digamma nextafter reduce_precision", FLOATS),
    ("real imag", COMPLEX),
    ("complex", ("f32", "f64")),
    ("cumsum cumprod", NUMERIC),
    ("cummax cummin", REAL),
    ("sort", ("i1", *REAL)),
    ("shift_left shift_right_logical shift_right_arithmetic popcount count_leading_zeros", INTEGERS),
)
_KINDS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("scatter_reduce", "reduce", "add", NUMERIC),
    ("scatter_reduce", "reduce", "max min", REAL),
    ("scatter_reduce", "reduce", "replace", ALL),
    ("reduce_window", "reduce", "sum", NUMERIC),
    ("reduce_window", "reduce", "max min", REAL),
    ("segment_reduce", "kind", "sum", NUMERIC),
    ("segment_reduce", "kind", "max", REAL),
    ("scatter", "reduce", "replace", ALL),
    ("scatter", "reduce", "add mul", NUMERIC),
    ("scatter", "reduce", "max min", REAL),
    ("scatter", "reduce", "and or xor", ("i1", *INTEGERS)),
)

ROWS = [
    *(Row(op, dtypes) for ops, dtypes in _DTYPES for op in ops.split()),
    *(Row(op, dtypes, {key: kind}) for op, key, kinds, dtypes in _KINDS for kind in kinds.split()),
]
