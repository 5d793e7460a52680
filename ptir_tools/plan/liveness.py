"""Liveness: which values have storage, which share it, and the live range of each storage.

Positions: parameters are born at 0, op i runs at i + 1, results are read at len(body) + 1. A live range is inclusive. Beyond
gpt.rs's planner: a view keeps its source alive, ranges of all that share storage are joined, and an operand that dies at an
elementwise op gives its storage to the result. A carried value of a loop has one storage: its result and the parameters of the
regions share it, and the initial value does, too, if it dies at the loop. A stacked result is stored in the axis order of its
only use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ptir_tools.core.ir import (
    Element,
    Extents,
    Function,
    Literal,
    Loop,
    Op,
    Operand,
    Region,
    Strides,
    Value,
    operand_type,
)
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.strides import dense_strides, is_dense
from ptir_tools.core.types import TensorType, TupleType, Type

Path = tuple[int, ...]
Leaf = tuple[Value, Path]


class Unit(tuple[Op, ...]):
    """Ops that run as one step. `again` are ops of other units that the step computes once more for itself, before its own."""

    again: tuple[Op, ...] = ()

    @property
    def is_single(self) -> bool:
        """Whether it is one op and nothing else."""
        return len(self) == 1 and not self.again

    @property
    def computed(self) -> tuple[Op, ...]:
        """All ops that the step computes, in order."""
        return (*self.again, *self)

    @property
    def reads(self) -> list[Operand]:
        """The operands that the step reads: those that it does not compute."""
        if self.is_single:
            return [*self[0].operands]
        made = {v for op in self.computed for v in op.results}
        operands = (x for op in self.computed for x in op.operands)
        return [x for x in operands if (x.value if isinstance(x, Element) else x) not in made]


@dataclass(slots=True, eq=False)
class Buffer:
    """The buffer of one leaf of a value. `root` owns the storage (itself when nothing is shared). `usage` of the storage:
    parameter and constant are outside, result is returned, temporary is in the arena, workspace is the memory of a running
    region. `alias`: how `root`'s storage is shared (identity, view or in-place).
    """

    name: str
    type: TensorType | None
    nbytes: int
    start: int
    end: int
    usage: str = "temporary"
    alias: str = ""
    parent: Buffer | None = None
    above: Buffer | None = None
    strides: Strides = ()
    offset: int | None = None
    parts: int = 1  # the number of shards on a mesh: `nbytes` is the size of one

    @property
    def root(self) -> Buffer:
        """The buffer that owns the storage. Chains are shortened on the way, as in any union-find."""
        b = self
        while (up := b.above) is not None:
            if up.above is not None:
                b.above = up.above
            b = up
        return b

    def share(self, parent: Buffer, alias: str) -> None:
        """Use the storage of `parent` instead of its own."""
        self.alias, self.parent, self.above = alias, parent, parent
        self.root.end = max(self.root.end, self.end)


@dataclass(slots=True, eq=False)
class Liveness:
    """The buffers of a block in order of definition, the leaves that they hold, and the workspaces of regions."""

    buffers: list[Buffer] = field(default_factory=list)
    places: dict[Leaf, Buffer] = field(default_factory=dict)
    workspaces: dict[Op, Buffer] = field(default_factory=dict)


def leaves(t: Type, path: Path = ()) -> list[tuple[Path, TensorType]]:
    """(path, type) of every tensor in a value of type `t`."""
    if isinstance(t, TensorType):
        return [(path, t)]
    return [leaf for i, e in enumerate(t.elements) for leaf in leaves(e, (*path, i))] if isinstance(t, TupleType) else []


def operand_leaves(x: Operand) -> list[Leaf]:
    """The leaves that an operand reads; a literal has none."""
    if isinstance(x, Value):
        return [(x, ())] if isinstance(x.type, TensorType) else [(x, path) for path, _ in leaves(x.type)]
    if isinstance(x, Element) and isinstance(x.value.type, TupleType):
        return [(x.value, path) for path, _ in leaves(x.value.type.elements[x.index], (x.index,))]
    return []


def carried_leaves(op: Op) -> int:
    """The number of leaves that a loop carries: its first results, and the first parameters of its regions. 0 for any other
    op."""
    loop = op.defn.control
    return sum(1 for x in op.operands[: loop.carries(op)] for _ in leaves(operand_type(x))) if isinstance(loop, Loop) else 0


def own_parameters(op: Op, r: Region) -> list[TensorType]:
    """The leaves of the parameters of a region of `op` that the op does not carry; they are in its workspace."""
    return [t for p in r.params for _, t in leaves(p.type)][carried_leaves(op) :]


def workspace(op: Op, peaks: Mapping[Region, int], align: int) -> int:
    """The bytes that the regions of `op` need, since one runs at a time: the parameters that it does not carry, then its
    arena."""
    own = {r: sum(-(-t.nbytes // align) * align for t in own_parameters(op, r)) for r in op.regions}
    return max((own[r] + peaks.get(r, 0) for r in op.regions), default=0)


def analyze(
    block: Region,
    steps: Sequence[Unit] | None = None,
    workspaces: Mapping[Op, int] | None = None,
    parts: Mapping[Leaf, int] | None = None,
) -> Liveness:
    """The buffers of `block`, whose types must be static.

    `steps` partitions the body into what runs as one (default: every op alone): a value used only inside its step takes no
    storage. `workspaces` gives the bytes that the regions of an op need while it runs. `parts` says into how many parts leaves
    are cut for several devices; the buffers are those of one device.
    """
    walk = _Walk(block, [Unit((op,)) for op in block.body] if steps is None else steps, parts or {})
    walk.parameters()
    for at, step in enumerate(walk.steps, 1):
        for op in step:
            walk.define(op, at, workspaces or {})
    walk.results()
    for at, step in enumerate(walk.steps, 1):
        for op in step:
            walk.reuse(step, op, at)
    return walk.result


class _Walk:
    def __init__(self, block: Region, steps: Sequence[Unit], parts: Mapping[Leaf, int]) -> None:
        self.block = block
        self.steps = steps
        self.parts = parts
        # A region's parameters are copies, which it may write over.
        self.writable = ("temporary",) if isinstance(block, Function) else ("temporary", "parameter")
        self.result = Liveness()
        self.last = _last_uses(block, steps)
        self.users = _users(block) if any(isinstance(op.defn.control, Loop) for op in block.body) else {}

    def add(self, v: Value, path: Path, t: TensorType, at: int, usage: str = "temporary") -> Buffer:
        name = ".".join([v.name, *map(str, path)])
        parts = self.parts.get((v, path), 1)
        end = max(at, self.last.get((v, path), at))
        b = Buffer(name, t, t.nbytes // parts, at, end, usage, strides=dense_strides(t.static_shape), parts=parts)
        self.result.buffers.append(b)
        self.result.places[v, path] = b
        return b

    def parameters(self) -> None:
        for p in self.block.params:
            for path, t in leaves(p.type):
                self.add(p, path, t, 0, "parameter")

    def define(self, op: Op, at: int, workspaces: Mapping[Op, int]) -> None:
        if need := workspaces.get(op, 0):
            self.result.workspaces[op] = inner = Buffer(f"workspace of %{op.result.name}", None, need, at, at, "workspace")
            self.result.buffers.append(inner)
        usage = "constant" if op.defn.is_constant else "temporary"
        for v in op.results:
            for path, t in leaves(v.type):
                if not self.steps[at - 1].is_single and self.last.get((v, path), at) <= at:
                    continue  # it is not used outside of its step
                b = self.add(v, path, t, at, usage)
                if not path:
                    self.share_view(op, b)
        if isinstance(op.defn.control, Loop):
            for leaf in [leaf for v in op.results for leaf in operand_leaves(v)][carried_leaves(op) :]:
                self.lay_out(leaf)

    def lay_out(self, leaf: Leaf) -> None:
        """Store a stack in the axis order of its only use, so that the use reads it row-major."""
        b, users = self.result.places[leaf], self.users.get(leaf, [])
        if len(users) != 1 or (op := users[0]) is None or op.defn.view is None or b.type is None:
            return
        out, shape = operand_type(op.result), b.type.static_shape
        assert isinstance(out, TensorType)
        axes = tuple(range(1, len(shape) + 1))  # strides that name them
        seen = op.defn.view.seen(op, shape, axes, out.static_shape)
        if seen is None or seen[0] or sorted(seen[1]) != list(axes) or out.count != b.type.count:
            return
        wanted = dense_strides(out.static_shape)
        turned = tuple(wanted[seen[1].index(axis)] for axis in axes)
        if op.defn.view.seen(op, shape, turned, out.static_shape) == (0, wanted):
            b.strides = turned

    def share_view(self, op: Op, b: Buffer) -> None:
        """Make `b` a view of the op's first operand, if the op has a view."""
        if op.defn.view is None or b.type is None:
            return
        if isinstance(x := op.operands[0], Literal):
            if view(op, x.type.static_shape, dense_strides(x.type.static_shape), b.type.static_shape):
                b.usage, b.nbytes = "constant", x.type.nbytes
            return
        if (source := self.place(x)) is None or source.type is None or source.parts != b.parts:
            return
        result = view(op, source.type.static_shape, source.strides, b.type.static_shape)
        if result is None:
            return
        alias, b.strides = result
        b.share(source, alias)

    def place(self, x: Operand) -> Buffer | None:
        """The buffer of an operand that is a single tensor and has storage."""
        if isinstance(x, Value):
            return self.result.places.get((x, ()))
        read = operand_leaves(x)
        return self.result.places.get(read[0]) if len(read) == 1 else None

    def results(self) -> None:
        """Return a value without a copy if its storage is not shared; others are copied at the end of the block."""
        for x in self.block.results:
            for leaf in operand_leaves(x):
                b = self.result.places[leaf]
                if b.root.usage == "temporary" and _same_bytes(b):
                    b.root.usage = "result"

    def reuse(self, step: Unit, op: Op, at: int) -> None:
        """Reuse the storage of an operand that dies at the step for the result, unless the step reads it in another order."""
        if isinstance(op.defn.control, Loop):
            return self.reuse_carried(op, at)
        out = self.result.places.get((op.result, ())) if op.results else None
        if out is None or out.parent is not None or out.usage == "constant":
            return
        ops = step.computed
        product = any(o.defn.kernel is not None and o.defn.kernel.role == "product" for o in ops)
        elementwise = (len(ops) > 1 and not product) or op.defn.is_elementwise
        over = op.defn.inplace.over if op.defn.inplace is not None else ()
        allowed = [x for o in ops for x in o.operands] if elementwise else [op.operands[i] for i in over]
        read = [b for o in ops for x in o.operands if (b := self.place(x)) is not None]
        # A product reads more elements than those at the written position, of its operands and of what those are made from.
        whole: set[Operand] = set()
        for o in reversed(ops):
            if product and len(ops) > 1 and (not o.defn.is_elementwise or whole.intersection(o.results)):
                whole.update(o.operands)
        kept = {id(b.root) for x in whole if (b := self.place(x)) is not None}
        for source in map(self.place, allowed):
            if source is None or not self.can_reuse(source, out, at) or id(source.root) in kept:
                continue
            others = [b for b in read if b is not source and b.root is source.root]
            if all(elementwise and _same_bytes(b) for b in others):
                self.write_over(source, out)
                return

    def reuse_carried(self, op: Op, at: int) -> None:
        """Reuse the storage of a carried value's initial value, if that dies there and has one use in the op."""
        first: list[Buffer | None] = []
        for x in op.operands:
            first += [None] if isinstance(x, Literal) else [self.result.places[leaf] for leaf in operand_leaves(x)]
        read = Counter(self.result.places[leaf].root for x in op.operands for leaf in operand_leaves(x))
        outs = [self.result.places[leaf] for v in op.results for leaf in operand_leaves(v)][: carried_leaves(op)]
        for source, out in zip(first, outs, strict=False):
            if source is not None and read[source.root] == 1 and self.can_reuse(source, out, at):
                self.write_over(source, out)

    def can_reuse(self, source: Buffer, out: Buffer, at: int) -> bool:
        """Whether the storage of `source` is not shared, dies at `at` and fits `out`."""
        same = source.type is out.type and source.parts == out.parts and _same_bytes(source)
        return same and source.root.usage in self.writable and source.start < at == source.root.end

    def write_over(self, source: Buffer, out: Buffer) -> None:
        """Give `out` the storage of `source`; if `out` is returned, that storage is."""
        if out.usage == "result" and source.root.usage == "temporary":
            source.root.usage = "result"
        out.share(source, "in-place")


def view(op: Op, shape: Extents, strides: Strides, out: Extents) -> tuple[str, Strides] | None:
    """(kind of alias, strides) if the result of `op`, of shape `out`, is a view of its first operand, which has `shape` and
    `strides`; else None."""
    declared = op.defn.view
    if declared is None or (result := declared.seen(op, shape, strides, out)) is None:
        return None
    seen = result[1]
    in_order = declared.in_order and (shape == out or is_dense(out, seen))
    return "identity" if in_order else "view", seen


def _same_bytes(b: Buffer) -> bool:
    """Whether `b` has all of its storage, element by element in order."""
    return b.type is not None and b.nbytes == b.root.nbytes and is_dense(b.type.static_shape, b.strides)


def _users(block: Region) -> dict[Leaf, list[Op | None]]:
    """The ops that read each leaf; None means that it is returned."""
    users: dict[Leaf, list[Op | None]] = {}
    for op, operands in [*((op, op.operands) for op in block.body), (None, block.results)]:
        for x in operands:
            for leaf in operand_leaves(x):
                users.setdefault(leaf, []).append(op)
    return users


def _last_uses(block: Region, steps: Sequence[Unit]) -> dict[Leaf, int]:
    last: dict[Leaf, int] = {}
    for at, step in enumerate(steps, 1):
        for x in step.reads:
            for leaf in operand_leaves(x):
                last[leaf] = at
    for x in block.results:
        for leaf in operand_leaves(x):
            last[leaf] = len(steps) + 1
    return last
