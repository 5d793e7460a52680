"""What ops give, said in StableHLO and evaluated by the reference interpreter that ships inside jaxlib.

What a compiler may accumulate in more precision is evaluated in f64; all else in its own dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from math import inf
from typing import Any

import numpy as np

from ptir_tools.core.lazy import lazy
from tests.oracles.by_hand import start_of
from tests.oracles.cases import Case
from tests.ptir.oracle import COMPLEX, FLOATS, INTEGERS, NAME, NUMPY, UNSIGNED

mlir, ir = lazy("jax._src.interpreters.mlir"), lazy("jaxlib.mlir.ir")
stablehlo = lazy("jaxlib.mlir.dialects.stablehlo")
_SPELLED = {"fp8_e4m3": "f8E4M3FN", "fp8_e5m2": "f8E5M2", "cf32": "complex<f32>", "cf64": "complex<f64>", "i1": "i1"}


def tensor(dtype: str, shape: Any) -> str:
    """The type in MLIR, where integers without sign are signed."""
    element = _SPELLED.get(dtype, dtype[1:] if dtype.startswith("s") else dtype)
    return f"tensor<{''.join(f'{n}x' for n in shape)}{element}>"


@dataclass(slots=True, frozen=True)
class Value:
    """An SSA value."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def type(self) -> str:
        return tensor(self.dtype, self.shape)


@dataclass(slots=True)
class Body:
    """The function that is written."""

    lines: list[str] = field(default_factory=list)

    def op(self, text: str, dtype: str, shape: Any) -> Value:
        """An op that gives `dtype` and `shape`; `text` holds `->` for the result's type."""
        value = Value(f"%{len(self.lines)}", dtype, tuple(shape))
        self.lines.append(f"{value.name} = stablehlo.{text.replace('->', '-> ' + value.type)}")
        return value

    def plain(self, name: str, *xs: Value) -> Value:
        """An op whose operands and result have one type."""
        return self.op(f"{name} {', '.join(x.name for x in xs)} : {xs[0].type}", xs[0].dtype, xs[0].shape)

    def generic(self, text: str, operands: list[Value], attrs: str, dtype: str, shape: Any) -> Value:
        """An op in MLIR's generic form: its name and, behind a blank, its region if it has one."""
        value = Value(f"%{len(self.lines)}", dtype, tuple(shape))
        name, _, body = text.partition(" ")
        names, types = (", ".join(part) for part in zip(*((x.name, x.type) for x in operands), strict=True))
        self.lines.append(f'{value.name} = "stablehlo.{name}"({names}) {body} {{{attrs}}} : ({types}) -> {value.type}')
        return value

    def constant(self, x: np.ndarray) -> Value:
        """An array, by its bytes, or listed where an element has less than one."""
        dtype = NAME[x.dtype]
        if x.size == 0:
            text = ""
        elif dtype in ("i1", "si4", "ui4"):
            text = str(np.where(x, "true", "false").tolist() if dtype == "i1" else x.astype(np.int8).tolist()).replace("'", "")
        else:
            text = f'"0x{np.ascontiguousarray(x).tobytes().hex()}"'
        return self.op(f"constant dense<{text}> : {tensor(dtype, x.shape)}", dtype, x.shape)

    def number(self, value: Any, dtype: str) -> Value:
        """A scalar."""
        return self.constant(np.asarray(value).astype(NUMPY[dtype]))

    def convert(self, x: Value, dtype: str) -> Value:
        """Another dtype."""
        if x.dtype == dtype:
            return x
        return self.op(f"convert {x.name} : ({x.type}) ->", dtype, x.shape)


MEANING: dict[str, Callable[..., Value]] = {}


def means(names: str) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Declare what the ops `names` are."""

    def declare(meaning: Callable[..., Value]) -> Callable[..., Value]:
        MEANING.update(dict.fromkeys(names.split(), meaning))
        return meaning

    return declare


def takes(case: Case) -> bool:
    """Whether the interpreter can say what the contract says. Conversions that are out of range StableHLO leaves to the
    implementation, it gathers nothing from nothing, and contractions over nothing abort the process."""
    if case.op in ("take", "gather", "dot_general"):
        return 0 not in case.operands[0].shape
    if case.op != "cast":
        return case.op in MEANING
    source, target = NAME[case.operands[0].dtype], str(case.attrs["dtype"])
    return target in FLOATS and source not in COMPLEX


def said(case: Case) -> np.ndarray:
    """The numbers that the interpreter gives: float64, complex128, integers, booleans."""
    body = Body()
    values = [[body.constant(a) for a in x] if isinstance(x, list) else body.constant(x) for x in case.operands]
    more = {"name": case.op} if case.op in _BY_NAME else {}
    result = MEANING[case.op](body, *values, **case.attrs, **more)
    if result.dtype in COMPLEX:
        real = "f32" if result.dtype == "cf32" else "f64"
        parts = [body.op(f"{p} {result.name} : ({result.type}) ->", real, result.shape) for p in ("real", "imag")]
        found = evaluate(body, [body.convert(part, "f64") for part in parts])
        return np.asarray(found[0] + 1j * found[1])
    wide = "f64" if result.dtype in FLOATS else "i1" if result.dtype == "i1" else "ui64" if result.dtype in UNSIGNED else "si64"
    return evaluate(body, [body.convert(result, wide)])[0]


@cache
def context() -> Any:
    """MLIR with the dialects of the interpreter."""
    made = mlir.make_ir_context()
    made.enable_multithreading(False)
    stablehlo.register_interpreter_dialect(made)
    return made


def evaluate(body: Body, results: list[Value]) -> list[np.ndarray]:
    """Run the function."""
    names, types = (", ".join(part) for part in zip(*((r.name, r.type) for r in results), strict=True))
    lines = "\n".join(body.lines)
    text = f"func.func @main() -> ({types}) {{\n{lines}\nfunc.return {names} : {types}\n}}"
    with context(), ir.Location.unknown():
        found = stablehlo.eval_module(ir.Module.parse(text), [])
        return [np.array(a).reshape(r.shape) for a, r in zip(found, results, strict=True)]


# ---- elementwise

_SAME = {
    "neg": "negate", "abs": "abs", "exp": "exponential", "log": "log", "tanh": "tanh", "rsqrt": "rsqrt", "add": "add",
    "sub": "subtract", "mul": "multiply", "div": "divide", "maximum": "maximum", "minimum": "minimum",
}  # fmt: skip
_BY_NAME = ("reduce_sum", "reduce_max", "reduce_min", *(f"compare_{k}" for k in ("lt", "le", "eq", "ge", "gt", "ne")))


def _plain(name: str) -> Callable[..., Value]:
    return lambda b, *xs: b.plain(name, *xs)


MEANING |= {name: _plain(spelled) for name, spelled in _SAME.items()}


@means("reciprocal")
def reciprocal(b: Body, x: Value) -> Value:
    """One divided by it."""
    one = b.number(1, x.dtype)
    return b.plain("divide", b.op(f"broadcast_in_dim {one.name}, dims = [] : ({one.type}) ->", x.dtype, x.shape), x)


@means("clamp")
def clamp(b: Body, x: Value, lo: Value, hi: Value) -> Value:
    """The bounds come first and last."""
    return b.plain("clamp", lo, x, hi)


@means("compare_lt compare_le compare_eq compare_ge compare_gt compare_ne")
def compare(b: Body, x: Value, y: Value, *, name: str) -> Value:
    """By direction."""
    return b.op(f"compare {name[8:].upper()}, {x.name}, {y.name} : ({x.type}, {y.type}) ->", "i1", x.shape)


@means("select")
def select(b: Body, p: Value, x: Value, y: Value) -> Value:
    """By predicate."""
    return b.op(f"select {p.name}, {x.name}, {y.name} : ({p.type}, {x.type}, {y.type}) ->", x.dtype, x.shape)


@means("cast")
def cast(b: Body, x: Value, *, dtype: Any) -> Value:
    """To floats."""
    return b.convert(x, str(dtype))


@means("stop_gradient")
def stop_gradient(b: Body, x: Value) -> Value:
    """A barrier for the optimizer."""
    return b.plain("optimization_barrier", x)


# ---- reductions and contractions


def precise(b: Body, x: Value) -> Value:
    """Floats in f64, complex in cf64."""
    return b.convert(x, "f64" if x.dtype in FLOATS else "cf64") if x.dtype in FLOATS + COMPLEX else x


def initial(b: Body, kind: str, source: str, dtype: str) -> Value:
    """What the reduction of nothing gives."""
    value = start_of(kind, source)
    return b.number({"max": -inf, "min": inf}[kind] if value != value else value, dtype)


def region(kind: str, dtype: str) -> str:
    """The region that combines two elements."""
    scalar, name = tensor(dtype, ()), {"sum": "add", "max": "maximum", "min": "minimum"}[kind]
    return (
        f"({{\n^bb0(%a: {scalar}, %b: {scalar}):\n%c = stablehlo.{name} %a, %b : {scalar}\n"
        f'"stablehlo.return"(%c) : ({scalar}) -> ()\n}})'
    )


@means("reduce_sum reduce_max reduce_min")
def reduce(
    b: Body, x: Value, *, name: str, axes: Any, keepdims: bool = False, accum_dtype: Any = None, out_dtype: Any = None
) -> Value:
    """Over dimensions, integers in their accumulator."""
    kind, gone, source = name[7:], sorted(a % len(x.shape) for a in axes), x.dtype
    x = b.convert(x, str(accum_dtype)) if accum_dtype and source in INTEGERS else precise(b, x)
    start = initial(b, kind, source, x.dtype)
    kept = [n for i, n in enumerate(x.shape) if i not in gone]
    attrs = f"dimensions = array<i64{_list(gone)}>"
    value = b.generic(f"reduce {region(kind, x.dtype)}", [x, start], attrs, x.dtype, kept)
    if keepdims:
        shape = [1 if i in gone else n for i, n in enumerate(x.shape)]
        value = b.op(f"reshape {value.name} : ({value.type}) ->", value.dtype, shape)
    return value


def _list(values: Any) -> str:
    """The inside of `array<i64…>`."""
    return ": " + ", ".join(map(str, values)) if len(values) else ""


@means("reduce_window")
def reduce_window(
    b: Body,
    x: Value,
    *,
    window_dims: Any,
    strides: Any,
    padding: Any,
    base_dilation: Any,
    window_dilation: Any,
    reduce: str,
) -> Value:
    """With both dilations."""
    source, x = x.dtype, precise(b, x)
    start = initial(b, reduce, source, x.dtype)
    lists = {
        "window_dimensions": window_dims, "window_strides": strides,
        "base_dilations": base_dilation, "window_dilations": window_dilation,
    }  # fmt: skip
    attrs = ", ".join(f"{k} = array<i64{_list(v)}>" for k, v in lists.items())
    pads = ", ".join(f"[{low}, {high}]" for low, high in padding)
    attrs += f", padding = dense<[{pads}]> : tensor<{len(padding)}x2xi64>" if padding else ""
    shape = [
        (((n - 1) * base + 1 if n else 0) + low + high - ((w - 1) * d + 1)) // s + 1
        for n, w, s, (low, high), base, d in zip(
            x.shape, window_dims, strides, padding, base_dilation, window_dilation, strict=True
        )
    ]
    return b.generic(f"reduce_window {region(reduce, x.dtype)}", [x, start], attrs, x.dtype, shape)


@means("dot_general")
def dot_general(
    b: Body,
    x: Value,
    y: Value,
    *,
    batch_lhs: Any,
    batch_rhs: Any,
    contract_lhs: Any,
    contract_rhs: Any,
    accum_dtype: Any = None,
    out_dtype: Any = None,
) -> Value:
    """By dimension numbers."""
    to = str(accum_dtype) if accum_dtype and x.dtype in INTEGERS else None
    x, y = (b.convert(v, to) if to else precise(b, v) for v in (x, y))
    bl, cl = ([a % len(x.shape) for a in axes] for axes in (batch_lhs, contract_lhs))
    br, cr = ([a % len(y.shape) for a in axes] for axes in (batch_rhs, contract_rhs))
    shape = [x.shape[a] for a in bl] + [n for a, n in enumerate(x.shape) if a not in bl + cl]
    shape += [n for a, n in enumerate(y.shape) if a not in br + cr]
    dims = f"batching_dims = {bl} x {br}, contracting_dims = {cl} x {cr}"
    return b.op(f"dot_general {x.name}, {y.name}, {dims} : ({x.type}, {y.type}) ->", x.dtype, shape)
