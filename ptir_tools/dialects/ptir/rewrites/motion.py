"""Motion of ops that rearrange past ops that compute. Slices move up, toward the parameters, so that less is computed.
Transposes, reshapes and broadcasts move down, toward the results, where two that meet are merged.

Both directions end: no rule here makes a program longer, and each moves one op past another in one direction only.
"""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core.ir import Literal, Op, Operand, Value, create
from ptir_tools.core.types import Shape
from ptir_tools.dialects.ptir.rewrites import helpers
from ptir_tools.dialects.ptir.rewrites.speculation import never_fails
from ptir_tools.rewrite.constants import literal_of, same_operand
from ptir_tools.rewrite.patterns import Effect, OpView, Pattern, named, rewrites

_FAMILIES = ("ptir.elementwise_unary", "ptir.elementwise_binary", "ptir.compare", "ptir.select", "ptir.clamp", "ptir.cast")
MAPS = tuple(d.name for family in _FAMILIES for d in named(family))  # element i of the result depends on elements i
_SINKING = ("ptir.transpose", "ptir.reshape", "ptir.broadcast_to")


def uniform(x: Operand) -> bool:
    """Whether all elements are one scalar, so that `x` exists in any shape."""
    op = x.op if isinstance(x, Value) else None
    if op is not None and op.defn.name == "ptir.broadcast_to":
        return helpers.rank(op.operands[0]) == 0
    literal = literal_of(x)
    return literal is not None and literal.data is not None and (literal.splat or helpers.count(x) == 1)


def reshaped_uniform(op: OpView, x: Operand, shape: Shape) -> Operand:
    """The uniform `x` in another shape. Inline literals stay inline."""
    if helpers.shape(x) == shape:
        return x
    if isinstance(x, Value) and x.op is not None and x.op.defn.name == "ptir.broadcast_to":
        return op.rw.build(op.root, "broadcast_to", x.op.operands[0], result_shape=shape)
    literal = literal_of(x)
    assert literal is not None
    t = literal.type.with_shape(shape)
    assert t.is_static
    made = Literal(t, literal.data, splat=t.count != 1)
    return made if isinstance(x, Literal) else op.rw.materialize_constant(op.root, made)


def _added_ops(op: OpView, uniforms: Sequence[Operand]) -> int:
    """The number of ops that are added when the `uniforms` get another shape: those with other users stay."""
    again = {x for x in uniforms if isinstance(x, Value)}
    return sum(not op.has_one_use(x) for x in again)


def _mapped(op: OpView, root: Op, operands: Sequence[Operand]) -> Value:
    """The elementwise `root` on other operands."""
    return op.rw.insert_before(op.root, create(root.defn, root.defn.split(root.attrs, operands), root.defn.named(root.attrs)))


@rewrites(*MAPS, operands=_SINKING)
def movement_down(op: OpView) -> bool:
    """An elementwise op on operands that are transposed, reshaped or broadcast alike, or uniform, moves before that movement."""
    root = op.root
    if any(map(_is_unmoved, root.operands)):
        return False
    moved = list(dict.fromkeys(x for x in root.operands if isinstance(x, Value) and not uniform(x)))
    uniforms = [x for x in root.operands if x not in moved]
    inner = [x.op for x in moved if x.op is not None]
    if not moved or len({o.defn for o in inner}) > 1:
        return False
    if _added_ops(op, uniforms) >= len(moved) or not all(helpers.has_one_use(op.rw, x, root) for x in moved):
        return False
    source = _common_source(op, inner)
    if source is None or not (helpers.static(root) or not uniforms):
        return False
    sources = {x: _lifted(op, o, source) for x, o in zip(moved, inner, strict=True)}
    operands = [sources[x] if isinstance(x, Value) and x in sources else reshaped_uniform(op, x, source) for x in root.operands]
    return op.replace(_moved(op, inner[0], _mapped(op, root, operands)))


def _is_unmoved(x: Operand) -> bool:
    """Whether `x` is neither the result of a movement nor uniform."""
    return (not isinstance(x, Value) or x.op is None or x.op.defn.name not in _SINKING) and not uniform(x)


def _common_source(op: OpView, inner: Sequence[Op]) -> Shape | None:
    """The shape in which the elementwise op can be computed before the movements `inner`; None when they differ."""
    first = helpers.shape(inner[0].operands[0])
    kind = inner[0].defn.short
    if kind == "transpose":
        perms = {helpers.axes(o.attr("perm"), len(first)) for o in inner}
        return first if len(perms) == 1 and not _widens(op.root) else None
    if kind == "reshape":
        alike = all(helpers.shape(o.operands[0]) == first for o in inner)
        return first if alike and helpers.static(op.root, inner[0].operands[0]) else None
    widest = max((helpers.shape(o.operands[0]) for o in inner), key=lambda s: (len(s), sum(d != 1 for d in s)))
    fits = all(_broadcasts(helpers.shape(o.operands[0]), widest) for o in inner)
    return widest if fits and helpers.total(op.root) and widest != helpers.shape(op.root) else None


def _widens(root: Op) -> bool:
    """Whether the result has wider elements than the operand, so that a transpose before it is cheaper."""
    return helpers.dtype(root).bits > helpers.dtype(root.operands[-1]).bits


def _broadcasts(shape: Shape, to: Shape) -> bool:
    return len(shape) <= len(to) and all(a in (1, b) for a, b in zip(reversed(shape), reversed(to), strict=False))


def _lifted(op: OpView, inner: Op, shape: Shape) -> Operand:
    x = inner.operands[0]
    return x if helpers.shape(x) == shape else op.rw.build(op.root, "broadcast_to", x, result_shape=shape)


def _moved(op: OpView, inner: Op, x: Value) -> Value:
    """`x`, rearranged as by the op `inner`, in the shape of the root."""
    if inner.defn.short == "transpose":
        return op.rw.build(op.root, "transpose", x, perm=inner.attr("perm"))
    if inner.defn.short == "reshape":
        return op.rw.build(op.root, "reshape", x, new_shape=helpers.shape(op.root))
    return op.rw.build(op.root, "broadcast_to", x, result_shape=helpers.shape(op.root))


@rewrites("ptir.transpose", operands=["ptir.cast"])
def transpose_of_widening(op: OpView) -> bool:
    """A transpose of a widening cast moves before it, where the elements are narrow."""
    cast = op.defined_by(op.x, "cast")
    if cast is None or not _widens(cast.root) or not op.has_one_use(op.x):
        return False
    return op.replace(op.rw.build(op.root, "cast", op.rw.build(op.root, "transpose", cast.x, perm=op.perm), dtype=cast.dtype))


@rewrites("ptir.transpose", operands=["ptir.broadcast_to"])
def transpose_of_broadcast(op: OpView) -> bool:
    """A transpose of a broadcast moves before it."""
    inner = op.defined_by(op.x, "broadcast_to")
    if inner is None:
        return False
    padded = (*[1] * (helpers.rank(op.x) - helpers.rank(inner.x)), *helpers.shape(inner.x))
    perm = helpers.axes(op.perm, len(padded))
    shape: Shape = tuple(padded[a] for a in perm)
    moves = not helpers.keeps_row_major(perm, padded)
    while len(shape) > 0 and shape[0] == 1 and not moves:
        shape = shape[1:]
    x = inner.x
    if moves or shape != helpers.shape(x):
        if not op.has_one_use(op.x) or (moves and len(padded) != helpers.rank(x)):
            return False
        if not moves and not helpers.static(x):
            return False
        x = op.rw.build(op.root, "transpose", x, perm=perm) if moves else op.rw.build(op.root, "reshape", x, new_shape=shape)
    return op.replace(op.rw.build(op.root, "broadcast_to", x, result_shape=helpers.shape(op.root)))


@rewrites("ptir.transpose", operands=["ptir.reshape"])
def transpose_of_units(op: OpView) -> bool:
    """A transpose of a reshape that only adds or drops extents 1 moves before it."""
    inner = op.defined_by(op.x, "reshape")
    if inner is None or not helpers.static(inner.x) or not op.has_one_use(op.x):
        return False
    before, after = helpers.shape(inner.x), helpers.shape(op.x)
    origin = helpers.unit_origins(before, after)
    if origin is None:
        return False
    order = [o for a in helpers.axes(op.perm, len(after)) if (o := origin[a]) is not None]
    units = [a for a in range(len(before)) if a not in order]
    x = op.rw.build(op.root, "transpose", inner.x, perm=(*units, *order))
    return op.replace(op.rw.build(op.root, "reshape", x, new_shape=helpers.shape(op.root)))


@rewrites("ptir.concat", operands=["ptir.transpose"])
def concat_of_transposes(op: OpView) -> bool:
    """A concat of equal transposes moves before them, and one transpose is left."""
    inner = [op.defined_by(x, "transpose") for x in op.root.operands]
    views = [v for v in inner if v is not None]
    rank = helpers.rank(op.root)
    perms = {helpers.axes(v.perm, rank) for v in views}
    if len(inner) < 2 or len(views) < len(inner) or len(perms) > 1:
        return False
    if not all(op.has_one_use(x) for x in op.root.operands):
        return False
    perm = perms.pop()
    t = helpers.tensor_type(op.root)
    before = t.with_shape(t.shape[perm.index(a)] for a in range(rank))
    joined = op.rw.build(op.root, "concat", [v.x for v in views], axis=perm[op.axis % rank], types=[before])
    return op.replace(op.rw.build(op.root, "transpose", joined, perm=perm))


@rewrites("ptir.slice", operands=MAPS)
def slice_of_map(op: OpView) -> bool:
    """A slice of an elementwise op moves before it when the other operands are uniform, unless an op that is then not computed
    could fail."""
    inner = op.rw.inst_of(op.x) if isinstance(op.x, Value) else None
    if inner is None or inner.defn.name not in MAPS or not helpers.static(op.x) or not op.has_one_use(op.x):
        return False
    if not never_fails(inner):
        return False
    varied = [x for x in inner.operands if not uniform(x)]
    if not varied or not isinstance(varied[0], Value) or not all(same_operand(x, varied[0]) for x in varied):
        return False
    if any(isinstance(x, Value) and x not in varied and not helpers.has_one_use(op.rw, x, inner) for x in inner.operands):
        return False
    part = op.rw.build(op.root, "slice", varied[0], starts=op.starts, sizes=op.sizes)
    operands = [reshaped_uniform(op, x, op.sizes) if uniform(x) else part for x in inner.operands]
    return op.replace(_mapped(op, inner, operands))


@rewrites("ptir.slice", operands=["ptir.transpose"])
def slice_of_transpose(op: OpView) -> bool:
    """A slice of a transpose moves before it."""
    inner = op.defined_by(op.x, "transpose")
    if inner is None or not op.has_one_use(op.x):
        return False
    perm = helpers.axes(inner.perm, len(op.starts))
    starts, sizes = helpers.undo(perm, op.starts), helpers.undo(perm, op.sizes)
    part = op.rw.build(op.root, "slice", inner.x, starts=starts, sizes=sizes)
    return op.replace(op.rw.build(op.root, "transpose", part, perm=perm))


@rewrites("ptir.slice", operands=["ptir.reshape"])
def slice_of_units(op: OpView) -> bool:
    """A slice of a reshape that only adds or drops extents 1 moves before it."""
    inner = op.defined_by(op.x, "reshape")
    if inner is None or not helpers.static(inner.x) or not op.has_one_use(op.x) or 0 in op.sizes:
        return False
    before, after = helpers.shape(inner.x), helpers.shape(op.x)
    origin = helpers.unit_origins(before, after)
    if origin is None:
        return False
    window = {o: (op.starts[a], op.sizes[a]) for a, o in enumerate(origin) if o is not None}
    starts, sizes = zip(*(window.get(a, (0, 1)) for a in range(len(before))), strict=True) if before else ((), ())
    part = op.rw.build(op.root, "slice", inner.x, starts=starts, sizes=sizes)
    return op.replace(op.rw.build(op.root, "reshape", part, new_shape=op.sizes))


@rewrites("ptir.slice", operands=["ptir.reduce_sum", "ptir.reduce_max", "ptir.reduce_min"], effect=Effect.ORDER)
def slice_of_reduce(op: OpView) -> bool:
    """A slice of a reduction moves before it."""
    inner = op.rw.inst_of(op.x) if isinstance(op.x, Value) else None
    if inner is None or inner.defn.family != "reduce" or not op.has_one_use(op.x) or 0 in op.sizes:
        return False
    x = inner.operands[0]
    if not helpers.static(x):
        return False
    gone = helpers.axes(inner.attr("axes"), helpers.rank(x))
    kept = [a for a in range(helpers.rank(x)) if inner.attr("keepdims") or a not in gone]
    window = {a: (op.starts[i], op.sizes[i]) for i, a in enumerate(kept) if a not in gone}
    pairs = [window.get(a, (0, d)) for a, d in enumerate(helpers.shape(x))]
    part = op.rw.build(op.root, "slice", x, starts=tuple(s for s, _ in pairs), sizes=tuple(n for _, n in pairs))
    return op.replace(op.rw.build(op.root, inner.defn, part, **inner.defn.named(inner.attrs)))


@rewrites("ptir.slice", operands=["ptir.dot_general"], effect=Effect.ORDER)
def slice_of_dot(op: OpView) -> bool:
    """A slice of a contraction along free axes moves to its operands."""
    dot = op.defined_by(op.x, "dot_general")
    if dot is None or not helpers.static(dot.lhs, dot.rhs) or not op.has_one_use(op.x):
        return False
    sliced = [a for a, n in enumerate(helpers.shape(op.x)) if op.sizes[a] != n]
    batch = len(dot.batch_lhs)
    split = helpers.rank(dot.lhs) - len(dot.contract_lhs)
    left = all(batch <= a < split for a in sliced)
    if not (left or all(a >= split for a in sliced)):
        return False
    x = dot.lhs if left else dot.rhs
    busy = (dot.batch_lhs, dot.contract_lhs) if left else (dot.batch_rhs, dot.contract_rhs)
    taken = {a for axes in busy for a in helpers.axes(axes, helpers.rank(x))}
    free = [a for a in range(helpers.rank(x)) if a not in taken]
    window = {a: (op.starts[i], op.sizes[i]) for i, a in enumerate(free, batch if left else split)}
    pairs = [window.get(a, (0, d)) for a, d in enumerate(helpers.shape(x))]
    part = op.rw.build(op.root, "slice", x, starts=tuple(s for s, _ in pairs), sizes=tuple(n for _, n in pairs))
    sides = (part, dot.rhs) if left else (dot.lhs, part)
    return op.replace(op.rw.build(op.root, "dot_general", *sides, **dot.root.defn.named(dot.root.attrs)))


MOTION: list[Pattern] = [
    movement_down,
    transpose_of_widening,
    transpose_of_broadcast,
    transpose_of_units,
    concat_of_transposes,
    slice_of_map,
    slice_of_transpose,
    slice_of_units,
    slice_of_reduce,
    slice_of_dot,
]
