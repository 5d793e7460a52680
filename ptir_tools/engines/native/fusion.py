"""The ops of a tile program: elementwise chains on floats over one shape, with reductions of its rows.

A fusion group is a run of ops over one domain [rows, columns]; columns are the last axis. Its values are FULL (one element per
element of the domain) or ROWS (one per row: results of reductions, and ops on them). Constants, and views of values from outside,
are computed before the group.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from math import prod

from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import BF16, F16, F32, I1, SI8, SI32, UI8
from ptir_tools.core.ir import Literal, Op, Operand, Region, Value, operand_type
from ptir_tools.core.lazy import late
from ptir_tools.core.types import TensorType, Type
from ptir_tools.engines.numpy.steps import Fused, Look, Recognized, Step, Workshop, fused
from ptir_tools.engines.thresholds import at
from ptir_tools.plan.liveness import Unit

_assembled = late("ptir_tools.engines.native.tiles", "assemble")

FLOATS = (F32, F16, BF16)  # dtypes of registers; all are computed in f32, and rounded once per op
HELD = (*FLOATS, I1)
BYTES = (SI8, UI8)
MAX_OPS = 128
MAX_ARRAYS = 16

FULL, ROWS = "full", "rows"
Shape = tuple[int, ...]


class _Shapes(dict[Type, "Shape | None"]):
    """The shape of a tensor type that a register can have; None for other types. Computed when it is first used."""

    def __missing__(self, t: Type) -> Shape | None:
        found = self[t] = t.static_shape if isinstance(t, TensorType) and t.dtype in HELD else None
        return found


_SHAPES = _Shapes()


class Group:
    """A fusion group under construction, over the domain that `domain` has. `kinds` has FULL or ROWS for each of its values."""

    def __init__(self, domain: Operand) -> None:
        self.domain = domain
        self.ops: list[Op] = []
        self.kinds: dict[Value, str] = {}
        self.inputs: dict[Value, None] = {}
        self.reduces = False

    @property
    def shape(self) -> Shape:
        """The domain: [rows, columns]."""
        return shape_of(operand_type(self.domain))

    @property
    def row_shapes(self) -> tuple[Shape, Shape]:
        """The shapes of a value with one element per row."""
        return self.shape[:-1], (*self.shape[:-1], 1)

    def kind(self, op: Op) -> str | None:
        """FULL or ROWS for the result of `op` in this fusion group; None if it is not part of it."""
        kernel, t = op.defn.kernel, op.results[0].type
        if kernel is None or ((shape := _SHAPES[t]) is None and (shape := _converted(op)) is None):
            return None
        held = True
        for x in op.operands:  # an element of a tuple or an inline literal gets no register
            if x.__class__ is not Value:
                return None
            held = held and (_SHAPES[x.type] is not None or _converted(op) is not None)
        if kernel.role == "map" and held and (kernel.name or _dtype(op.results[0]) is not I1):
            if shape == self.shape:
                return FULL
            rows_only = shape in self.row_shapes and any(self.kinds.get(x) == ROWS for x in op.values())
            return ROWS if rows_only and self.agrees(op) else None
        if kernel.role == "reduce":
            return ROWS if self.shape and self.is_row_reduction(op) else None
        if kernel.role in ("reshape", "repeat") and any(x in self.kinds for x in op.values()):
            return self.respelled(op, shape)
        return None

    def agrees(self, op: Op) -> bool:
        """Whether the operands of `op` from this fusion group also have one element per row."""
        return all(self.kinds.get(x, ROWS) == ROWS for x in op.values())

    def is_row_reduction(self, op: Op) -> bool:
        """Whether `op` reduces the last axis of a full value, in f32. Many short rows are reduced faster by columns."""
        x = op.operands[0]
        last = tuple(a % len(self.shape) for a in op.attr("axes")) == (len(self.shape) - 1,)
        plain = op.attr("accum_dtype") in (None, F32) and op.attr("out_dtype") in (None, *FLOATS)
        full = isinstance(x, Value) and self.kinds.get(x, FULL) == FULL and shape_of(x.type) == self.shape
        is_short = self.shape[-1] <= at.short_row and prod(self.shape[:-1]) >= at.short_rows
        return last and plain and full and _dtype(x) in FLOATS and self.shape[-1] <= at.row and not is_short

    def respelled(self, op: Op, shape: Shape) -> str | None:
        """Whether the result is the same register: a value per row with or without its axis of extent 1, or repeated along its
        row."""
        x = op.operands[0]
        if not isinstance(x, Value) or self.kinds.get(x) != ROWS:
            return None
        if role(op) == "reshape":
            return ROWS if shape in self.row_shapes else None
        return FULL if shape == self.shape and shape_of(x.type) == self.row_shapes[1] else None

    def steps(self, look: Look, outs: Mapping[Value, Array], shop: Workshop) -> list[Step]:
        """The steps of a tile program."""
        made: list[Step] = _assembled(self, look, outs, shop)
        return made

    def accepts(self, op: Op) -> bool:
        """Add `op` if it is part of this fusion group. Whether it is."""
        if len(self.ops) >= MAX_OPS or (kind := self.kind(op)) is None:
            return False
        kinds, inputs = self.kinds, self.inputs
        if more := [x for x in op.values() if x not in kinds and x not in inputs]:
            if len(inputs) + len(set(more)) > MAX_ARRAYS:
                return False
            inputs.update(dict.fromkeys(more))
        self.ops.append(op)
        kinds[op.results[0]] = kind
        self.reduces = self.reduces or role(op) == "reduce"
        return True


def role(op: Op) -> str:
    """The role of `op` in a tile program; empty if it has none."""
    return op.defn.kernel.role if op.defn.kernel is not None else ""


def instruction(op: Op) -> str:
    """The instruction of `op` in a tile program; empty if it has none."""
    return op.defn.kernel.name if op.defn.kernel is not None else ""


def form(op: Op) -> str:
    """The form of the step of the NumPy engine; empty if there is none."""
    return op.defn.inplace.form if op.defn.inplace is not None else ""


def shape_of(t: Type) -> Shape:
    """The static shape of a tensor type; nothing for others."""
    return t.static_shape if isinstance(t, TensorType) else ()


def _converted(op: Op) -> Shape | None:
    """The shape of a cast from bytes to floats or back, or from si32 to f32; None for another op."""
    if role(op) != "map" or len(op.operands) != 1:
        return None
    made, given = _dtype(op.result), _dtype(op.operands[0])
    fits = made in FLOATS if given in BYTES else given in FLOATS if made in BYTES else (given, made) == (SI32, F32)
    return shape_of(op.result.type) if fits else None


def _dtype(x: Operand) -> object:
    t = operand_type(x)
    return t.dtype if isinstance(t, TensorType) else None


def started(op: Op) -> Group | None:
    """A new fusion group that begins with `op`, or None."""
    if role(op) not in ("map", "reduce") or not op.results:
        return None
    domain = op.operands[0] if role(op) == "reduce" else op.result
    shape = shape_of(operand_type(domain))
    if prod(shape) == 0 or (role(op) == "reduce" and not shape):
        return None
    group = Group(domain)
    return group if group.accepts(op) else None


def grouped(ops: Sequence[Op]) -> Group | None:
    """The fusion group of exactly `ops`; None if they do not form one."""
    group = started(ops[0])
    return group if group is not None and all(map(group.accepts, ops[1:])) else None


def found_in(unit: Unit) -> Recognized | None:
    """What the ops of a unit were recognized as."""
    return unit.found if isinstance(unit, Fused) else None


class Uses:
    """The uses of the values of a block, counted once."""

    def __init__(self, block: Region) -> None:
        self.users: dict[Value, list[Op | None]] = {}  # once for each operand; None returns the value
        for op in block.body:
            for v in op.values():
                self.users.setdefault(v, []).append(op)
        for x in block.results:
            if not isinstance(x, Literal):
                self.users.setdefault(x if isinstance(x, Value) else x.value, []).append(None)

    def only(self, v: Value) -> Op | None:
        """The op that has the only use of `v`."""
        users = self.users.get(v, ())
        return users[0] if len(users) == 1 else None

    def are_by(self, ops: Container[Op | None], v: Value) -> bool:
        """Whether all uses of `v` are by `ops`."""
        return all(op in ops for op in self.users.get(v, ()))


def partition(block: Region, given: Sequence[Unit] = ()) -> list[Unit]:
    """The ops of `block` in units: those `given`, fusion groups of the others, and every other op alone."""
    steps: list[Unit] = []
    ends = {unit[-1]: unit for unit in given}
    taken = {op for unit in given for op in unit}
    group: Group | None = None
    fixed: set[Value] = set()  # fixed values may be operands of a group without being computed in it, such as a causal mask
    for op in block.body:
        if op in taken:
            if (unit := ends.get(op)) is not None:
                steps += [*([] if group is None else [fused(group, group.ops)]), unit]
                group = None
            continue
        if _is_fixed(op, fixed):
            fixed.update(op.results)
            steps.append(Unit((op,)))
            continue
        if group is not None and group.accepts(op):
            continue
        if group is not None and _is_apart(op, group):
            steps.append(Unit((op,)))
            continue
        if group is not None:
            steps.append(fused(group, group.ops))
        group = started(op)
        if group is None:
            steps.append(Unit((op,)))
    return steps if group is None else [*steps, fused(group, group.ops)]


def _is_fixed(op: Op, fixed: set[Value]) -> bool:
    """Whether `op` has the same result in every run: computed from constants and counters."""
    return (
        op.defn.is_pure
        and not (op.regions or op.defn.is_random)
        and all(isinstance(x, Literal) or x in fixed for x in op.operands)
    )


def _is_apart(op: Op, group: Group) -> bool:
    """Whether `op` is computed before the group: a constant, or a view of an outside value."""
    free = op.defn.is_constant or op.defn.view is not None
    return free and not any(x in group.kinds for x in op.values())
