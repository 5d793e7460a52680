"""Which values are in memory, which are computed where they are read, and which are computed row by row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from math import prod

from ptir_tools.bridges.c.scalars import ELEMENTS
from ptir_tools.core.ir import Element, Literal, Op, Operand, Region, Value
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.types import Shape
from ptir_tools.rewrite.vocabulary import tensor_type

# Ops whose elements are elements of operands at other places: they are never in memory for themselves.
MOVES = frozenset(("broadcast_to", "transpose", "reshape", "slice", "pad", "concat", "tile", "iota", "constant"))
# These compute an address, and are read at one place.
LOOKUPS = frozenset(("take", "gather", "dynamic_slice", "dynamic_update_slice", "extract_patches", "bitcast"))
MAPS = frozenset((*ELEMENTS, "cast", "reduce_precision"))
# These read an operand several times.
REPEATING = frozenset((
    "bitcast", "dot_general", "reduce_window", "take", "gather", "extract_patches", "sort", "top_k", "scatter", "scatter_add",
    "segment_reduce",
))  # fmt: skip
LARGEST = 48  # ops that one loop computes per element
SHORTEST = 16  # elements of a row
REDUCTIONS = frozenset(f"reduce_{kind}" for kind in ("sum", "max", "min", "prod", "and", "or", "xor"))


def stored(function: Region) -> set[Value]:
    """The values of the body that get memory: results, all but elementwise ops and moves, and what would be computed twice."""
    users: dict[Value, list[Op]] = defaultdict(list)
    for op in function.body:
        for v in dict.fromkeys(x for x in op.operands if isinstance(x, Value)):
            users[v].append(op)
    kept = {x for x in function.results if isinstance(x, Value) and x.op is not None}
    contexts: dict[Value, set[object]] = {}  # of a value that is not in memory: the indices at which it is read
    sizes: dict[Value, int] = {}
    for op in reversed(function.body):
        v = op.result
        short = op.defn.short
        if v in kept or short not in MAPS | MOVES | LOOKUPS:
            kept.add(v)
            continue
        found: set[object] = set()
        for user in users[v]:
            found |= _context(user, contexts, kept)
        size = 1 + max((sizes.get(u.result, 0) for u in users[v]), default=0)
        again = any(_repeats(user, v, contexts, kept) for user in users[v])
        if short not in MOVES and (len(found) > 1 or again or size > LARGEST):
            kept.add(v)
            continue
        contexts[v], sizes[v] = found, size
    return kept


def _context(user: Op, contexts: dict[Value, set[object]], kept: set[Value]) -> set[object]:
    """Where the operands of `user` are read: in its own loop, at an index of its own, or where it is read itself."""
    v = user.result
    if v in kept:
        return {v}
    return {v} if user.defn.short not in MAPS and len(contexts[v]) <= 1 else contexts[v]


def _repeats(user: Op, v: Value, contexts: dict[Value, set[object]], kept: set[Value]) -> bool:
    """Whether elements of `v` are read more than once by `user`."""
    short = user.defn.short
    if short in MAPS:
        return False
    if user.regions or short in REPEATING or sum(x is v for x in user.operands) > 1:
        return True
    return short in MOVES and not _as_many(tensor_type(v).shape, tensor_type(user.result).shape)


@dataclass(slots=True)
class Rows:
    """Steps that share the loops over their first axes. Of the values `own`, which only these steps read, a row is enough."""

    ops: list[Op]
    shape: Shape  # of the loops that they share
    own: set[Value] = field(default_factory=set)

    def local(self, op: Op) -> bool:
        """Whether the result is a number in each turn of the loops that only these steps read."""
        x = tensor_type(op.operands[0])
        return op.result in self.own and op.defn.short in REDUCTIONS and x.rank - len(op.attr("axes")) == len(self.shape)


def in_rows(function: Region, kept: set[Value]) -> Iterator[Rows | Op]:
    """The ops of the body whose results are in memory or that have regions, in order, and as `Rows` where neighbors share loops
    and data."""
    reads = {op: _reads(op, kept) for op in function.body if op.regions or op.result in kept}
    results = {x.value if isinstance(x, Element) else x for x in function.results}
    groups: list[Rows] = []
    for op in reads:
        shape = _leading(op)
        if groups and shape:
            last = groups[-1]
            common = _common(shape, last.shape)
            members = {o.result for o in last.ops}
            data = members.union(*(reads[o] for o in last.ops))
            if (
                _worth(op, common)
                and data & reads[op].keys()
                and all(reads[op].get(m, len(common)) >= len(common) for m in members)
            ):
                last.ops.append(op)
                last.shape = common
                continue
        groups.append(Rows([op], shape))
    readers: dict[Value, set[Op]] = defaultdict(set)
    for op, values in reads.items():
        for v in values:
            readers[v].add(op)
    for group in groups:
        group.own = {o.result for o in group.ops if o.result not in results and readers[o.result] <= {*group.ops}}
        yield group if len(group.ops) > 1 else group.ops[0]


def _leading(op: Op) -> Shape:
    """The extents of the outer loops of a step that could be those of others."""
    short = op.defn.short
    if short in MAPS:
        return tensor_type(op.result).shape[:-1]
    if short in REDUCTIONS:
        rank = tensor_type(op.operands[0]).rank
        axes = sorted(a % max(rank, 1) for a in op.attr("axes"))
        if axes == list(range(rank - len(axes), rank)):
            return tensor_type(op.operands[0]).shape[: rank - len(axes)]
    return ()


def _common(a: Shape, b: Shape) -> Shape:
    """The extents with which both shapes begin."""
    n = next((i for i, (d, e) in enumerate(zip(a, b, strict=False)) if d != e), min(len(a), len(b)))
    return a[:n]


def _worth(op: Op, shape: Shape) -> bool:
    """Whether there are several rows, and rows of several elements."""
    x = op.operands[0] if op.defn.short in REDUCTIONS else op.result
    row = tensor_type(x).shape[len(shape) :]
    return any(d != 1 for d in shape) and (not static(row) or count(row) >= SHORTEST)


def _reads(op: Op, kept: set[Value]) -> Mapping[Value, int]:
    """The values in memory that a step reads, each with the number of first axes whose index is that of the step's own loops."""
    found: dict[Value, int] = {}
    seen: set[tuple[Value, int]] = set()

    def visit(x: Operand, aligned: int) -> None:
        v = x.value if isinstance(x, Element) else x
        if isinstance(v, Literal):
            return
        if v.op is None or v.op.regions or v in kept:
            found[v] = min(aligned, found.get(v, aligned))
            return
        if (v, aligned) in seen:
            return
        seen.add((v, aligned))
        own = tensor_type(v).shape
        for y in v.op.operands:
            if v.op.defn.short in MAPS:
                visit(y, aligned)
            elif v.op.defn.short in ("broadcast_to", "reshape"):
                shape = tensor_type(y).shape
                same = v.op.defn.short == "reshape" or len(shape) == len(own)
                visit(y, min(aligned, len(_common(own, shape))) if same else 0)
            else:
                visit(y, 0)

    for x in op.operands:
        visit(x, len(_leading(op)))
    return found


def _as_many(a: Shape, b: Shape) -> bool:
    return count(a) >= count(b) if static(a) and static(b) else sorted(map(str, a)) == sorted(map(str, b))


def static(shape: Shape) -> bool:
    """Whether all extents are numbers."""
    return all(isinstance(d, int) for d in shape)


def count(shape: Shape) -> int:
    """The number of elements of a static shape."""
    return prod(d for d in shape if isinstance(d, int))


def is_splat(x: Literal) -> bool:
    """Whether all elements of a literal are the same number."""
    return x.splat or count(x.type.shape) <= 1
