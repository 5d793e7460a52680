"""Patterns of contractions: transposes folded into dimension numbers, factors that are the identity, zero or empty."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core import arrays
from ptir_tools.core.ir import Operand, Value
from ptir_tools.core.lazy import np
from ptir_tools.dialects.ptir.ops.typerules import default_accum
from ptir_tools.dialects.ptir.rewrites import helpers
from ptir_tools.rewrite.constants import literal_of, scalar_of
from ptir_tools.rewrite.patterns import Effect, OpView, Pattern, rewrites

_REDUCTIONS = ("ptir.reduce_sum", "ptir.reduce_max", "ptir.reduce_min")
_KINDS = ("is_integer", "is_float", "is_complex")  # an accumulator is of the kind of what it adds up


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
    """A transpose of an operand is folded into the dimension numbers."""
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
    """A contraction with its free axes exchanged is the contraction of the exchanged operands."""
    dot = op.defined_by(op.x, "dot_general")
    if dot is None or not op.has_one_use(op.x):
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
    """A contraction whose accumulator is its result and is then cast has that dtype as `out_dtype`."""
    inner = op.rw.inst_of(op.x) if isinstance(op.x, Value) else None
    if inner is None or not op.has_one_use(op.x):
        return False
    source, target = helpers.dtype(op.x), op.dtype
    accum = inner.attr("accum_dtype") or default_accum(helpers.dtype(inner.operands[0]))
    if accum is not source or any(getattr(source, kind) is not getattr(target, kind) for kind in _KINDS):
        return False
    attrs = inner.defn.named(inner.attrs) | {"accum_dtype": accum, "out_dtype": target}
    return op.replace(op.rw.build(op.root, inner.defn, *inner.operands, **attrs))


@rewrites("ptir.dot_general", *_REDUCTIONS, operands=["ptir.cast"], every=True)
def widened_operands(op: OpView) -> bool:
    """An operand that is only widened is read in its narrow dtype, because the accumulator holds every value of it."""
    root = op.root
    casts = [v for x in root.operands if (v := op.defined_by(x, "cast")) is not None]
    sources = {helpers.dtype(v.x) for v in casts}
    if len(casts) < len(root.operands) or len(sources) > 1:
        return False
    source, wide = sources.pop(), helpers.dtype(root.operands[0])
    if not helpers.lossless(source, wide) or not any(getattr(source, k) and getattr(wide, k) for k in _KINDS):
        return False
    accum = op.accum_dtype or default_accum(wide)
    attrs = root.defn.named(root.attrs) | {"accum_dtype": accum, "out_dtype": helpers.dtype(root)}
    return op.replace(op.rw.build(root, root.defn, *(v.x for v in casts), **attrs))


def _is_identity(x: Operand) -> bool:
    """Whether `x` is a constant matrix with ones on the diagonal and zeros elsewhere."""
    literal, shape = literal_of(x), helpers.shape(x)
    if literal is None or literal.data is None or literal.splat or len(shape) != 2 or shape[0] != shape[1]:
        return False
    found = arrays.widen(arrays.from_literal(literal))
    return np.array_equal(found, np.eye(len(found)))


@rewrites("ptir.dot_general", operands=["ptir.constant"], effect=Effect.RANGE)
def dot_of_identity(op: OpView) -> bool:
    """A product with the identity matrix is the other factor; its contracted axis moves to where the matrix's free axis is. This
    may change a NaN, because an infinity times the zeros of the matrix is NaN."""
    for x, eye, contract, left in ((op.rhs, op.lhs, op.contract_rhs, False), (op.lhs, op.rhs, op.contract_lhs, True)):
        if op.batch_lhs or len(contract) != 1 or not _is_identity(eye) or helpers.dtype(x) is not helpers.dtype(op.root):
            continue
        rank = helpers.rank(x)
        rest = [a for a in range(rank) if a != contract[0] % rank]
        perm = (*rest, contract[0] % rank) if left else (contract[0] % rank, *rest)
        if op.accum_dtype is None or helpers.lossless(helpers.dtype(x), op.accum_dtype):
            return op.replace(op.rw.build(op.root, "transpose", x, perm=perm))
    return False


@rewrites("ptir.dot_general", operands=["ptir.broadcast_to"], effect=Effect.ORDER)
def dot_of_copied_batch(op: OpView) -> bool:
    """A batch axis along which the right operand is broadcast is a free axis of the left one."""
    inner = op.defined_by(op.rhs, "broadcast_to")
    if inner is None or not helpers.static(op.lhs, op.rhs):
        return False
    rank = helpers.rank(op.rhs)
    lead, extents = rank - helpers.rank(inner.x), helpers.shape(inner.x)
    left, right = helpers.axes(op.batch_lhs, helpers.rank(op.lhs)), helpers.axes(op.batch_rhs, rank)
    busy = {*left, *helpers.axes(op.contract_lhs, helpers.rank(op.lhs))}
    free = min((a for a in range(helpers.rank(op.lhs)) if a not in busy), default=helpers.rank(op.lhs))
    kept = len(left)
    while kept and left[kept - 1] < free and (right[kept - 1] < lead or extents[right[kept - 1] - lead] == 1):
        kept -= 1
        free = left[kept]
    gone = right[kept:]
    x = _without(op, inner, gone) if gone else None
    if x is None:
        return False
    contract = tuple(a - sum(g < a for g in gone) for a in helpers.axes(op.contract_rhs, rank))
    batch = tuple(a - sum(g < a for g in gone) for a in right[:kept])
    attrs = op.root.defn.named(op.root.attrs) | {"batch_lhs": left[:kept], "batch_rhs": batch, "contract_rhs": contract}
    return op.replace(op.rw.build(op.root, "dot_general", op.lhs, x, **attrs))


def _without(op: OpView, inner: OpView, gone: Sequence[int]) -> Operand | None:
    """The right operand of the root, the broadcast `inner`, without the axes `gone`, along which it was only repeated; None when
    that adds more ops than it removes."""
    lead = helpers.rank(op.rhs) - helpers.rank(inner.x)
    plain = tuple(d for a, d in enumerate(helpers.shape(inner.x), lead) if a not in gone)
    want = tuple(d for a, d in enumerate(helpers.shape(op.rhs)) if a not in gone)
    x = inner.x
    if (plain != helpers.shape(x)) + (plain != want) > op.has_one_use(op.rhs):
        return None
    if plain != helpers.shape(x):
        x = op.rw.build(op.root, "reshape", x, new_shape=plain)
    return x if plain == want else op.rw.build(op.root, "broadcast_to", x, result_shape=want)


@rewrites("ptir.dot_general", operands=["ptir.broadcast_to"], effect=Effect.ORDER)
def dot_of_copied_rows(op: OpView) -> bool:
    """The product of broadcast rows or columns is the product of one, broadcast."""
    for side, other in (("lhs", "rhs"), ("rhs", "lhs")):
        x = getattr(op, side)
        inner = op.defined_by(x, "broadcast_to")
        if inner is None or not helpers.static(op.lhs, op.rhs) or not op.has_one_use(x):
            continue
        lead = helpers.rank(x) - helpers.rank(inner.x)
        batch, contract = (helpers.axes(getattr(op, f"{kind}_{side}"), helpers.rank(x)) for kind in ("batch", "contract"))
        same = all(a >= lead and helpers.shape(inner.x)[a - lead] == helpers.shape(x)[a] for a in (*batch, *contract))
        if not same or (lead and (batch or side == "rhs")):
            continue
        attrs = op.root.defn.named(op.root.attrs)
        attrs |= {f"{kind}_{side}": tuple(a - lead for a in axes) for kind, axes in (("batch", batch), ("contract", contract))}
        sides = {side: inner.x, other: getattr(op, other)}
        product = op.rw.build(op.root, "dot_general", sides["lhs"], sides["rhs"], **attrs)
        return op.replace(op.rw.build(op.root, "broadcast_to", product, result_shape=helpers.shape(op.root)))
    return False


@rewrites("ptir.dot_general", operands=["ptir.constant", "ptir.broadcast_to"], effect=Effect.RANGE)
def dot_of_zeros(op: OpView) -> bool:
    """A product with zeros is zero."""
    t = helpers.tensor_type(op.root)
    if not any(scalar_of(x) == 0 for x in (op.lhs, op.rhs)) or not t.is_static:
        return False
    return helpers.filled(op, 0)


@rewrites("ptir.dot_general", depth=1)
def dot_of_nothing(op: OpView) -> bool:
    """A contraction over an empty axis is zero."""
    t = helpers.tensor_type(op.root)
    if not any(helpers.shape(op.lhs)[a] == 0 for a in op.contract_lhs) or not t.is_static or not t.count:
        return False
    return helpers.filled(op, 0)


DOTS: list[Pattern] = [
    dot_of_transpose,
    ordered_contraction,
    transpose_of_dot,
    cast_of_accumulator,
    widened_operands,
    dot_of_copied_batch,
    dot_of_copied_rows,
    dot_of_identity,
    dot_of_zeros,
    dot_of_nothing,
]
