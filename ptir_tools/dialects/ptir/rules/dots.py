"""Patterns of contractions: transposes taken into dimension numbers, factors that are the identity or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ptir_tools.core import arrays
from ptir_tools.core.constants import literal_of, scalar_of
from ptir_tools.core.ir import Operand, Value
from ptir_tools.core.lazy import lazy
from ptir_tools.core.patterns import Effect, OpView, Pattern, rewrites
from ptir_tools.dialects.ptir.ops.typerules import default_accum
from ptir_tools.dialects.ptir.rules import helpers

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy("numpy")

_REDUCTIONS = ("ptir.reduce_sum", "ptir.reduce_max", "ptir.reduce_min")


def _through(
    perm: Sequence[int], batch: Sequence[int], contract: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Batch and contracted axes before a transpose; None when its free axes change order."""
    free = [perm[a] for a in range(len(perm)) if a not in batch and a not in contract]
    if free != sorted(free):
        return None
    return tuple(perm[a] for a in batch), tuple(perm[a] for a in contract)


@rewrites("ptir.dot_general", operands=["ptir.transpose", "ptir.reshape"])
def dot_of_transpose(op: OpView) -> bool:
    """A transposed operand is read through the dimension numbers."""
    sides = {"lhs": op.lhs, "rhs": op.rhs}
    attrs = op.root.defn.named(op.root.attrs)
    changed = False
    for side, x in sides.items():
        view = x.op if isinstance(x, Value) else None
        perm = helpers.as_transpose(view)
        if view is None or perm is None:
            continue
        rank = helpers.rank(x)
        found = _through(perm, helpers.axes(attrs[f"batch_{side}"], rank), helpers.axes(attrs[f"contract_{side}"], rank))
        if found is not None:
            attrs[f"batch_{side}"], attrs[f"contract_{side}"] = found
            sides[side] = view.operands[0]
            changed = True
    return changed and op.replace(op.rw.build(op.root, "dot_general", sides["lhs"], sides["rhs"], **attrs))


@rewrites("ptir.dot_general", depth=1, effect=Effect.ORDER)
def ordered_contraction(op: OpView) -> bool:
    """Pairs of contracted axes are listed in the order of the left operand."""
    pairs = list(zip(op.contract_lhs, op.contract_rhs, strict=True))
    left, right = (tuple(side) for side in zip(*sorted(pairs), strict=True)) if pairs else ((), ())
    if left == op.contract_lhs:
        return False
    attrs = op.root.defn.named(op.root.attrs) | {"contract_lhs": left, "contract_rhs": right}
    return op.replace(op.rw.build(op.root, "dot_general", op.lhs, op.rhs, **attrs))


@rewrites("ptir.transpose", operands=["ptir.dot_general"], effect=Effect.NAN_PAYLOAD)
def transpose_of_dot(op: OpView) -> bool:
    """A product with its free axes exchanged is the product of the exchanged operands."""
    dot = op.defined_by(op.x, "dot_general")
    if dot is None or not helpers.alone(op.rw, op.x, op.root):
        return False
    batch = len(dot.batch_lhs)
    left = helpers.rank(dot.lhs) - batch - len(dot.contract_lhs)
    n = helpers.rank(op.x)
    swapped = (*range(batch), *range(batch + left, n), *range(batch, batch + left))
    if not left or batch + left == n or helpers.axes(op.perm, n) != swapped:
        return False
    attrs = dot.root.defn.named(dot.root.attrs)
    for kind in ("batch", "contract"):
        attrs[f"{kind}_lhs"], attrs[f"{kind}_rhs"] = attrs[f"{kind}_rhs"], attrs[f"{kind}_lhs"]
    return op.replace(op.rw.build(op.root, "dot_general", dot.rhs, dot.lhs, **attrs))


@rewrites("ptir.cast", operands=["ptir.dot_general", *_REDUCTIONS])
def cast_of_accumulator(op: OpView) -> bool:
    """An accumulator that is returned as it is and then cast may be cast at once: `out_dtype` does the same."""
    inner = op.rw.inst_of(op.x) if isinstance(op.x, Value) else None
    if inner is None or not helpers.alone(op.rw, op.x, op.root):
        return False
    source, target = helpers.dtype(op.x), op.dtype
    accum = inner.attr("accum_dtype") or default_accum(helpers.dtype(inner.operands[0]))
    if accum is not source or (source.is_float, source.is_integer) != (target.is_float, target.is_integer):
        return False
    attrs = inner.defn.named(inner.attrs) | {"accum_dtype": accum, "out_dtype": target}
    return op.replace(op.rw.build(op.root, inner.defn, *inner.operands, **attrs))


def _is_identity(x: Operand) -> bool:
    """Whether `x` is a constant matrix with ones on the diagonal and zeros elsewhere."""
    literal, shape = literal_of(x), helpers.shape(x)
    if literal is None or literal.data is None or literal.splat or len(shape) != 2 or shape[0] != shape[1]:
        return False
    found = arrays.widen(arrays.from_literal(literal))
    return np.array_equal(found, np.eye(len(found)))


@rewrites("ptir.dot_general", operands=["ptir.constant"], effect=Effect.RANGE)
def dot_of_identity(op: OpView) -> bool:
    """A product with the identity matrix is the other factor, its contracted axis moved to where the matrix had its own.
    (An infinity times the zeros of the matrix is NaN.)"""
    for x, eye, contract, left in ((op.rhs, op.lhs, op.contract_rhs, False), (op.lhs, op.rhs, op.contract_lhs, True)):
        if op.batch_lhs or len(contract) != 1 or not _is_identity(eye) or helpers.dtype(x) is not helpers.dtype(op.root):
            continue
        rank = helpers.rank(x)
        rest = [a for a in range(rank) if a != contract[0] % rank]
        perm = (*rest, contract[0] % rank) if left else (contract[0] % rank, *rest)
        if op.accum_dtype is None or helpers.lossless(helpers.dtype(x), op.accum_dtype):
            return op.replace(op.rw.build(op.root, "transpose", x, perm=perm))
    return False


@rewrites("ptir.dot_general", operands=["ptir.constant", "ptir.broadcast_to"], effect=Effect.RANGE)
def dot_of_zeros(op: OpView) -> bool:
    """A product with zeros is zero."""
    t = helpers.tensor_type(op.root)
    if not any(scalar_of(x) == 0 for x in (op.lhs, op.rhs)) or not t.is_static:
        return False
    return op.replace(helpers.insert(op.rw, op.root, helpers.splat(t, 0)))


@rewrites("ptir.dot_general", depth=1)
def dot_of_nothing(op: OpView) -> bool:
    """A contraction over no element is zero."""
    t = helpers.tensor_type(op.root)
    if not any(helpers.shape(op.lhs)[a] == 0 for a in op.contract_lhs) or not t.is_static or not t.count:
        return False
    return op.replace(helpers.insert(op.rw, op.root, helpers.splat(t, 0)))


DOTS: list[Pattern] = [
    dot_of_transpose,
    ordered_contraction,
    transpose_of_dot,
    cast_of_accumulator,
    dot_of_identity,
    dot_of_zeros,
    dot_of_nothing,
]
