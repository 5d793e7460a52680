"""Floats of 8 bits that PTIR has not: their values are in f16, which has all of them, and each result is rounded to one."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.bridges.stablehlo import literals
from ptir_tools.bridges.stablehlo.syntax import Typed
from ptir_tools.bridges.stablehlo.table import Handler, Site, Tensor
from ptir_tools.bridges.stablehlo.types import NARROW, refused
from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import F16, F32, F64, SI32, SI64, UI8, DType
from ptir_tools.core.lazy import lazy, np, regex
from ptir_tools.core.limits import integer
from ptir_tools.core.records import dataclass
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.violations import require
from ptir_tools.grammars.parser import Token

if TYPE_CHECKING:
    import ml_dtypes
else:
    ml_dtypes = lazy("ml_dtypes")

_BITS = regex(r"0x[0-9A-Fa-f]+")
_NAME = regex(rf"(?:{'|'.join(NARROW)})(?!\w)")


@dataclass(slots=True, frozen=True)
class _Form:
    """Mantissa bits, the exponent of the least normal number, the largest number, whether there are infinities and -0."""

    mantissa: int
    least: int
    largest: float
    infinite: bool = False


_FORMS = {
    "f8E4M3FNUZ": _Form(3, -7, 240.0),
    "f8E5M2FNUZ": _Form(2, -15, 57344.0),
    "f8E4M3B11FNUZ": _Form(3, -10, 30.0),
    "f8E4M3": _Form(3, -6, 240.0, True),
    "f8E3M4": _Form(4, -2, 15.5, True),
}


def named(text: str) -> str:
    """The name of such a dtype in a type, or else ""."""
    found = _NAME.search(text)
    return found[0] if found is not None else ""


def perform(site: Site, handler: Handler, operands: Sequence[object], kinds: Sequence[str]) -> object:
    """What the handler of an op gives, where results have the dtypes called `kinds` ("" for one of PTIR). Raises Violation."""
    if site.name == "stablehlo.bitcast_convert":
        raise refused("bits as a float of 8 bits that PTIR has not")
    if site.name == "stablehlo.constant":
        return _constant(site, kinds[0])
    if site.name == "stablehlo.convert":
        (x,) = site.each(operands)
        return rounded(x.real() if x.dtype.is_complex else x, kinds[0])
    found = handler(site, *operands)
    results = list(found) if isinstance(found, (tuple, list)) else [found]
    return [rounded(x, kind) if kind and isinstance(x, Tensor) else x for x, kind in zip(results, kinds, strict=True)]


def _constant(site: Site, kind: str) -> Tensor:
    given, t, text = site.attrs.get("value"), site.type, site.scope.reader.text
    token = given.value if isinstance(given, Typed) else given
    if not isinstance(token, Token) or token.type != "DENSE" or "0x" not in token:
        return rounded(site.op("constant", value=site.literal("value", t.with_dtype(F64))), kind)
    if '"' in token or token.startswith("dense_resource"):
        values = arrays.from_literal(literals.dense(token, t.with_dtype(UI8), text)).view(_dtype(kind)).astype(np.float64)
    else:  # numbers, and bits of some of them, which become those of f64
        wider = _BITS.sub(lambda m: hex(int(_numbers([integer(m[0], 16)], kind).view(np.uint64)[0])), token)
        values = arrays.from_literal(literals.dense(wider, t.with_dtype(F64), text))
    return rounded(site.constant(values), kind)


def _numbers(bits: list[int], kind: str) -> Array:
    """The numbers that bits are, in f64. Raises Violation."""
    require(all(b < 256 for b in bits), "InvalidLiteral", "an element has more than 8 bits")
    return np.array(bits, np.uint8).view(_dtype(kind)).astype(np.float64)


def _dtype(kind: str) -> np.dtype[np.generic]:
    result: np.dtype[np.generic] = np.dtype(getattr(ml_dtypes, kind.replace("f8E", "float8_e").lower()))
    return result


def rounded(x: Tensor, kind: str) -> Tensor:
    """The nearest numbers of a dtype, ties to even, in f16; too large ones are infinite, or NaN where it has no infinity."""
    form, x = _FORMS[kind], _wide(x)
    power, integer = (SI64, 52) if x.dtype is F64 else (SI32, 23)
    exponents = ((1 << (x.dtype.bits - 1 - integer)) - 1) << integer
    scale = x.bitcast(power).bitwise_and(exponents).bitcast(x.dtype).maximum(2.0**form.least) * 2.0**-form.mantissa
    y = (x / scale).round_even() * scale
    end = float("inf") if form.infinite else float("nan")
    y = (x.abs() < float("inf")).select(y, x)
    y = (y.abs() > form.largest).select((y < 0.0).select(-end, x.block.full(end, y)), y)
    return (y if form.infinite else y.compare_eq(0.0).select(0.0, y)).cast(F16)


def _wide(x: Tensor) -> Tensor:
    """Numbers in f32 or f64, whichever has them."""
    target: DType = F64 if x.dtype is F64 or (x.dtype.is_integer and x.dtype.bits > 16) else F32
    return x if x.dtype is target else x.cast(target)
