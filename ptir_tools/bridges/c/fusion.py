"""Which values are in memory, and which are computed where they are read."""

from __future__ import annotations

from collections import defaultdict
from math import prod

from ptir_tools.bridges.c.scalars import ELEMENTS
from ptir_tools.core.ir import Literal, Op, Region, Value
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
