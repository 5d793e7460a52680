"""Cumulative ops, reductions by halves, orders: what runs along an axis. They are exact apart from rounding."""

from __future__ import annotations

from collections.abc import Callable

from ptir_tools.core.dtypes import SI32, DType
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.dialects.ptir.builder.site import Site, cast, wide
from ptir_tools.dialects.ptir.composites.bits import complement
from ptir_tools.dialects.ptir.ops import numerics
from ptir_tools.rewrite.expression import Function, Number

if TYPE_CHECKING:
    from typing import Literal

Rule = Callable[[Site, Tensor], Tensor]

SHORT = 64  # the extent up to which each element of a running result is a window of its own


def _shifted(site: Site, x: Tensor, axis: int, by: int, fill: Number) -> Tensor:
    """`x` shifted along `axis` by `by` positions, `fill` where there is no element."""
    shape, reverse = x.tensor_type.static_shape, site.root.attr("reverse")
    starts = [by if reverse and a == axis else 0 for a in range(x.rank)]
    part = x.slice(starts, [d - by if a == axis else d for a, d in enumerate(shape)])
    filled = site.filled(fill, x.tensor_type.with_shape(min(by, d) if a == axis else d for a, d in enumerate(shape)))
    return site.concat([part, filled] if reverse else [filled, part], axis=axis)


def running(kind: Literal["sum", "max", "min", "prod"], combine: Function) -> Rule:
    """The rule of a cumulative op. Where the axis is short, a window ends, or begins, at each element. Else each step combines
    elements twice as far apart as the step before."""

    def rule(site: Site, x: Tensor) -> Tensor:
        axis = site.root.attr("axis") % x.rank
        n = x.tensor_type.static_shape[axis]
        fill = numerics.identity(kind, x.dtype)
        y = _shifted(site, x, axis, 1, fill) if site.root.attr("exclusive") and n else x
        if kind != "prod" and 1 < n <= SHORT:
            ones, widths = (1,) * x.rank, (0, n - 1) if site.root.attr("reverse") else (n - 1, 0)
            windows = [n if a == axis else 1 for a in range(x.rank)]
            padding = [widths if a == axis else (0, 0) for a in range(x.rank)]
            return y.reduce_window(windows, ones, padding, ones, ones, reduce=kind)
        by = 1
        while by < n:
            y = combine(y, _shifted(site, y, axis, by, fill))
            by *= 2
        return y

    return _accumulated(rule)


def halved(combine: Function, fill: Callable[[DType], Number]) -> Rule:
    """The rule of a reduction: each step combines the two halves of what is left."""

    def rule(site: Site, x: Tensor) -> Tensor:
        y = x
        for axis in (a % x.rank for a in site.root.attr("axes")):
            while (n := y.tensor_type.static_shape[axis]) != 1:
                shape = y.tensor_type.static_shape
                if n == 0:
                    y = site.filled(fill(x.dtype), x.tensor_type.with_shape(1 if a == axis else d for a, d in enumerate(shape)))
                    break
                first, second, rest = (
                    y.slice([s if a == axis else 0 for a in range(x.rank)], [m if a == axis else d for a, d in enumerate(shape)])
                    if m
                    else None
                    for s, m in ((0, n // 2), (n // 2, n // 2), (n - 1, n % 2))
                )
                assert first is not None and second is not None
                y = combine(first, second)
                y = site.concat([y, rest], axis=axis) if rest is not None else y
        return y if y.shape == site.result.shape else y.reshape(site.result.shape)

    return rule


def _accumulated(rule: Rule) -> Rule:
    """A rule in the accumulator that the op names, of floats f32 or wider, with a result in its own dtype. In f16 a part may
    overflow and another one vanish, in an order that the op has not."""

    def computed(site: Site, x: Tensor) -> Tensor:
        op = site.root
        accum = op.defn.named(op.attrs).get("accum_dtype") or x.dtype
        accum = wide(accum) if accum.is_float else accum
        return cast(rule(site, cast(x, accum)), site.result.dtype)

    return computed


def product(combine: Function) -> Rule:
    """The rule of the product of all elements along axes."""
    return _accumulated(halved(combine, lambda dtype: 1))


def argmin(site: Site, x: Tensor) -> Tensor:
    """The argmax of the negated elements. Integers are complemented, because that does not wrap."""
    other = -x if x.dtype.is_float else complement(x)
    op = site.root
    return other.argmax(op.attr("axis"), keepdims=op.attr("keepdims"), output_dtype=op.attr("output_dtype"))


def sort(site: Site, x: Tensor) -> Tensor:
    """`top_k` of all elements, which is stable, too."""
    axis = site.root.attr("axis") % x.rank
    return x.top_k(k=x.tensor_type.static_shape[axis], axis=axis, largest=site.root.attr("descending"), indices_dtype=SI32)[0]
