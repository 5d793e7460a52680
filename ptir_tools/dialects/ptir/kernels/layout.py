"""Chooses the order of axes of values between transposes, such that fewer elements are transposed.

Ops that work in any order of axes (elementwise ops, quantization by one scale, pads, concats, slices, reductions, windows, a take
along an axis) form groups: those that read each other's results. What enters or leaves a group may be transposed. The order in
which the fewest elements are moved there becomes the order of the whole group. So a convolutional network in which every
convolution is between two transposes keeps those at its ends. Layouts change no number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod

from ptir_tools.core.ir import Op, Operand, Value, create, operand_type
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.types import TensorType
from ptir_tools.dialects.ptir.ops.shape import keeps_row_major, relabeled
from ptir_tools.dialects.ptir.rewrites import helpers
from ptir_tools.dialects.ptir.rewrites.motion import MAPS
from ptir_tools.rewrite.rewriter import Rewriter

_PER_AXIS = {
    "pad": ("low", "high", "interior"),
    "slice": ("starts", "sizes"),
    "reduce_window": ("window_dims", "strides", "padding", "base_dilation", "window_dilation"),
}
_SCALES = ("quantize", "dequantize", "requantize")
_SPREADS = ("ptir.broadcast_to", "ptir.constant")
_PATCHES = "ptir.extract_patches"
_CONVOLUTIONS = (".conv2d.nhwc.", ".depthwise_conv2d.nhwc.")
Perm = tuple[int, ...]


def inverse(perm: Sequence[int]) -> Perm:
    """The permutation that undoes `perm`."""
    return tuple(perm.index(a) for a in range(len(perm)))


def composed(first: Sequence[int], then: Sequence[int]) -> Perm:
    """One permutation that does `first`, then `then`."""
    return tuple(first[a] for a in then)


def _moved_bytes(shape: Sequence[object], perm: Sequence[int], size: int) -> int:
    """The bytes that a transpose of `shape` moves; 0 where it only relabels axes."""
    extents = [d for d in shape if isinstance(d, int)]
    return 0 if keeps_row_major(perm, tuple(extents)) else prod(extents) * size


def _tensor(x: Operand) -> TensorType:
    return helpers.tensor_type(x)


def _size(x: Operand) -> int:
    return max(_tensor(x).dtype.bits // 8, 1)


def _perm(op: Op) -> Perm:
    return helpers.axes(op.attr("perm"), helpers.rank(op.operands[0]))


def _turn(op: Op) -> Perm | None:
    """The permutation of a transpose, or of a reshape that only moves extents of 1; None for any other op."""
    if op.defn.name == "ptir.transpose":
        return _perm(op)
    return relabeled(helpers.shape(op.operands[0]), helpers.shape(op)) if op.defn.name == "ptir.reshape" else None


def _along(op: Op) -> tuple[Op, Op, int] | None:
    """The take and the transpose before it, and the axis, where `op` is the transpose that ends a take along an axis."""
    if op.defn.name != "ptir.transpose" or not isinstance(x := op.operands[0], Value) or x.op is None:
        return None
    take = x.op
    if take.defn.name != "ptir.take" or helpers.rank(take.operands[1]) != 1 or not isinstance(y := take.operands[0], Value):
        return None
    if y.op is None or y.op.defn.name != "ptir.transpose" or composed(_perm(y.op), _perm(op)) != tuple(range(helpers.rank(y))):
        return None
    return take, y.op, _perm(y.op)[0]


@dataclass(slots=True, eq=False)
class Group:
    """Ops whose values have one rank and keep one order of axes."""

    first: bool
    ops: list[Op] = field(default_factory=list)

    @property
    def made(self) -> set[Value]:
        return {op.result for op in self.ops}

    @property
    def inner(self) -> set[Op]:
        """The ops, with those before the last one of a take along an axis."""
        return {inner for op in self.ops for inner in (op, *_parts(op))}

    def entering(self) -> Iterator[Value]:
        """The values that the ops read and do not make, each once; without constants and broadcasts."""
        made, seen = self.made, set[Value]()
        for op in self.ops:
            for x in _read(op):
                if isinstance(x, Value) and x not in made and x not in seen and not _is_spread(x):
                    seen.add(x)
                    yield x

    def before(self, x: Value) -> Perm | None:
        """The permutation that `x`, which enters, was made by."""
        if x.op is not None and (perm := _turn(x.op)) is not None:
            source = x.op.operands[0]
            inner = self.before(source) if isinstance(source, Value) else None
            return perm if inner is None else composed(inner, perm)
        n = helpers.rank(x)
        return (0, *range(2, n), 1) if self.first and x.op is not None and _convolves(x.op) else None

    def after(self, rw: Rewriter, x: Value, user: Op) -> Perm | None:
        """The permutation by which `user`, which is outside, reads `x`."""
        if (perm := _turn(user)) is not None:
            read = {self.after(rw, user.result, u) for u in rw.users_of(user.result)} if self.first else {None}
            inner = read.pop() if len(read) == 1 and not rw.is_result(user.result) else None
            return perm if inner is None else composed(perm, inner)
        reads = self.first and (_convolves(user) or user.defn.name == _PATCHES) and user.operands[0] is x
        return (0, (n := helpers.rank(x)) - 1, *range(1, n - 1)) if reads else None

    def best(self, rw: Rewriter) -> Perm | None:
        """The order of axes with the fewest moved bytes, of those the one where fewer enter, and of those the one with the fewest
        transposes; None for the present one. In ONNX, integers are next to the convolutions that read them: there fewer leave."""
        edges = list(self.edges(rw))
        integers = self.first and any(op.defn.short == "dequantize" for op in self.ops)
        entering = [edge for edge in edges if edge[0] is not integers]
        wanted = dict.fromkeys(perm for kind, _, perm in edges if perm is not None for perm in [inverse(perm) if kind else perm])
        identity = tuple(range(helpers.rank(self.ops[0])))

        def key(perm: Perm) -> tuple[int, int, int]:
            return self.cost(edges, perm), self.cost(entering, perm), self.transposes(edges, perm)

        least = min((identity, *wanted), key=key)
        return None if least == identity else least

    def edges(self, rw: Rewriter) -> Iterator[tuple[bool, Value, Perm | None]]:
        """What enters (True) and leaves, with the permutation there."""
        for x in self.entering():
            yield True, x, self.before(x)
        inner = self.inner
        for op in self.ops:
            there = [self.after(rw, op.result, u) for u in rw.users_of(op.result) if u not in inner and not _drops(u)]
            if rw.is_result(op.result):
                there.append(None)
            for perm in dict.fromkeys(there):
                yield False, op.result, perm

    @staticmethod
    def cost(edges: Iterable[tuple[bool, Value, Perm | None]], perm: Perm) -> int:
        """The bytes that transposes at `edges` move when the group is in the order `perm`."""
        total = 0
        for enters, x, there in edges:
            own = tuple(range(len(perm))) if there is None else there
            shape = helpers.shape(x)
            if enters:
                source = tuple(shape[own.index(a)] for a in range(len(own)))
                total += _moved_bytes(source, composed(own, perm), _size(x))
            else:
                inside = tuple(shape[a] for a in perm)
                total += _moved_bytes(inside, composed(inverse(perm), own), _size(x))
        return total

    @staticmethod
    def transposes(edges: Iterable[tuple[bool, Value, Perm | None]], perm: Perm) -> int:
        """The number of `edges` with a transpose when the group is in the order `perm`."""
        whole = tuple(range(len(perm)))
        return sum(perm != (whole if there is None else inverse(there) if enters else there) for enters, _, there in edges)

    def reorder(self, rw: Rewriter, perm: Perm) -> None:
        """Rebuild the ops in the order `perm`."""
        new: dict[Value, Value] = {}
        for op in self.ops:
            new[op.result] = _rebuilt(rw, op, perm, new)
        for op in self.ops:
            for user in rw.users_of(op.result):
                if _drops(user):
                    _reduce(rw, user, new[op.result], perm)
        inner = self.inner
        for op in reversed(self.ops):
            if rw.is_result(op.result) or any(u not in inner for u in rw.users_of(op.result)):
                back = rw.build(op, "transpose", new[op.result], perm=inverse(perm))
                rw.replace_all_uses(op.result, back)


def _drops(op: Op) -> bool:
    """Whether `op` is a reduction that drops its axes."""
    return op.defn.family == "reduce" and not op.attr("keepdims")


def _reduce(rw: Rewriter, op: Op, x: Value, perm: Perm) -> None:
    """Let the reduction `op` read `x`, which is its operand in the order `perm`."""
    given = dict(op.defn.named(op.attrs))
    axes = helpers.axes(given["axes"], len(perm))
    given["axes"] = tuple(sorted(perm.index(a) for a in axes))
    made = rw.insert_before(op, create(op.defn, [x], given))
    kept = [a for a in perm if a not in axes]
    back = tuple(kept.index(a) for a in sorted(kept))
    rw.replace_all_uses(op.result, made if kept == sorted(kept) else rw.build(op, "transpose", made, perm=back))


def _convolves(op: Op) -> bool:
    """Whether `op` is a convolution: a custom call, or a product with patches."""
    if op.defn.name == "ptir.dot_general":
        x = op.operands[0]
        return isinstance(x, Value) and x.op is not None and x.op.defn.name == _PATCHES
    return op.defn.name == "ptir.custom_call" and any(name in op.attr("target") for name in _CONVOLUTIONS)


def _is_spread(x: Operand) -> bool:
    """Whether `x` is a constant or a broadcast, or a transpose of one."""
    if not isinstance(x, Value):
        return True
    if x.op is not None and _turn(x.op) is not None:
        return _is_spread(x.op.operands[0])
    return x.op is not None and x.op.defn.name in _SPREADS


def _parts(op: Op) -> tuple[Op, ...]:
    along = _along(op)
    return along[:2] if along is not None else ()


def _read(op: Op) -> Sequence[Operand]:
    """The operands that have the axes of the result."""
    if (along := _along(op)) is not None:
        return along[1].operands[:1]
    return op.operands


def _member(op: Op) -> bool:
    """Whether `op` works in any order of axes."""
    if len(op.results) != 1 or not isinstance(t := op.result.type, TensorType) or t.rank < 3 or not t.is_static or not t.count:
        return False
    if any(not isinstance(operand_type(x), TensorType) for x in op.operands):
        return False
    if op.defn.name in MAPS or op.defn.short in ("concat", *_PER_AXIS, *_SCALES):
        same = all(helpers.rank(x) in (0, t.rank) for x in op.operands)
        return same and helpers.static(*op.operands)
    if op.defn.family == "reduce":
        return bool(op.attr("keepdims")) and helpers.static(op.operands[0])
    return _along(op) is not None and helpers.static(*_read(op))


def groups(body: Sequence[Op], first: bool) -> list[Group]:
    """The groups of `body`, in order."""
    found: dict[Value, Group] = {}
    for op in body:
        if not _member(op):
            continue
        rank = helpers.rank(op)
        joined = dict.fromkeys(found[x] for x in _read(op) if isinstance(x, Value) and x in found and helpers.rank(x) == rank)
        own, *others = joined or [Group(first)]
        for other in others:
            own.ops += other.ops
            found.update(dict.fromkeys(other.made, own))
        own.ops.append(op)
        found[op.result] = own
    place = {op: k for k, op in enumerate(body)}
    groups = list(dict.fromkeys(found.values()))
    for group in groups:
        group.ops.sort(key=place.__getitem__)
    return groups


def _operand(rw: Rewriter, at: Op, x: Operand, perm: Perm, new: dict[Value, Value]) -> Operand:
    """`x` in the order `perm`, before `at`."""
    if isinstance(x, Value) and x in new:
        return new[x]
    if helpers.rank(x) == 0 or perm == tuple(range(len(perm))):
        return x
    if isinstance(x, Value) and x.op is not None and x.op.defn.name == "ptir.broadcast_to":
        return _spread(rw, at, x.op, perm)
    if isinstance(x, Value) and x.op is not None and (before := _turn(x.op)) is not None and _along(x.op) is None:
        source, whole = x.op.operands[0], composed(before, perm)
        return source if whole == tuple(range(len(whole))) else rw.build(at, "transpose", source, perm=whole)
    return rw.build(at, "transpose", x, perm=perm)


def _spread(rw: Rewriter, at: Op, op: Op, perm: Perm) -> Value:
    """The broadcast `op` in the order `perm`: its operand is transposed."""
    x, shape = op.operands[0], helpers.shape(op)
    to = tuple(shape[a] for a in perm)
    if (n := helpers.rank(x)) > 0:
        if n < len(perm):
            x = rw.build(at, "reshape", x, new_shape=(*[1] * (len(perm) - n), *helpers.shape(x)))
        x = rw.build(at, "transpose", x, perm=perm)
    return rw.build(at, "broadcast_to", x, result_shape=to)


def _rebuilt(rw: Rewriter, op: Op, perm: Perm, new: dict[Value, Value]) -> Value:
    """`op` on operands in the order `perm`."""
    if (along := _along(op)) is not None:
        x = _operand(rw, op, along[1].operands[0], perm, new)
        axis = perm.index(along[2])
        there = (axis, *(a for a in range(len(perm)) if a != axis))
        moved = rw.build(op, "transpose", x, perm=there)
        take = along[0]
        taken = create(take.defn, take.defn.split(take.attrs, (moved, *take.operands[1:])), take.defn.named(take.attrs))
        return rw.build(op, "transpose", rw.insert_before(op, taken), perm=inverse(there))
    operands = [_operand(rw, op, x, perm, new) for x in op.operands]
    given = dict(op.defn.named(op.attrs))
    for name in _PER_AXIS.get(op.defn.short, ()):
        if given[name] is not None:
            given[name] = tuple(given[name][a] for a in perm)
    if op.defn.short == "concat" or (op.defn.short in _SCALES and given["axis"] is not None):
        given["axis"] = perm.index(given["axis"] % len(perm))
    if op.defn.family == "reduce":
        given["axes"] = tuple(sorted(perm.index(a % len(perm)) for a in given["axes"]))
    return rw.insert_before(op, create(op.defn, op.defn.split(op.attrs, operands), given))
