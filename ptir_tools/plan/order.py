"""Scheduling: orders of a block's ops with a low peak.

A model gives the live bytes at each op: views are free and keep their source alive, an elementwise op may overwrite an operand
that dies there. For small blocks the best order is searched over sets of completed ops. For others ops are picked greedily, the
one that frees most first. An order is used only where the liveness analysis confirms a lower peak. Work is counted in steps, so
the result is the same on every machine.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from functools import reduce
from operator import or_

from ptir_tools.core.ir import ELEMENTWISE, Element, Function, Literal, Op, Region, Value
from ptir_tools.core.records import dataclass
from ptir_tools.core.walks import post_order
from ptir_tools.plan.liveness import Buffer, Liveness, analyze
from ptir_tools.plan.placement import Interval, lower_bound

ORDERS = ("program", "min-peak")
_STATES = 20_000  # sets of ops in the search, at most
_LOOKS = 1_000_000  # ops that it tries in them, at most
_ORDERED = 20_000  # ops of a block that is ordered repeatedly while the peak falls


def least_peak(block: Region) -> list[Op] | None:
    """The ops of `block`, whose types must be static, in an order with a lower peak; None if none is found.

    Small blocks are ordered again from the found order, until nothing improves. Deterministic. Ops must have no effects; an op
    stays after the ops that it reads.
    """
    original, chosen = list(block.body), None
    for _ in range(max(1, _ORDERED // max(1, len(original)))):
        if (better := _better(block)) is None:
            break
        block.body[:] = chosen = better
    block.body[:] = original
    return chosen


def _better(block: Region) -> list[Op] | None:
    live = analyze(block)
    before = best = _peak(block, live)
    if not best:
        return None
    model = _Model(block, live)
    original = chosen = list(block.body)
    tried: list[list[int]] = [list(range(len(original)))]
    for order in (model.best(), model.greedy(_freed), model.greedy(_grown), model.depth_first()):
        if order is not None and order not in tried:
            tried.append(order)
            block.body[:] = [original[i] for i in order]
            if (result := _peak(block, analyze(block))) < best:
                best, chosen = result, list(block.body)
    block.body[:] = original
    return chosen if best < before else None


def _peak(block: Region, live: Liveness) -> int:
    """The peak of the arena of `block`, in bytes."""
    inner = not isinstance(block, Function)
    usages = ("temporary", "workspace", *(("result",) if inner else ()))
    own = [b for b in live.buffers if b.parent is None and b.usage in usages]
    return lower_bound([Interval(b.start, b.end + 1, b.nbytes) for b in own])


@dataclass(slots=True)
class _State:
    """The ops that have run, as a set of bits, and the live bytes after them."""

    done: int
    live: int


class _Model:
    """The storage that each op defines and reads, by number; sizes in bytes."""

    def __init__(self, block: Region, live: Liveness) -> None:
        self.ops = block.body
        n = len(self.ops)
        index = {op: i for i, op in enumerate(self.ops)}
        self.size: list[int] = []
        number: dict[Buffer, int] = {}
        for b in live.buffers:
            if b.parent is None or b.alias == "in-place":
                number[b] = len(self.size)
                self.size.append(b.nbytes if b.root.usage == "temporary" else 0)
        owner = {leaf: number[_storage(b)] for leaf, b in live.places.items()}
        of_value: dict[Value, list[int]] = {}
        for (v, _), unit in owner.items():
            of_value.setdefault(v, []).append(unit)
        self.inputs = [sum({1 << index[v.op] for v in op.values() if v.op in index}) for op in self.ops]
        self.reads = [sorted({u for v in op.values() for u in of_value.get(v, ())}) for op in self.ops]
        makes = [
            sorted({u for v in op.results for u in of_value.get(v, ())} - set(self.reads[i])) for i, op in enumerate(self.ops)
        ]
        self.makes = makes
        self.users = [0] * len(self.size)
        for i in range(n):
            for u in {*self.reads[i], *self.makes[i]}:
                self.users[u] |= 1 << i
        for x in block.results:
            for u in () if isinstance(x, Literal) else of_value.get(x.value if isinstance(x, Element) else x, ()):
                self.users[u] |= 1 << n  # never done
        self.over = [bool(op.defn.traits & ELEMENTWISE) for op in self.ops]
        self.space = [sum(b.nbytes for o, b in live.workspaces.items() if o is op) for op in self.ops]

    def run(self, state: _State, i: int) -> tuple[_State, int]:
        """(the state after op `i`, the bytes alive while it runs)."""
        done = state.done | 1 << i
        makes = sum(self.size[u] for u in self.makes[i])
        dying = [self.size[u] for u in {*self.reads[i], *self.makes[i]} if not self.users[u] & ~done]
        during = state.live + makes + self.space[i]
        if self.over[i] and makes in [self.size[u] for u in self.reads[i] if not self.users[u] & ~done]:
            during -= makes
        return _State(done, state.live + makes - sum(dying)), during

    def ready(self, done: int) -> Iterator[int]:
        """The ready ops, in program order."""
        return (i for i, needs in enumerate(self.inputs) if not done >> i & 1 and not needs & ~done)

    def best(self) -> list[int] | None:
        """The order with the lowest peak in the model; None if there are too many sets of ops."""
        everything = (1 << len(self.ops)) - 1
        came: dict[int, tuple[int, int]] = {}
        queue = [(0, 0, 0, 0, -1, 0)]  # peak, ops left, set, live, the op that came last, the set before
        while queue and len(came) < min(_STATES, _LOOKS // max(len(self.ops), 1)):
            peak, left, done, live, last, before = heapq.heappop(queue)
            if done in came:
                continue
            came[done] = before, last
            if done == everything:
                return _path(came, done)
            for i, after, during in self.moves(_State(done, live), peak):
                if after.done not in came:
                    heapq.heappush(queue, (max(peak, during), left - 1, after.done, after.live, i, done))
        return None

    def moves(self, state: _State, peak: int) -> list[tuple[int, _State, int]]:
        """(op, state after it, bytes while it runs) of the ready ops. If an op does not raise the live bytes and stays below
        `peak`, it is the only one: to run it first is never worse."""
        possible = []
        for i in self.ready(state.done):
            after, during = self.run(state, i)
            if during <= peak and after.live <= state.live:
                return [(i, after, during)]
            possible.append((i, after, during))
        return possible

    def greedy(self, key: Callable[[int, int], tuple[int, ...]]) -> list[int]:
        """A greedy order by the smallest key: the growth of live bytes while an op runs, and after it. The key changes only
        when an op becomes the last use of a buffer."""
        waiting = [bin(needs).count("1") for needs in self.inputs]
        uses = [bin(ops).count("1") for ops in self.users]  # of each buffer, by ops that have not run
        followers: list[list[int]] = [[] for _ in self.ops]
        readers: list[list[int]] = [[] for _ in self.size]
        for i, needs in enumerate(self.inputs):
            for j in _bits(needs):
                followers[j].append(i)
            for u in self.reads[i]:
                readers[u].append(i)
        order: list[int] = []
        keys = {i: key(*self.needs(i, uses)) for i, count in enumerate(waiting) if not count}  # ready ops
        queue = [(entry, i) for i, entry in keys.items()]
        heapq.heapify(queue)
        while queue:
            entry, i = heapq.heappop(queue)
            if keys.get(i) != entry:
                continue  # it has run already, or its key is outdated
            del keys[i]
            order.append(i)
            again = []
            for u in {*self.reads[i], *self.makes[i]}:
                uses[u] -= 1
                again += [j for j in readers[u] if j in keys] if uses[u] == 1 else []
            for j in followers[i]:
                waiting[j] -= 1
                again += [] if waiting[j] else [j]
            for j in again:
                keys[j] = key(*self.needs(j, uses))
                heapq.heappush(queue, (keys[j], j))
        return order

    def needs(self, i: int, uses: list[int]) -> tuple[int, int]:
        """The growth of live bytes while op `i` runs, and after it; each buffer has `uses` remaining uses."""
        makes = sum(self.size[u] for u in self.makes[i])
        dying = [self.size[u] for u in self.reads[i] if uses[u] == 1]
        over = makes if self.over[i] and makes in dying else 0
        return makes + self.space[i] - over, makes - sum(dying) - sum(self.size[u] for u in self.makes[i] if uses[u] == 1)

    def depth_first(self) -> list[int]:
        """A depth-first order: each op as late as possible, operands of the results first, the biggest first."""
        weight = [sum(self.size[u] for u in units) for units in self.makes]
        followed = reduce(or_, self.inputs, 0)
        last = [i for i in range(len(self.ops)) if not followed >> i & 1]
        return post_order(last, lambda i: sorted(_bits(self.inputs[i]), key=weight.__getitem__)[::-1])


def _freed(during: int, after: int) -> tuple[int, ...]:
    return (after,)


def _grown(during: int, after: int) -> tuple[int, ...]:
    return during, after


def _storage(b: Buffer) -> Buffer:
    """The storage that `b` is a view of."""
    while b.parent is not None and b.alias != "in-place":
        b = b.parent
    return b


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _path(came: dict[int, tuple[int, int]], done: int) -> list[int]:
    order = []
    while done:
        done, last = came[done]
        order.append(last)
    return order[::-1]
