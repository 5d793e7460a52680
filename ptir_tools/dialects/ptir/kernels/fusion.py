"""Fusion groups as gpt.rs defines them: graphs of elementwise ops, and contractions with a bias.

A group grows from its last op upward. An op joins when all its users are in the group, so that the group has one result. A
broadcast between ops of the group joins, too, and its source is an input of the group.

In gpt.rs, an op joins only if it has exactly one use, and a group is started at every op. Here the groups are maximal and
disjoint.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet

from ptir_tools.core.dtypes import F32
from ptir_tools.core.ir import Element, Literal, Op, Operand, Value, operand_type
from ptir_tools.core.records import dataclass
from ptir_tools.core.types import TensorType
from ptir_tools.dialects.ptir.kernels.targets import NODES
from ptir_tools.dialects.ptir.ops.kinds import DIMENSION_NUMBERS, Attrs, AttrValue
from ptir_tools.rewrite.rewriter import Rewriter

CODES = {f"ptir.{name}": (kind, code) for kind, names in NODES.items() for code, name in enumerate(names)}
BROADCAST = "ptir.broadcast_to"
May = Callable[[Op], bool]


@dataclass(slots=True, frozen=True)
class Group:
    """A fusion group: `ops` in program order, the last of which makes the result; `inputs` are the operands from outside.
    `payload` describes the computation as attributes of a hint or a custom call."""

    kind: str
    ops: tuple[Op, ...]
    inputs: tuple[Operand, ...]
    payload: Attrs

    @property
    def root(self) -> Op:
        """The op that makes the result."""
        return self.ops[-1]


def attrs(**values: tuple[str, AttrValue]) -> Attrs:
    """Attributes of a custom call or hint, sorted."""
    return tuple(sorted(values.items()))


def fusion_kind(kind: str) -> Attrs:
    """The attributes that give the kind of payload of a hint or a Triton kernel."""
    return attrs(fusion_version=("I64", 1), fusion_kind=("String", kind))


def elementwise_groups(rw: Rewriter, may: May, through: May) -> Iterator[Group]:
    """The elementwise groups of two ops or more among the ops for which `may` holds, disjoint, the last first. Broadcasts for
    which `through` holds are traced to their source."""
    taken: set[Op] = set()
    for op in reversed(rw.body()):
        if op not in taken and is_node(op) and may(op):
            members = _grow_group(rw, op, may, through)
            taken |= members
            if sum(map(is_node, members)) > 1:
                yield _dag(op, sorted(members, key=rw.order.place), members)


def is_node(op: Op) -> bool:
    """Whether `op` is an elementwise op of gpt.rs on f32 tensors of static shape."""
    return op.defn.name in CODES and _is_f32(op.result)


def _is_f32(x: Operand) -> bool:
    t = operand_type(x)
    return isinstance(t, TensorType) and t.dtype is F32 and t.is_static


def used_only_by(rw: Rewriter, op: Op, members: AbstractSet[Op]) -> bool:
    """Whether all users of `op` are in `members`. A value with many uses is not tested for every group."""
    if rw.uses(op.result) > 2 * len(members):
        return False
    return not rw.is_result(op.result) and all(u in members for u in rw.users_of(op.result))


def _grow_group(rw: Rewriter, root: Op, may: May, through: May) -> set[Op]:
    """The group of `root`. Ops are decided from the last to the first, so that all users of an op are decided before it."""
    members: set[Op] = set()
    queue = [(0, 0, root)]
    queued = {root}
    while queue:
        op = heapq.heappop(queue)[2]
        if op is not root and not used_only_by(rw, op, members):
            continue
        members.add(op)
        for x in op.operands if op.defn.name != BROADCAST else ():
            below = x.op if isinstance(x, Value) else None
            if below is None or below in queued:
                continue
            same = below.defn.name in CODES and below.result.type is root.result.type and may(below)
            if same or (below.defn.name == BROADCAST and _is_f32(below.operands[0]) and through(below)):
                queued.add(below)
                heapq.heappush(queue, (-rw.order.place(below), len(queued), below))
    return members


def _dag(root: Op, ops: Sequence[Op], members: AbstractSet[Op]) -> Group:
    """The payload: nodes in order. An operand below the number of inputs is an input, the others are nodes; -1 is none."""
    nodes = [op for op in ops if is_node(op)]
    number: dict[object, int] = {op.result: i for i, op in enumerate(nodes)}
    reads = [[_source(x, members) for x in op.operands] for op in nodes]
    inputs = {key: x for xs in reads for x in xs if (key := _key(x)) not in number}
    at = {key: i for i, key in enumerate(inputs)} | {v: len(inputs) + i for v, i in number.items()}
    pairs = [[at[_key(x)] for x in xs] + [-1] * (2 - len(xs)) for xs in reads]
    codes = [CODES[op.defn.name] for op in nodes]
    payload = attrs(
        ops_kind=("I64Array", tuple(kind for kind, _ in codes)),
        ops_code=("I64Array", tuple(code for _, code in codes)),
        lhs=("I64Array", tuple(lhs for lhs, _ in pairs)),
        rhs=("I64Array", tuple(rhs for _, rhs in pairs)),
    )
    return Group("ElementwiseDag", tuple(ops), tuple(inputs.values()), payload)


def _source(x: Operand, members: AbstractSet[Op]) -> Operand:
    """The operand of a member: `x`, or the source of the broadcast `x` when that is a member."""
    while isinstance(x, Value) and x.op in members and x.op is not None and x.op.defn.name == BROADCAST:
        x = x.op.operands[0]
    return x


def _key(x: Operand) -> object:
    """A key that is equal for operands that are certainly the same."""
    return (x.value, x.index) if isinstance(x, Element) else x.key if isinstance(x, Literal) else x


def dot_groups(rw: Rewriter, may: May) -> Iterator[Group]:
    """Each f32 contraction whose only user is an addition, with that addition, and the broadcast of the bias if it has no
    other use."""
    for dot in rw.body():
        users = rw.users_of(dot.result) if dot.defn.name == "ptir.dot_general" and _is_f32(dot.result) else []
        if len(users) != 1 or rw.uses(dot.result) != 1 or users[0].defn.name != "ptir.add":
            continue
        add = users[0]
        bias = next(x for x in add.operands if x is not dot.result)
        ops = {dot, add}
        spread = bias.op if isinstance(bias, Value) else None
        if spread is not None and spread.defn.name == BROADCAST and may(spread) and used_only_by(rw, spread, ops):
            ops.add(spread)
            bias = spread.operands[0]
        values = (*dot.operands, bias)
        if may(dot) and may(add) and all(map(_is_f32, values)):
            yield Group("DotEpilogue", tuple(sorted(ops, key=rw.order.place)), values, _dot_payload(dot))


def _dot_payload(dot: Op) -> Attrs:
    numbers: dict[str, tuple[str, AttrValue]] = {f"dot_{name}": ("I64Array", dot.attr(name)) for name in DIMENSION_NUMBERS}
    return attrs(**numbers, dot_add_input=("I64", 2))
