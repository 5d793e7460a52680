"""How far two engines may differ: a running error analysis beside a reference run.

For every float value a bound on the absolute error of any element is carried along, from the unit roundoff of its dtype, the
length of reductions, and the magnitudes that this run sees. It is a bound in the largest norm, to first order, in which the
terms of a sum are taken as independent; results of a region start from the worst relative error so far. It never says that more
than half the digits of what was added up may be wrong, except near a pole (div, log, rsqrt): there the smallest magnitude of the
operand decides, less its error. When nothing is left of it, the bound is infinite, and so is that of what is made of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf, sqrt
from typing import TYPE_CHECKING, Any

from ptir_tools.core.dtypes import DType
from ptir_tools.core.evaluate import read
from ptir_tools.core.ir import Literal, Op, Operand, Region, Value
from ptir_tools.core.lazy import lazy
from ptir_tools.core.opdef import MOVEMENT, leaves_read, operand_type
from ptir_tools.core.types import MemRefType, ScalarType, TensorType, Type, leaves
from ptir_tools.engines.signature import flatten

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy("numpy")

SLACK = 4  # both engines err, and library functions are off by a few units


def roundoff(dtype: DType) -> float:
    """The unit roundoff of a float dtype; 0 for integers and i1."""
    return 2.0**-dtype.precision if dtype.precision else 0.0


@dataclass(slots=True)
class Size:
    """What the run has seen of a value: largest and smallest nonzero magnitude, element count, and the error bound. Of what it
    was made of, `scale` is the largest magnitude that was added or subtracted, `coarsest` the largest unit roundoff."""

    high: float = 0.0
    low: float = inf
    count: int = 1
    error: float = 0.0
    unit: float = 0.0
    scale: float = 0.0
    coarsest: float = 0.0

    def __post_init__(self) -> None:
        self.scale = max(self.scale, self.high)
        self.coarsest = max(self.coarsest, self.unit)

    @property
    def relative(self) -> float:
        return self.error / self.high if self.high else 0.0


def measure(array: Any, dtype: DType, error: float = 0.0) -> Size:
    """The size of an array's finite part."""
    if not (dtype.is_float or dtype.is_complex):
        return Size(float(np.max(np.abs(array.astype(np.float64)), initial=0)), 1.0, max(array.size, 1))
    magnitude = np.abs(array if dtype.is_complex else array.astype(np.float64))
    finite = magnitude[np.isfinite(magnitude)]
    low = float(np.min(finite, initial=inf, where=finite > 0))
    return Size(float(np.max(finite, initial=0)), low, max(array.size, 1), error, roundoff(dtype))


@dataclass(slots=True)
class Analysis:
    """An observer of a reference run. `of(operand)` is then the bound for it."""

    sizes: dict[tuple[Value, int], Size] = field(default_factory=dict)
    worst: float = 0.0
    coarsest: float = 0.0

    def parameters(self, block: Region, arguments: Sequence[Any]) -> None:
        """Note the inputs, leaf by leaf; they are exact."""
        places = [(p, i) for p in block.params for i in range(len(leaf_dtypes(p.type)))]
        for (p, i), array in zip(places, arguments, strict=True):
            self.sizes[p, i] = measure(array, leaf_dtypes(p.type)[i])

    def __call__(self, op: Op, results: tuple[Any, ...]) -> None:
        operands = [s for x in op.operands for s in self.of(x)]
        for v, data in zip(op.results, results, strict=True):
            for i, (array, dtype) in enumerate(zip(flatten(data), leaf_dtypes(v.type), strict=True)):
                out = measure(np.asarray(array), dtype)
                if out.unit:
                    out.error = self.error(op, operands, out)
                    self.worst = max(self.worst, out.relative)
                    self.coarsest = max(self.coarsest, out.coarsest)
                self.sizes[v, i] = out

    def error(self, op: Op, operands: list[Size], out: Size) -> float:
        """The bound for one result of `op`."""
        if op.regions:
            out.coarsest = max(out.unit, self.coarsest)
            return (self.worst + out.unit) * out.high
        rule = _RULES.get(op.defn.short.lower())
        if rule is None:
            rule = _same if op.defn.traits & MOVEMENT else _default
        if any(x.error == inf for x in operands) or (rule in _POLES and operands[-1].error >= operands[-1].low):
            return inf
        found = rule(operands, out) if operands else out.unit * out.high
        out.coarsest = max([out.unit, *(x.coarsest for x in operands)])
        if rule in _POLES:  # where the operand is smallest, few of its digits may be right
            out.scale = max(out.high, found / sqrt(out.coarsest))
        elif rule in (_add, _same, _rounded, _sum, _dot):  # terms may cancel: what is left has the errors of what was there
            out.scale = max([out.high, *(x.scale for x in operands)])
        elif rule is _mul:  # a remainder stays one when it is scaled
            out.scale = max([out.high, *(out.high * x.scale / x.high for x in operands if x.high)])
        most = sqrt(out.coarsest) * out.scale
        return min(found, most) if found == found else most

    def of(self, x: Operand) -> list[Size]:
        """The sizes of an operand's leaves; for a region's parameter, the worst relative error so far."""
        if isinstance(x, Literal):
            return [measure(read(x, {}), x.type.dtype)]
        dtypes = leaf_dtypes(operand_type(x))
        return [self.sizes.get(key) or self.unseen(roundoff(d)) for key, d in zip(leaves_read(x), dtypes, strict=True)]

    def unseen(self, unit: float = 0.0) -> Size:
        """What is taken for the parameter of a region."""
        return Size(1.0, 1.0, 1, self.worst, unit, coarsest=self.coarsest)


def leaf_dtypes(t: Type) -> list[DType]:
    """The dtypes of a type's leaves."""
    return [leaf.dtype for leaf in leaves(t) if isinstance(leaf, (TensorType, ScalarType, MemRefType))]


Rule = Callable[[list[Size], Size], float]


def _same(xs: list[Size], out: Size) -> float:
    return max(x.error for x in xs)


def _rounded(xs: list[Size], out: Size) -> float:
    return max(x.error for x in xs) + out.unit * out.high


def _add(xs: list[Size], out: Size) -> float:
    return sum(x.error for x in xs) + out.unit * out.high


def _mul(xs: list[Size], out: Size) -> float:
    a, b = xs[0], xs[-1]
    return a.error * b.high + b.error * a.high + out.unit * out.high


def _div(xs: list[Size], out: Size) -> float:
    a, b = xs[0], xs[-1]
    return (a.error + b.error * out.high) / (b.low - b.error) + out.unit * out.high


def _exp(xs: list[Size], out: Size) -> float:
    return (xs[0].error + 2 * out.unit) * out.high


def _bounded_slope(xs: list[Size], out: Size) -> float:
    return 1.13 * xs[0].error + 2 * out.unit * out.high


def _log(xs: list[Size], out: Size) -> float:
    return xs[0].error / (xs[0].low - xs[0].error) + 2 * out.unit * max(out.high, 1.0)


def _inverse(xs: list[Size], out: Size) -> float:
    return (xs[0].error / (xs[0].low - xs[0].error) + 2 * out.unit) * out.high


def _sum(xs: list[Size], out: Size) -> float:
    x, n = xs[0], max(xs[0].count / out.count, 1)
    scale = max(out.high, sqrt(n) * x.high)
    return x.error * sqrt(n) + x.relative * out.high + (n * min(x.unit, _ACCUMULATED) + out.unit) * scale


def _dot(xs: list[Size], out: Size) -> float:
    a, b = xs[:2]
    n = max(sqrt(a.count * b.count / out.count), 1)
    scale = max(out.high, sqrt(n) * a.high * b.high)
    return (a.relative + b.relative + n * min(a.unit, _ACCUMULATED) + 2 * out.unit) * scale


def _normalize(xs: list[Size], out: Size) -> float:
    """Layer norm: the relative errors of its operands, and of a few sums."""
    return (8 * sum(x.relative for x in xs) + (8 + sqrt(xs[0].count)) * out.unit) * out.high


def _default(xs: list[Size], out: Size) -> float:
    """Any other op: every relative error of its operands, and a sum over as many elements as there are per result."""
    n = max(max(x.count for x in xs) / out.count, 1)
    return (4 * sum(x.relative for x in xs) + (n + 4) * out.unit) * max(out.high, max(x.high for x in xs))


_POLES = (_div, _log, _inverse)
_ACCUMULATED = 2.0**-24  # narrow floats are accumulated in f32

_RULES: dict[str, Rule] = {
    **dict.fromkeys(("neg", "abs", "maximum", "minimum", "select", "clamp", "reduce_max", "reduce_min", "relu"), _same),
    **dict.fromkeys(("max", "min", "where"), _same),
    **dict.fromkeys(("stop_gradient", "take", "gather", "dynamic_slice", "dynamic_update_slice", "top_k"), _same),
    **dict.fromkeys(("tanh", "erf", "sigmoid"), _bounded_slope),
    **dict.fromkeys(("rsqrt", "reciprocal"), _inverse),
    **dict.fromkeys(("sum", "reduce_sum", "mean", "reduce_window", "segment_reduce", "scatter_add"), _sum),
    **dict.fromkeys(("dot_general", "matmul", "dot", "conv2d"), _dot),
    **dict.fromkeys(("add", "sub"), _add),
    "cast": _rounded,
    "mul": _mul,
    **dict.fromkeys(("div", "fdiv"), _div),
    **dict.fromkeys(("exp", "exp2"), _exp),
    "log": _log,
    "layer_norm": _normalize,
}
