"""Attention: two contractions with a softmax between them, whose operands may lie in any order of axes."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from ptir_tools.core.dtypes import I1
from ptir_tools.core.ir import Literal, Op, Operand, Value
from ptir_tools.core.records import dataclass
from ptir_tools.core.types import tensor
from ptir_tools.dialects.ptir.kernels.fusion import attrs
from ptir_tools.dialects.ptir.kernels.recognition.heads import grouped
from ptir_tools.dialects.ptir.kernels.recognition.replacement import Found, Number
from ptir_tools.dialects.ptir.rewrites import helpers


@dataclass(slots=True, frozen=True)
class _Side:
    """One operand of a contraction, and its axes by role."""

    operand: Operand
    batch: tuple[int, ...]
    free: tuple[int, ...]
    contract: tuple[int, ...]


def _side(dot: Op, index: int) -> _Side:
    x, letter = dot.operands[index], "lr"[index]
    rank = helpers.rank(x)
    batch, contract = (helpers.axes(dot.attr(f"{what}_{letter}hs"), rank) for what in ("batch", "contract"))
    return _Side(x, batch, tuple(i for i in range(rank) if i not in (*batch, *contract)), contract)


def attention(found: Found) -> Value | None:
    """A call of this toolkit's target, in the dtype of the softmax, with operands in the order of axes that it takes. Keys and
    values that several heads share get axes of extent 1. A mask is taken before it is broadcast."""
    q, k = (_side(found.op("scores"), i) for i in range(2))
    weights, v = (_side(found.root, i) for i in range(2))
    rank, n = helpers.rank(weights.operand), len(q.batch)
    single = all(len(x.contract) == 1 for x in (q, v)) and len(k.free) == len(v.free) == 1 and len(q.free) >= 1
    straight = weights.batch == tuple(range(n)) and weights.contract == (rank - 1,)
    over = dict(found.op("weights").attr("attrs"))["axis"][1]
    scale = float(found.match.number("scale"))
    dtype = helpers.dtype(found.op("weights"))
    wide = all(helpers.lossless(helpers.dtype(x.operand), dtype) for x in (q, k, v)) and _keeps_digits(found, q.operand)
    if (
        not (single and straight and wide)
        or over not in (-1, rank - 1)
        or not isfinite(scale)
        or not helpers.floating(found.root)
    ):
        return None
    shared = len(q.free) - 1
    operands = [
        _laid(found, q, (*q.batch, *q.free, *q.contract)),
        _shared(found, _laid(found, k, (*k.batch, *k.free, *k.contract)), n, shared),
        _shared(found, _laid(found, v, (*v.batch, *v.contract, *v.free)), n, shared),
    ]
    mask, given = _mask(found, scale)
    operands = grouped(found, operands + mask, n)
    operands[:3] = [found.cast(x, dtype) for x in operands[:3]]
    made = found.build("custom_call", operands, target="ptir.attention.v1", attrs=attrs(scale=("F64", scale), **given))
    if helpers.shape(made) != helpers.shape(found.root):
        made = found.build("reshape", made, new_shape=helpers.shape(found.root))
    return made if helpers.dtype(found.root) is dtype else found.build("cast", made, dtype=helpers.dtype(found.root))


def _keeps_digits(found: Found, q: Operand) -> bool:
    """Whether no cast between the queries and the result is narrower than the queries."""
    casts = [op for op in found.match.interior if op.defn.name == "ptir.cast"]
    return all(helpers.lossless(helpers.dtype(q), helpers.dtype(op)) for op in casts)


def _mask(found: Found, scale: float) -> tuple[list[Operand], dict[str, Number]]:
    """The mask as the call takes it, and the score that it sets where an i1 mask is false."""
    inputs = found.match.inputs
    masks = [helpers.source(inputs[name]) for name in ("mask", "hidden", "bias") if name in inputs]
    if len(masks) > 1:
        masks = [found.build("add", inputs["bias"], inputs["mask"])]
    if "hidden" in inputs:
        no = found.build("broadcast_to", Literal(tensor(I1), b"\0"), result_shape=helpers.shape(masks[0]))
        masks = [found.build("compare_eq", masks[0], no)]
    if "low" not in inputs:
        return masks, {}
    low = float(found.match.number("low"))
    return masks, {"masked": ("F64", low * scale if "scaled_late" in found.match.ops else low)}


def _laid(found: Found, side: _Side, perm: Sequence[int]) -> Operand:
    """The operand with its axes in the order `perm`."""
    x = side.operand
    return x if tuple(perm) == tuple(range(len(perm))) else found.build("transpose", x, perm=tuple(perm))


def _shared(found: Found, x: Operand, at: int, count: int) -> Operand:
    """`x` with `count` axes of extent 1 inserted at `at`."""
    shape = helpers.shape(x)
    return found.build("reshape", x, new_shape=(*shape[:at], *[1] * count, *shape[at:])) if count else x
