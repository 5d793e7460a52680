"""Linear systems and Fourier transforms, composed of contractions and loops, and CHLO's scan."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ptir_tools.bridges.extent_ops import reversed_along
from ptir_tools.bridges.linalg.factors import factored, solved
from ptir_tools.bridges.linalg.fourier import mirrored, refusal, transformed
from ptir_tools.bridges.node import results_of
from ptir_tools.bridges.numbers import converted
from ptir_tools.bridges.stablehlo.ops.contractions import contracted
from ptir_tools.bridges.stablehlo.scopes import Scope
from ptir_tools.bridges.stablehlo.table import Site, Tensor, handles, refused, sizes_of
from ptir_tools.core.dtypes import CF32, CF64, F64, SI32
from ptir_tools.core.violations import require


@handles("stablehlo.triangular_solve")
def triangular_solve(site: Site, a: Tensor, b: Tensor) -> Tensor:
    """`op(a) x = b` or `x op(a) = b`, row by row in a loop."""
    left, lower, unit = (site.flag(name) for name in ("left_side", "lower", "unit_diagonal"))
    how = site.word("transpose_a", "NO_TRANSPOSE")
    require(how in ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"), "InvalidAttributeValue", f"`transpose_a` is {how}")
    fine = a.rank == b.rank >= 2 and a.shape[-1] == a.shape[-2] and a.shape[-1] == b.shape[-2 if left else -1]
    require(fine and a.shape[:-2] == b.shape[:-2], "OperandShapeMismatch", f"{a.type} and {b.type} are not a system")
    sizes_of(b)
    return solved(a, b, left=left, lower=lower, unit=unit, turned=how != "NO_TRANSPOSE", conj=how == "ADJOINT")


@handles("stablehlo.cholesky")
def cholesky(site: Site, a: Tensor) -> Tensor:
    """The Cholesky factor, column by column in a loop."""
    lower = site.flag("lower")
    require(a.rank >= 2 and a.shape[-1] == a.shape[-2], "OperandShapeMismatch", f"{a.type} is not square")
    sizes_of(a)
    return factored(a, lower)


@handles("stablehlo.fft", type="fft_type", length="fft_length")
def fft(site: Site, x: Tensor) -> Tensor:
    """Fourier transforms along the last axes; the innermost may be real."""
    kind, lengths = site.word("fft_type"), site.ints("fft_length")
    require(kind in ("FFT", "IFFT", "RFFT", "IRFFT"), "InvalidAttributeValue", f"`fft_type` is {kind}")
    require(0 < len(lengths) <= x.rank, "InvalidAttributeValue", "`fft_length` has more entries than the operand axes")
    axes = list(range(x.rank - len(lengths), x.rank))
    last, sizes = axes[-1], sizes_of(x)
    expected = [*sizes[axes[0] :]] if kind != "IRFFT" else [*sizes[axes[0] : -1], lengths[-1]]
    fits = list(lengths) == expected and (kind != "IRFFT" or sizes[-1] == lengths[-1] // 2 + 1)
    require(fits, "OperandShapeMismatch", f"`fft_length` {list(lengths)} is not that of {x.type}")
    if not math.prod(sizes) * math.prod(lengths):
        return site.full(0, site.type)
    for n in lengths:
        if reason := refusal(n):
            raise refused(reason)
    if kind == "RFFT":
        whole = transformed(converted(x, CF64 if x.dtype is F64 else CF32), last, inverse=False)
        x = whole.slice([0] * x.rank, [*sizes[:-1], lengths[-1] // 2 + 1])
    for axis in reversed(axes if kind in ("FFT", "IFFT") else axes[:-1]):
        x = transformed(x, axis, inverse=kind[0] == "I")
    return x if kind != "IRFFT" else transformed(mirrored(x, last, lengths[-1]), last, inverse=True).real()


# CHLO


@handles("chlo.scan", values=True)
def scan(site: Site, *operands: Tensor) -> list[Tensor]:
    """A loop over slices along an axis, which carries values and stacks others."""
    region, axis = site.regions[0], site.integer("dimension")
    carries = _carried(site, operands)
    inputs, inits = list(operands[: len(operands) - carries]), list(operands[len(operands) - carries :])
    require(bool(inputs) and all(isinstance(x, Tensor) for x in operands), "OperandTypeMismatch", "tensors are wanted")
    rank = inputs[0].rank
    order = [axis, *(a for a in range(rank) if a != axis)]
    backward = site.flag("is_reverse")
    rows = [x.transpose(order) if axis else x for x in inputs]
    rows = [reversed_along(x, 0) for x in rows] if backward else rows
    capture = site.scope.capture([region])
    given = [*inits, *capture.arguments]
    slices = [x.tensor_type.with_shape(x.shape[1:]) for x in rows]

    def body(inner: Scope, params: list[Tensor]) -> Sequence[object]:
        capture.bind(inner, params[carries : len(given)])
        result = inner.inline(region, [*params[len(given) :], *params[:carries]])
        outputs = len(result) - carries
        return [*result[outputs:], *params[carries : len(given)], *result[:outputs]]

    made_region = site.scope.region([*(x.type for x in given), *slices], body)
    outputs = len(made_region.results) - len(given)
    output = site.op("scan", [*given, *rows], len(given), outputs, regions=[made_region])
    made = results_of(output)
    stacks = made[len(given) :]
    stacks = [reversed_along(x, 0) for x in stacks] if backward else stacks
    back = [order.index(a) for a in range(rank)]
    return [*(x.transpose(back) if axis else x for x in stacks), *made[:carries]]


def _carried(site: Site, operands: Sequence[object]) -> int:
    """The number of carried operands: the list after `inits`."""
    lists = [p for p in site.statement.pieces if type(p) is list]
    if len(lists) == 2:
        return len(lists[1])
    return (
        len(operands) - len(site.regions[0].params) // 2
        if len(site.types) == len(operands)
        else site.integer("num_carries", len(operands) // 2)
    )


@handles("chlo.ragged_dot")
def ragged_dot(site: Site, x: Tensor, y: Tensor, sizes: Tensor) -> Tensor:
    """Each row times the matrix of its group; groups are consecutive rows."""
    f = site.fields("ragged_dot_dimension_numbers")
    batch = f.axes("lhs_batching_dimensions"), f.axes("rhs_batching_dimensions")
    contract = f.axes("lhs_contracting_dimensions"), f.axes("rhs_contracting_dimensions")
    ragged, group = f.axes("lhs_ragged_dimensions"), f.axes("rhs_group_dimensions")
    if len(ragged) != 1 or len(group) != 1 or sizes.rank != 1 or ragged[0] in (*batch[0], *contract[0]):
        raise refused("groups along another axis than the rows")
    count, rows = sizes_of(y)[group[0]], sizes_of(x)[ragged[0]]
    every = contracted(site, x, y, batch, contract, site.dtype)
    free = [a for a in range(x.rank) if a not in (*batch[0], *contract[0])]
    others = [a for a in range(y.rank) if a not in (*batch[1], *contract[1])]
    at = len(batch[0]) + free.index(ragged[0])
    of_group = len(batch[0]) + len(free) + others.index(group[0])
    ends = sizes.cast(SI32).cumsum(axis=0)
    row, end = site.iota([rows, count], SI32, 0), site.broadcast(ends, (rows, count), [1])
    size = site.broadcast(sizes.cast(SI32), (rows, count), [1])
    own = row.compare_lt(end).bitwise_and(row.compare_ge(end - size))
    kept = site.broadcast(own, every.shape, [at, of_group])
    return kept.select(every, 0).reduce_sum([of_group])
