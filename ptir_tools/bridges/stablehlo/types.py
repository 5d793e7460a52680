"""MLIR's types and their PTIR types, for reading and writing."""

from __future__ import annotations

import re
from functools import cache

from ptir_tools.core.dtypes import CF32, CF64, F16, FP8_E4M3, FP8_E5M2, PTIR_DTYPES, SI64, DType
from ptir_tools.core.lazy import regex
from ptir_tools.core.limits import integer
from ptir_tools.core.records import dataclass
from ptir_tools.core.spelling import did_you_mean, dtype_meant
from ptir_tools.core.types import UNKNOWN, Dim, TensorType, tensor
from ptir_tools.core.violations import Violation

UNSUPPORTED = "UnsupportedStableHLO"

# Each dtype with its name in StableHLO. Signless integers are signed, except i1.
_OTHERS = {FP8_E4M3: "f8E4M3FN", FP8_E5M2: "f8E5M2", CF32: "complex<f32>", CF64: "complex<f64>"}
SPELLING = {dtype: _OTHERS.get(dtype) or dtype.name.removeprefix("s") for dtype in PTIR_DTYPES}
NARROW = ("f8E4M3FNUZ", "f8E5M2FNUZ", "f8E4M3B11FNUZ", "f8E4M3", "f8E3M4")  # floats that PTIR has not; f16 has their values
DTYPES = {name: dtype for dtype, name in SPELLING.items()} | {d.name: d for d in PTIR_DTYPES if d.is_signed}
DTYPES |= {"index": SI64} | dict.fromkeys(NARROW, F16)
_TENSOR = regex(r"tensor<((?:\s*(?:\d+|\?)\s*x)*)(.+)>\Z", re.DOTALL)
_STEP = r"-?\d[\d.eE+-]*(?::-?\d+)?"
_QUANTIZED = regex(
    r"!quant\.uniform<(?P<storage>[iu]\d+)(?:<(?P<low>-?\d+):(?P<high>-?\d+)>)?:(?P<expressed>\w+)(?::(?P<axis>\d+))?,\s*"
    rf"(?P<steps>{_STEP}|\{{\s*{_STEP}(?:\s*,\s*{_STEP})*\s*\}})>\s*\Z"
)
_ENCODING = regex(r"\s*,\s*(?:#|\{|\").*\Z", re.DOTALL)


@dataclass(slots=True, frozen=True)
class Token:
    """The type of a token, which orders effects: nothing at run time."""


@dataclass(slots=True, frozen=True)
class Tuple:
    """The type of a tuple."""

    elements: tuple[Kind, ...]


@dataclass(slots=True, frozen=True)
class Quantized:
    """The type of a tensor of quantized values: `(q - zero_point) * scale` for the tensor, or for each index of `axis`."""

    storage: TensorType
    expressed: DType
    axis: int | None
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    low: int
    high: int


TOKEN = Token()
Kind = TensorType | Token | Tuple | Quantized


def refused(reason: str, help: str | None = None) -> Violation:
    """The Violation that a handler raises for what PTIR cannot express."""
    return Violation(UNSUPPORTED, reason, help=help)


@cache
def type_of(text: str) -> Kind:
    """The type spelled `text`; an extent `?` is UNKNOWN. Raises Violation for one that PTIR lacks."""
    if text in ("!stablehlo.token", "!mhlo.token"):
        return TOKEN
    if text.startswith("tuple<"):
        return Tuple(tuple(type_of(part) for part in _parts(text[6:-1])))
    if (m := _TENSOR.match(text)) is None:
        return tensor(dtype_of(text))
    element = m[2].strip()
    if not element.startswith("!"):
        element = _ENCODING.sub("", element).rstrip()
    quantized = _QUANTIZED.match(element)
    shape: list[Dim] = []
    for part in "".join(m[1].split()).split("x")[:-1]:
        shape.append(UNKNOWN if part == "?" else integer(part))
    return tensor(dtype_of(element), shape) if quantized is None else _quantized(quantized, shape)


def _quantized(m: re.Match[str], shape: list[Dim]) -> Quantized:
    dtype, expressed = dtype_of(m["storage"].replace("u", "ui")), dtype_of(m["expressed"])
    steps = [step.strip().partition(":") for step in m["steps"].strip(" {}").split(",")]
    axis = int(m["axis"]) if m["axis"] else None
    fits = len(steps) == 1 if axis is None else axis < len(shape) and shape[axis] == len(steps)
    if not fits or not dtype.is_integer or not expressed.is_float or "{" in m["steps"][1:]:
        raise refused(f"the quantized type {m[0]}")
    bounds = (integer(m["low"]), integer(m["high"])) if m["low"] else (dtype.min, dtype.max)
    scales, zero_points = tuple(float(s) for s, _, _ in steps), tuple(integer(z or "0") for _, _, z in steps)
    return Quantized(tensor(dtype, shape), expressed, axis, scales, zero_points, *bounds)


def dtype_of(text: str) -> DType:
    """The dtype spelled `text`. Raises Violation for one that PTIR lacks."""
    if (result := DTYPES.get(text.replace(" ", ""))) is None:
        meant = dtype_meant(text, {name: dtype for dtype, name in SPELLING.items()})
        what = "quantized types" if text.startswith("!quant") else f"type {text}"
        help = did_you_mean([meant]) if meant is not None else None
        if (joined := re.fullmatch(r"(\d+)([a-z]\w*)", text)) is not None and joined[2] in DTYPES:
            help = f"write `x` between an extent and the type: `{joined[1]}x{joined[2]}`"
        if (turned := re.fullmatch(r"([a-z]\w*?)((?:x(?:\d+|\?))+)", text)) is not None and turned[1] in DTYPES:
            help = f"extents come first: `{turned[2][1:]}x{turned[1]}`"
        if len(parts := re.split(r"\s*,\s*", text)) > 1 and all(re.fullmatch(r"\d+|\?|[a-z]+\d+", part) for part in parts):
            help = f"`x` separates extents: `{'x'.join(parts)}`"
        raise refused(f"PTIR has no {what}", help)
    return result


def type_text(t: TensorType) -> str:
    """A tensor type as StableHLO spells it."""
    extents = "".join(f"{d}x" if isinstance(d, int) else "?x" for d in t.shape)
    return f"tensor<{extents}{SPELLING[t.dtype]}>"


def _parts(text: str) -> list[str]:
    """The parts that commas separate, outside of brackets."""
    parts, depth, at = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "<(") - (c in ">)")
        if c == "," and not depth:
            parts.append(text[at:i].strip())
            at = i + 1
    return [*parts, text[at:].strip()] if text.strip() else []
