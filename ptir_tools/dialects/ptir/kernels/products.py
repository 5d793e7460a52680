"""Products of floats as mathematics has them: a number times values, each to a power, however multiplications, divisions,
negations, reciprocals and `rsqrt` are grouped and whatever is broadcast in between.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from functools import lru_cache
from math import isfinite

from ptir_tools.core import arrays
from ptir_tools.core.dtypes import F64, DType
from ptir_tools.core.ir import Operand, Value
from ptir_tools.core.lazy import ml_dtypes, np
from ptir_tools.core.records import NamedTuple
from ptir_tools.rewrite.constants import scalar_of

PRODUCTS = ("ptir.mul", "ptir.div", "ptir.neg", "ptir.reciprocal", "ptir.rsqrt")
_FAR = 0.5  # more than two numbers differ by that are equal in any dtype
DEPTH = 12  # ops on one path, where a program's product is looked into

Factor = tuple[Operand, float]  # a value and its power: 1, -1, or what a root makes of it: 0.5, -0.5


class Product(NamedTuple):
    """`number`, made of so many `constants`, times the `factors`, none of them a constant."""

    number: float
    constants: int
    factors: tuple[Factor, ...]


def through(x: Operand, names: Container[str]) -> Operand:
    """What `x` comes from through ops of those names."""
    while isinstance(x, Value) and x.op is not None and x.op.defn.name in names:
        x = x.op.operands[0]
    return x


def opened(factor: Factor, skip: Container[str]) -> tuple[float, list[Factor]] | None:
    """What a factor is the product of, one op further down: a sign and factors. None for what is not a product; nor is anything
    under a root, where signs count."""
    x, power = through(factor[0], skip), factor[1]
    if not isinstance(x, Value) or x.op is None or abs(power) != 1:
        return None
    match x.op.defn.name, x.op.operands:
        case "ptir.mul", (a, b):
            return 1.0, [(a, power), (b, power)]
        case "ptir.div", (a, b):
            return 1.0, [(a, power), (b, -power)]
        case "ptir.neg", (a,):
            return -1.0, [(a, power)]
        case "ptir.reciprocal", (a,):
            return 1.0, [(a, -power)]
        case "ptir.rsqrt", (a,):
            return 1.0, [(a, -power / 2)]
    return None


def whole(x: Operand, skip: Container[str], ends: Container[Operand]) -> Product:
    """`x` taken apart as far as it goes except for the values in `ends`."""
    todo: list[Factor] = [(x, 1.0)]
    number, count, factors = 1.0, 0, list[Factor]()
    while todo:
        y, power = factor = todo.pop(0)
        if (y not in ends or y is x) and (found := opened(factor, skip)) is not None:
            number, left = _numbers_apart(number * found[0], found[1])
            count, todo = count + len(found[1]) - len(left), [*left, *todo]
        else:
            factors.append((through(y, skip), power))
    return Product(number, count, tuple(factors))


def ways(x: Operand, count: int, skip: Container[str]) -> Iterator[Product]:
    """`x` as a product of `count` factors, in every way: what is a product itself may be one factor."""
    number, left = _numbers_apart(1.0, [(x, 1.0)])
    yield from _ways([(f, DEPTH) for f in left], Product(number, 1 - len(left), ()), count, skip)


def _ways(todo: list[tuple[Factor, int]], done: Product, count: int, skip: Container[str]) -> Iterator[Product]:
    number, constants, factors = done
    if len(factors) + len(todo) > count:
        return
    if not todo:
        if len(factors) == count:
            yield done
        return
    (factor, depth), rest = todo[0], todo[1:]
    yield from _ways(rest, Product(number, constants, (*factors, factor)), count, skip)
    if depth and (found := opened(factor, skip)) is not None:
        scaled, left = _numbers_apart(number * found[0], found[1])
        inner = [(f, depth - 1) for f in left]
        yield from _ways([*inner, *rest], Product(scaled, constants + len(found[1]) - len(left), factors), count, skip)


def _numbers_apart(number: float, factors: list[Factor]) -> tuple[float, list[Factor]]:
    """`number` times the constants among `factors`, and the others."""
    left = []
    for x, power in factors:
        if (constant := scalar_of(x)) and abs(power) == 1:
            number *= _power(constant, power)
        else:
            left.append((x, power))
    return number, left


class Wanted(NamedTuple):
    """A product to look for, of a `dtype`: its own number, the parameters that take one, and the other factors, in each way
    in which they may be there."""

    dtype: DType
    number: float
    parameters: Sequence[Factor]
    values: Sequence[Sequence[Factor]]

    def multiplier(self, product: Product, dtype: DType) -> float | None:
        """What the parameter takes when `product`, of `dtype`, has the factors wanted: 1 without one. None when the number
        is not the one wanted: in the narrower dtype it is the same, or what several constants make is as close as can be."""
        ratio = product.number / self.number
        if not ratio or not isfinite(ratio):
            return None
        if self.parameters:
            return ratio if self.parameters[0][1] > 0 else 1 / ratio
        near = abs(ratio - 1)
        if near > _FAR:
            return None
        narrow = min((d for d in (dtype, self.dtype) if d.is_float), key=lambda d: d.bits)
        rounded = product.constants > 1 and near <= ml_dtypes.finfo(arrays.numpy_dtype(narrow)).eps  # type: ignore[no-untyped-call]
        return 1.0 if rounded or close(product.number, F64, self.number, narrow) else None


@lru_cache(4096)
def close(a: object, of_a: DType, b: object, of_b: DType) -> bool:
    """Whether two numbers are equal in the narrower of their float dtypes."""
    if not (of_a.is_float and of_b.is_float):
        return False
    dtype = min(of_a, of_b, key=lambda d: d.bits)
    return bool(arrays.narrow(np.asarray(a), dtype) == arrays.narrow(np.asarray(b), dtype))


def _power(number: float, power: float) -> float:
    return float(number) if power == 1 else 1 / float(number)
