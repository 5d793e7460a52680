"""Products of floats in normal form: a constant times values with powers, whatever the grouping of multiplications, divisions,
negations, reciprocals, `rsqrt` and broadcasts."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from functools import lru_cache
from math import isfinite

from ptir_tools.core import arrays
from ptir_tools.core.dtypes import F64, DType
from ptir_tools.core.ir import Operand, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.records import NamedTuple
from ptir_tools.rewrite.constants import scalar_of

PRODUCTS = ("ptir.mul", "ptir.div", "ptir.neg", "ptir.reciprocal", "ptir.rsqrt")
_FAR = 0.5  # a bound on the difference of two numbers that are equal in some dtype
DEPTH = 12  # ops on one path, where a program's product is looked into

Factor = tuple[Operand, float]  # a value and its power: 1 or -1, and under a root 0.5 or -0.5


class Product(NamedTuple):
    """`number`, the product of that many `constants`, times the `factors`, none of which is constant."""

    number: float
    constants: int
    factors: tuple[Factor, ...]


def through(x: Operand, names: Container[str]) -> Operand:
    """The source of `x` through ops with these names."""
    while isinstance(x, Value) and x.op is not None and x.op.defn.name in names:
        x = x.op.operands[0]
    return x


def open_product(factor: Factor, skip: Container[str]) -> tuple[float, list[Factor]] | None:
    """A factor as a sign and factors, one op further down; None when it is not a product. Nothing is opened under a root,
    where signs count."""
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


def full_product(x: Operand, skip: Container[str], ends: Container[Operand]) -> Product:
    """`x` as a product of as many factors as possible, except for the values in `ends`."""
    todo: list[Factor] = [(x, 1.0)]
    number, count, factors = 1.0, 0, list[Factor]()
    while todo:
        y, power = factor = todo.pop(0)
        if (y not in ends or y is x) and (found := open_product(factor, skip)) is not None:
            number, left = _split_constants(number * found[0], found[1])
            count, todo = count + len(found[1]) - len(left), [*left, *todo]
        else:
            factors.append((through(y, skip), power))
    return Product(number, count, tuple(factors))


def factorizations(x: Operand, count: int, skip: Container[str]) -> Iterator[Product]:
    """`x` as a product of `count` factors, in every way: a product itself may be one factor."""
    number, left = _split_constants(1.0, [(x, 1.0)])
    yield from _factorizations([(f, DEPTH) for f in left], Product(number, 1 - len(left), ()), count, skip)


def _factorizations(todo: list[tuple[Factor, int]], done: Product, count: int, skip: Container[str]) -> Iterator[Product]:
    number, constants, factors = done
    if len(factors) + len(todo) > count:
        return
    if not todo:
        if len(factors) == count:
            yield done
        return
    (factor, depth), rest = todo[0], todo[1:]
    yield from _factorizations(rest, Product(number, constants, (*factors, factor)), count, skip)
    if depth and (found := open_product(factor, skip)) is not None:
        scaled, left = _split_constants(number * found[0], found[1])
        inner = [(f, depth - 1) for f in left]
        yield from _factorizations([*inner, *rest], Product(scaled, constants + len(found[1]) - len(left), factors), count, skip)


def _split_constants(number: float, factors: list[Factor]) -> tuple[float, list[Factor]]:
    """`number` times the constants among `factors`, and the other factors."""
    left = []
    for x, power in factors:
        if (constant := scalar_of(x)) and abs(power) == 1:
            number *= _power(constant, power)
        else:
            left.append((x, power))
    return number, left


class ProductPattern(NamedTuple):
    """A product to match, of a `dtype`: its constant, the parameters for a constant, and the other factors, in each
    alternative."""

    dtype: DType
    number: float
    parameters: Sequence[Factor]
    values: Sequence[Sequence[Factor]]

    def multiplier(self, product: Product, dtype: DType) -> float | None:
        """The constant that the parameter binds when `product` has these factors: 1 without one. None when the constant does
        not match. It must be equal in the narrower dtype, or as close as a product of several constants can be."""
        ratio = product.number / self.number
        if not ratio or not isfinite(ratio):
            return None
        if self.parameters:
            return ratio if self.parameters[0][1] > 0 else 1 / ratio
        near = abs(ratio - 1)
        if near > _FAR:
            return None
        narrow = min((d for d in (dtype, self.dtype) if d.is_float), key=lambda d: d.bits)
        rounded = product.constants > 1 and near <= arrays.float_info(arrays.numpy_dtype(narrow)).eps
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
