"""Ops that compute symbolic extents at run time: an expression as a scalar, as an iota, and as an axis with that extent.

A symbol of a type must be the extent of a value. So an axis of extent `n - 1` is made by ops whose results have it: `concat`
adds, `tile` and `reshape` multiply, windows subtract and divide.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce

from ptir_tools.bridges.extents import Extent, Size, dim, poly, size
from ptir_tools.core import arrays
from ptir_tools.core.dtypes import SI64, DType
from ptir_tools.core.expressions import Atom, Monomial, Poly, Quotient, term
from ptir_tools.core.lazy import np
from ptir_tools.core.typed import TypeGuard
from ptir_tools.core.types import Dim, TensorType, sym, tensor
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.builder.build import Block, Tensor

Refuse = Callable[[str], Violation]


def measured(block: Block, x: Size, dtype: DType = SI64) -> Tensor:
    """An integer or extent as a scalar of `dtype`: a symbol is the sum of that many ones."""
    return _measured(block, poly(x), dtype)


def _measured(block: Block, p: Poly, dtype: DType) -> Tensor:
    if (number := p.value) is not None:
        return block.constant(np.asarray(number), dtype)
    terms = []
    for m, n in p.monomials:
        if not m:
            terms.append(block.constant(np.asarray(n), dtype))
            continue
        product = reduce(operator.mul, [_factor(block, f, dtype) for f in m])
        terms.append(product if n == 1 else product * n)
    return reduce(operator.add, terms)


def _factor(block: Block, f: Atom[str], dtype: DType) -> Tensor:
    if isinstance(f, str):
        one = Tensor(block, arrays.to_literal(np.ones((), arrays.numpy_dtype(dtype)), tensor(dtype)))
        return block.op("broadcast_to", one, result_shape=[sym(f)]).reduce_sum([0])
    left, right = (_measured(block, p, dtype) for p in (f.left, f.right))
    rest = block.op("mod", left, right)
    return rest if f.op == "%" else block.op("div", left - rest, right)


def counted(block: Block, x: Size, dtype: DType, refuse: Refuse) -> Tensor:
    """0, 1, 2, … below an integer or extent. Raises the Violation that `refuse` makes."""
    if not isinstance(x, Extent) or x.symbol:
        return block.op("iota", [dim(x)], dtype, 0)
    one = block.constant(np.ones((1,)), dtype)
    return block.op("cumsum", repeated(one, 0, x, refuse), axis=0, exclusive=True)


def repeated(x: Tensor, axis: int, n: Size, refuse: Refuse) -> Tensor:
    """`x`, whose extent along `axis` is 1, repeated `n` times along it. Raises the Violation that `refuse` makes where no op
    gives `n`."""
    if not isinstance(n, Extent) or n.symbol:
        return x.broadcast_to([dim(n) if a == axis else d for a, d in enumerate(x.shape)])
    if any(m < 0 for p, m in n.poly.monomials if p):
        raise refuse(f"an axis of extent {n}, a difference of symbols, cannot be made")
    less = -min(n.poly.const, 0)
    whole = n + less
    parts = [_product(x, axis, p, m, refuse) for p, m in poly(whole).monomials]
    have = parts[0] if len(parts) == 1 else x.block.op("concat", parts, axis=axis, types=[_type(x, axis, whole)])
    return fewer(have, axis, less, 1, n) if less else have


def fewer(x: Tensor, axis: int, less: int, step: int, n: Size) -> Tensor:
    """The first `n` elements of an axis with stride `step`, by a window minimum: `less` elements at the end are dropped. The
    elements must not decrease."""
    ones = [1] * x.rank
    window, strides = ([k if a == axis else 1 for a in range(x.rank)] for k in (less + 1, step))
    return x.block.op(
        "reduce_window",
        x,
        window_dims=window,
        strides=strides,
        padding=[(0, 0)] * x.rank,
        base_dilation=ones,
        window_dilation=ones,
        reduce="min",
        types=[_type(x, axis, n)],
    )


def _type(x: Tensor, axis: int, n: Size) -> TensorType:
    return x.tensor_type.with_shape(dim(n) if a == axis else d for a, d in enumerate(x.shape))


def _product(x: Tensor, axis: int, product: Monomial[str], times: int, refuse: Refuse) -> Tensor:
    """`x` repeated along an axis, as often as the product."""
    if not product:
        return x.broadcast_to([times if a == axis else d for a, d in enumerate(x.shape)])
    so_far = Extent(term(product[:1]))
    result = _divided(x, axis, product[0], refuse) if isinstance(product[0], Quotient) else repeated(x, axis, so_far, refuse)
    for k, f in enumerate(product[1:], 2):
        if isinstance(f, Quotient):
            raise refuse(f"no axis can be made of the extent {Extent(term(product, times))}")
        so_far = Extent(term(product[:k]))
        result = _by(result, axis, sym(f), so_far)
    return _by(result, axis, times, so_far * times) if times > 1 else result


def _by(x: Tensor, axis: int, n: Dim, whole: Size) -> Tensor:
    """The axis `n` times as long, with each element repeated."""
    shape = list(x.shape)
    wide = x.reshape([*shape[: axis + 1], 1, *shape[axis + 1 :]]).broadcast_to([*shape[: axis + 1], n, *shape[axis + 1 :]])
    return wide.reshape([*shape[:axis], dim(whole), *shape[axis + 1 :]])


def _divided(x: Tensor, axis: int, f: Quotient[str], refuse: Refuse) -> Tensor:
    """`x` repeated along an axis, as often as the quotient."""
    by, whole = f.right.value, Extent(term((f,)))
    if f.op != "//" or by is None:
        raise refuse(f"no axis can be made of the extent {whole}")
    return fewer(repeated(x, axis, size(f.left), refuse), axis, by - 1, by, whole)


def along(x: Tensor, axis: int, start: Size, count: Size, step: int, refuse: Refuse) -> Tensor:
    """`count` elements along an axis from `start` with stride `step`, integers or extents; all are in bounds."""
    block = x.block
    places = counted(block, count, SI64, refuse)
    if step != 1:
        places = places * step
    if isinstance(start, Extent):
        places = places + measured(block, start).reshape([1]).broadcast_to(places.shape)
    elif start:
        places = places + int(start)
    return x.taken(places, axis)


def every(d: Sequence[object]) -> TypeGuard[Sequence[Size]]:
    """Whether all values are integers or extents."""
    return all(isinstance(x, (int, np.integer, Extent)) for x in d)
