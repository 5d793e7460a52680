"""Attention: two contractions with a softmax between them, whose operands may lie in any order of axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from ptir_tools.core.ir import Op, Operand, Value
from ptir_tools.dialects.ptir.recognition.found import Found, Number
from ptir_tools.dialects.ptir.rules import helpers


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
    """A call of this toolkit's, in the dtype of the softmax. Queries, keys and values are laid as it wants them; keys and values
    that several heads share get axes of extent 1; a mask is given as it was before it was repeated."""
    q, k = (_side(found.op("scores"), i) for i in range(2))
    weights, v = (_side(found.root, i) for i in range(2))
    rank, n = helpers.rank(weights.operand), len(q.batch)
    single = all(len(x.contract) == 1 for x in (q, v)) and len(k.free) == len(v.free) == 1 and len(q.free) >= 1
    straight = weights.batch == tuple(range(n)) and weights.contract == (rank - 1,)
    over = dict(found.op("weights").attr("attrs"))["axis"][1]
    scale = _scale(found)
    dtype = helpers.dtype(weights.operand)
    wide = all(helpers.lossless(helpers.dtype(x.operand), dtype) for x in (q, k, v))
    if not (single and straight and wide) or over not in (-1, rank - 1) or scale is None or not helpers.floating(found.root):
        return None
    shared = len(q.free) - 1
    operands = [
        _laid(found, q, (*q.batch, *q.free, *q.contract)),
        _shared(found, _laid(found, k, (*k.batch, *k.free, *k.contract)), n, shared),
        _shared(found, _laid(found, v, (*v.batch, *v.contract, *v.free)), n, shared),
    ]
    given: dict[str, Number] = {"scale": ("F64", scale)}
    if "mask" in found.match.inputs:
        operands.append(_before_broadcast(found.input("mask")))
    if "low" in found.match.inputs:
        given["masked"] = ("F64", float(found.match.number("low")))
    operands[:3] = [found.cast(x, dtype) for x in operands[:3]]
    made = found.call_in(dtype, "ptir.attention.v1", *operands, **given)
    return made if helpers.dtype(found.root) is dtype else found.build("cast", made, dtype=helpers.dtype(found.root))


def _scale(found: Found) -> float | None:
    """What scores are multiplied by; None when it is no number to reckon with."""
    if "scale" not in found.match.inputs:
        return 1.0
    scale = float(found.match.number("scale"))
    if found.op("scaled").defn.name != "ptir.div":
        return scale if isfinite(scale) else None
    return 1 / scale if scale and isfinite(1 / scale) else None


def _laid(found: Found, side: _Side, perm: Sequence[int]) -> Operand:
    """The operand with its axes in the order `perm`."""
    x = side.operand
    return x if tuple(perm) == tuple(range(len(perm))) else found.build("transpose", x, perm=tuple(perm))


def _shared(found: Found, x: Operand, at: int, count: int) -> Operand:
    """`x` with `count` axes of extent 1 from `at` on."""
    shape = helpers.shape(x)
    return found.build("reshape", x, new_shape=(*shape[:at], *[1] * count, *shape[at:])) if count else x


def _before_broadcast(x: Operand) -> Operand:
    while isinstance(x, Value) and x.op is not None and x.op.defn.name == "ptir.broadcast_to":
        x = x.op.operands[0]
    return x
