"""Attention: two products with a softmax between them, as one kernel for rows of some heads.

The score matrix is never in memory. Ops between the first product and the softmax are a tile program of the kernel. A constant
mask that keeps one run of columns in each row needs no array: the kernel gets the two columns, and skips columns of weight
exactly 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from math import gcd, prod

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import BF16, F16, F32, I1
from ptir_tools.core.evaluate import Context, evaluate
from ptir_tools.core.ir import Literal, Op, Operand, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.typed import Any
from ptir_tools.core.walks import post_order
from ptir_tools.engines.native import fusion, threads
from ptir_tools.engines.native.library import kernels
from ptir_tools.engines.native.lowering import lowered
from ptir_tools.engines.native.tiles import bits
from ptir_tools.engines.numpy.linalg import axes_of, stack, work_dtype
from ptir_tools.engines.numpy.steps import Look, Step, Workshop, fused, tensor_of
from ptir_tools.engines.thresholds import at
from ptir_tools.plan.liveness import Unit

MOST = 64  # ops that compute a mask


class Mask(NamedTuple):
    """Scores become `number`, one float, where `kept` is false (with `inverted`: true)."""

    kept: Operand
    number: Operand
    inverted: bool


class Attention(NamedTuple):
    """`first` and `last` are the products. `given` is the result of the first one, reshaped. `scores` are the ops on it, then
    comes `mask`, then the softmax; `masked` are the scores with the mask. `ops` are all ops in order; the first ones, `fixed`,
    compute only the mask."""

    ops: tuple[Op, ...]
    first: Op
    last: Op
    given: Value
    scores: fusion.Group | None
    mask: Mask | None
    masked: fusion.Group | None
    fixed: tuple[Op, ...]

    @property
    def shape(self) -> fusion.Shape:
        """The shape of the scores: heads in any number of axes, rows and columns."""
        return fusion.shape_of(self.given.type)

    def steps(self, look: Look, outs: Mapping[Value, Array], shop: Workshop) -> list[Step]:
        """The steps: parts for the threads, each with its own heads or rows."""
        return assemble(self, look, outs, shop)


def joined(units: list[Unit], uses: fusion.Uses) -> list[Unit]:
    """`units` with each attention as one, if no other op uses its intermediate values."""
    ends: dict[Op, Unit] = {}
    gone: set[Op] = set()
    for unit in units:
        if len(unit) > 1 and (found := _recognized(unit, uses)) is not None:
            ends[found.last] = fused(found, found.ops)
            gone.update(found.ops)
    return [ends.get(u[-1], u) for u in units if u[-1] in ends or u[0] not in gone]


def _recognized(ops: Unit, uses: fusion.Uses) -> Attention | None:
    """The attention that contains a fusion group."""
    leaving = [op.result for op in ops if not uses.are_by(ops, op.result)]
    softmax = _softmax(leaving[0]) if len(leaving) == 1 else {}
    if not softmax or not softmax.keys() <= {*ops} or (after := _product_after(leaving[0], uses)) is None:
        return None
    score = [*softmax][-1].operands[0]
    scores = [op for op in ops if op not in softmax]
    if any(isinstance(x, Value) and x.op in softmax for op in scores for x in op.operands):
        return None
    masked = group = fusion.grouped(scores) if scores else None
    if scores and (masked is None or masked.reduces):
        return None
    mask, score = _masked(score, scores, uses)
    if mask is not None:
        scores = scores[:-1]
        group = fusion.grouped(scores) if scores else None
    assert isinstance(score, Value)
    shape = fusion.shape_of(score.type)
    if scores and (group is None or scores[-1].result is not score):
        return None
    inputs = [*group.inputs] if group is not None else [score]
    own = {*ops}
    for x in inputs:
        before = _product_before(x, own, uses) if uses.are_by(own, x) and fusion.shape_of(x.type) == shape else None
        if before is not None and _is_of(tensor_of(after[-1]).dtype, (before[0], after[-1]), ops):
            fixed = _constant_ops(mask.kept, {*own}, uses) if mask is not None else []
            return Attention((*fixed, *before, *ops, *after), before[0], after[-1], x, group, mask, masked, tuple(fixed))
    return None


def _softmax(weights: Value) -> dict[Op, None]:
    """The ops of the softmax that ends at `weights`: e / sum e with e = exp(s - max s). The last of them is the maximum. Empty
    if it is no softmax."""
    found: dict[Op, None] = {}

    def made(x: Operand, name: str) -> Op | None:
        """The op with the instruction `name` that defines `x`, through reshapes and broadcasts of values per row."""
        while isinstance(x, Value) and x.op is not None and fusion.role(x.op) in ("reshape", "repeat"):
            found[x.op] = None
            x = x.op.operands[0]
        if not isinstance(x, Value) or x.op is None or x.op.defn.kernel is None or x.op.defn.kernel.name != name:
            return None
        found[x.op] = None
        return x.op

    if (result := made(weights, "div")) is None or result.result is not weights:
        return {}
    e, total = made(result.operands[0], "exp"), made(result.operands[1], "reduce_sum")
    shifted = made(e.operands[0], "sub") if e else None
    top = made(shifted.operands[1], "reduce_max") if shifted else None
    if e is None or total is None or shifted is None or top is None or total.operands[0] is not e.result:
        return {}
    return found if top.operands[0] is shifted.operands[0] else {}


def _masked(score: Operand, scores: Sequence[Op], uses: fusion.Uses) -> tuple[Mask | None, Operand]:
    """The mask of the score, if its operands are constants, and the unmasked score."""
    op = score.op if isinstance(score, Value) else None
    if op is None or not scores or op is not scores[-1] or op.defn.kernel is None or op.defn.kernel.name != "select":
        return None, score
    kept, *sides = op.operands
    for (x, number), inverted in ((sides, False), (sides[::-1], True)):
        is_score = isinstance(x, Value) and uses.only(x) is not None and x not in (kept, number)
        if is_score and _is_fixed(kept) and _is_fixed(number):
            return Mask(kept, number, inverted), x
    return None, score


def _is_fixed(x: Operand) -> bool:
    """Whether `x` is the same in every run: computed from constants and counters, by few ops."""
    seen, todo = set[Op](), [x]
    while todo:
        y = todo.pop()
        if isinstance(y, Literal) or (isinstance(y, Value) and y.op in seen):
            continue
        if not isinstance(y, Value) or y.op is None or len(y.op.results) != 1 or len(seen) == MOST:
            return False
        if y.op.regions or y.op.defn.is_random or not y.op.defn.is_pure:
            return False
        seen.add(y.op)
        todo += y.op.operands
    return True


def _evaluate(x: Operand) -> Array:
    """The value of `x`, which is fixed."""
    found: dict[Operand, Array] = {}
    for y in post_order([x], lambda y: y.op.operands if isinstance(y, Value) and y.op is not None else ()):
        if isinstance(y, Literal):
            found[y] = arrays.from_literal(y)
        else:
            assert isinstance(y, Value) and y.op is not None
            found[y] = evaluate(y.op, [found[z] for z in y.op.operands], Context())[0]
    return found[x]


def _constant_ops(x: Operand, own: set[Op], uses: fusion.Uses) -> list[Op]:
    """The ops that compute the fixed `x` and nothing else, in order, without constants."""
    if not isinstance(x, Value) or x.op is None or uses.only(x) not in own:
        return []
    if x.op.defn.is_constant or fusion.role(x.op) == "product":
        return []
    own.add(x.op)
    return [*(op for y in x.op.operands for op in _constant_ops(y, own, uses)), x.op]


def _product_before(x: Value, own: set[Op], uses: fusion.Uses) -> list[Op] | None:
    """The product that computes `x`, and the reshapes after it that keep rows and columns."""
    path: list[Op] = []
    shape = fusion.shape_of(x.type)
    while x.op is not None and x.op not in own and fusion.shape_of(x.type)[-2:] == shape[-2:]:
        path.insert(0, x.op)
        if fusion.role(x.op) == "product":
            return path if len(axes_of(x.op)[4]) == 1 and len(axes_of(x.op)[1]) > 0 else None
        source = x.op.operands[0] if fusion.role(x.op) == "reshape" else None
        if not isinstance(source, Value) or uses.only(source) is None:
            return None
        x = source
    return None


def _product_after(x: Value, uses: fusion.Uses) -> list[Op] | None:
    """The product whose left operand is `x`, summed over its last axis, and the reshapes before it that keep rows and columns."""
    path: list[Op] = []
    shape = fusion.shape_of(x.type)
    while (op := uses.only(x)) is not None and fusion.shape_of(x.type)[-2:] == shape[-2:]:
        path.append(op)
        rank = len(fusion.shape_of(x.type))
        if fusion.role(op) == "product":
            batch, rows, contract, *_ = axes_of(op)
            fits = op.operands[0] is x and [*batch, *rows, *contract] == [*range(rank)] and len(contract) == 1 and rows
            return path if fits else None
        if fusion.role(op) != "reshape":
            return None
        x = op.result
    return None


def _is_of(kind: object, products: tuple[Op, Op], inner: Iterable[Op]) -> bool:
    """Whether all values have one kind of floats, products are summed in f32, and there are enough scores."""
    shape = fusion.shape_of(products[0].result.type)
    floats = (op.result.type for op in (*products, *inner))
    return (
        kind in fusion.FLOATS
        and all(work_dtype(op) is F32 and tensor_of(op, i).dtype is kind for op in products for i in (0, 1))
        and all(getattr(t, "dtype", None) in (kind, I1) for t in floats)
        and prod(shape) >= at.scores
        and shape[-2] >= at.rows_of_head
    )


def assemble(found: Attention, look: Look, outs: Mapping[Value, Array], shop: Workshop) -> list[Step]:
    """The steps of an attention."""
    steps: list[Step] = []
    *lead, rows, columns = found.shape
    q_axes, v_axes = axes_of(found.first), axes_of(found.last)
    heads_of = ([*q_axes[0], *q_axes[1][:-1]], [q_axes[1][-1]], q_axes[2])
    (out,) = outs.values()
    of_pairs = tensor_of(found.last).dtype is BF16 and kernels().PAIR_PANEL > 0
    dtype = BF16 if of_pairs else F32
    q = bits(stack(look(found.first.operands[0]), heads_of, 0, shop, dtype, steps))
    k = bits(stack(look(found.first.operands[1]), (q_axes[3], q_axes[4], q_axes[5]), 0, shop, dtype, steps))
    v = bits(stack(look(found.last.operands[1]), (v_axes[3], v_axes[5], v_axes[4]), 0, shop, dtype, steps))
    made = of_pairs or out.dtype == np.float32
    wide = bits(out) if made else shop.scratch(out.shape, F32)
    heads = prod(lead)
    target = wide.reshape(heads, rows, v.shape[2])
    kept, low = _kept_columns(found, shop)
    scores = _Scores(found, look, shop, found.scores if kept is not None else found.masked)
    share = gcd(heads // len(k), heads // len(v)) if scores.has_heads else 1
    workers = shop.threads if q.size * columns + v.shape[2] * rows * columns * heads >= at.multiplications else 1
    # The rows of a part do not depend on the number of threads.
    panel = kernels().PAIR_PANEL if of_pairs else kernels().ATTENTION_PANEL
    cut = 1 if workers == 1 else min(-(-4 * workers * share // heads), -(-rows // at.rows_of_part))
    cuts = [slice(s.start * panel, min(s.stop * panel, rows)) for s in threads.cuts(-(-rows // panel), cut)]
    kind = {F32: kernels().FLOAT, F16: kernels().F16, BF16: kernels().BF16}[tensor_of(found.last).dtype]
    parts: list[Step] = []
    places = [(h, s) for h in range(0, heads, share) for s in cuts]
    chains = min(len(places), 2 * workers if workers > 1 else 1)
    floats = kernels().attention_floats(columns, k.shape[2], v.shape[2], scores.kinds, of_pairs)
    none = np.empty((0, 2), np.int32)
    for c in range(chains):
        room = shop.scratch((floats,), F32)
        chain: list[Step] = []
        for h, s in places[c::chains]:
            own = slice(h, h + share)
            operands = q[own, s], k[h * len(k) // heads], v[h * len(v) // heads]
            limits = none if kept is None else kept[s], low, kind
            call = (target[own, s], *operands, room, *limits, scores.code, scores.kinds, scores.arrays(own, s))
            chain.append((kernels().attention, call))
        parts.append((threads.in_turn, (chain,)))
    steps += threads.together(parts, workers)
    return steps if made else [*steps, *shop.copied(out, wide)]


def _kept_columns(found: Attention, shop: Workshop) -> tuple[Array | None, float]:
    """For each row the first column that the mask keeps and the one after the last, and the score of the others. None if a
    mask keeps other sets of columns."""
    if found.mask is None:
        return None, 0.0
    number = _evaluate(_unrepeated(found.mask.number))
    if number.size != 1:
        return None, 0.0
    mask, inverted, shape = found.mask.kept, found.mask.inverted, found.shape[-2:]

    def made() -> Array:
        x = _evaluate(mask)
        if x.ndim < 2 or any(n > 1 and s for n, s in zip(x.shape[:-2], x.strides[:-2], strict=True)):
            return np.empty((0, 2), np.int32)
        kept = np.broadcast_to(x[(0,) * (x.ndim - 2)] != inverted, shape)
        first = kept.argmax(1)
        last = np.where(kept.any(1), shape[1] - kept[:, ::-1].argmax(1), 0)
        edges = np.stack([np.where(last, first, 0), last], 1).astype(np.int32)
        return edges if (kept.sum(1) == edges[:, 1] - edges[:, 0]).all() else np.empty((0, 2), np.int32)

    edges = shop.kept((found.last, "kept columns"), made)
    return (edges if len(edges) else None), float(number.reshape(-1)[0])


def _unrepeated(x: Operand) -> Operand:
    while isinstance(x, Value) and x.op is not None and fusion.role(x.op) in ("reshape", "repeat"):
        x = x.op.operands[0]
    return x


class _Scores:
    """The tile program on the scores, including a mask that is not given by columns, and its arrays."""

    def __init__(self, found: Attention, look: Look, shop: Workshop, group: fusion.Group | None) -> None:
        self.code, self.kinds = b"", b""
        self.has_heads = True
        self.shape = found.shape
        self.whole: list[Any] = []
        if group is None:
            return
        self.code, self.kinds = lowered(group, [group.ops[-1].result], [kernels().FULL] * (len(group.inputs) + 1))
        fixed = {op.result for op in found.fixed}
        for x in group.inputs:
            if x is found.given:
                self.whole.append(None)
                continue
            array = look(x) if x not in fixed else shop.kept((found.last, f"input {len(self.whole)}"), partial(_evaluate, x))
            array = array if array.ndim == len(self.shape) else array.reshape(*self.shape[:-1], -1)
            self.whole.append(bits(np.broadcast_to(array, self.shape)))
        merged = [_merge_heads(a, self.shape) for a in self.whole]
        self.has_heads = all(m is not None or a is None for m, a in zip(merged, self.whole, strict=True))
        if self.has_heads:
            self.whole = merged

    def arrays(self, heads: slice, rows: slice) -> tuple[Any, ...]:
        """The arrays for these heads and rows: [heads, rows, columns], None for the scores."""
        if self.has_heads:
            return tuple(None if a is None else a[heads, rows] for a in self.whole)
        place = np.unravel_index(heads.start, self.shape[:-2])
        return tuple(None if a is None else a[place][None, rows] for a in self.whole)


def _merge_heads(x: Array | None, shape: fusion.Shape) -> Array | None:
    """`x` with one axis of heads; None if its strides do not allow that."""
    if x is None:
        return None
    try:
        return x.reshape((prod(shape[:-2]), *shape[-2:]), copy=False)
    except ValueError:
        return None
