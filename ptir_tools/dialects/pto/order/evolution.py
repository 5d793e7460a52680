"""Scalar evolution: how index values change over the iterations of a loop, and the dependence distance of accesses.

In iteration k a value is `slope * k`, plus a part with period `period`, plus an invariant part. The invariant part may instead
range over an interval in every iteration, as the counter of an inner loop does. Any other value has no evolution.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from math import ceil, floor, gcd, lcm

from ptir_tools.core.dtypes import I1
from ptir_tools.core.ir import Op, Operand, Region, Value, operand_type
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.types import Shape
from ptir_tools.dialects.pto.affine import DEPTH, Linear, atom, linear, natural, number, parts
from ptir_tools.dialects.pto.memory.windows import Access, access_of, on_chip
from ptir_tools.dialects.pto.ops.memory import touches_memory
from ptir_tools.dialects.pto.pipes import PIPES, pipe_of
from ptir_tools.dialects.pto.rules import group, need_tile, valid_shape
from ptir_tools.dialects.pto.structure import is_assign, is_for, is_while
from ptir_tools.dialects.pto.types import EventType, MemRefType, TileType, is_integer, scalar_dtype

FIXED = -1  # no dependence on the iteration, except through slots


class Evolution(NamedTuple):
    """The evolution of a value. The part that is not `slope * k` is from `low` to `high`.

    `symbolic`: an unknown multiple of `unit` is added. `inexact`: the range is not known. The slope is then the least that it
    may be.
    """

    slope: Fraction = Fraction(0)
    period: int = 1
    low: int = 0
    high: int = 0
    symbolic: bool = False
    inexact: bool = False
    unit: int = 0


def _scaled(e: Evolution, k: int) -> Evolution:
    low, high = sorted((e.low * k, e.high * k))
    return e._replace(slope=e.slope * k, low=low, high=high, unit=e.unit * abs(k))


def _sum(a: Evolution, b: Evolution) -> Evolution:
    period = lcm(a.period, b.period)
    symbolic, inexact, unit = a.symbolic or b.symbolic, a.inexact or b.inexact, gcd(a.unit, b.unit)
    return Evolution(a.slope + b.slope, period, a.low + b.low, a.high + b.high, symbolic, inexact, unit)


def _either(a: Evolution | None, b: Evolution | None, period: int | None = 1) -> Evolution | None:
    """One of two values, which may differ in each iteration of a period."""
    if a is None or b is None or period is None or a.slope != b.slope:
        return None
    apart = a.symbolic or b.symbolic  # by an unknown difference
    ends = min(a.low, b.low), max(a.high, b.high)
    return Evolution(a.slope, lcm(a.period, b.period, period), *ends, apart, a.inexact or b.inexact or (apart and a != b))


def _is_new(x: Operand, op: Op) -> bool:
    """Whether the result `x` of an op depends on no tile or event from before the op."""
    operands = [*map(operand_type, op.operands)]
    return not op.regions and (operand_type(x).__class__ is EventType or not any(isinstance(t, TileType) for t in operands))


class Evolutions:
    """The evolutions of values in the loop `op`. `known` are the expressions of values from outside of it. An iteration of
    `scf.while` is its first block, then its second; the parameters of the second are aliases of results of the first."""

    def __init__(self, op: Op, known: Mapping[Value, Linear]) -> None:
        self.op = op
        self.known = known
        self.ops = [x for r in op.regions for x in r.ops()]
        self.inner = set(self.ops)
        self.params = {p: inner for inner in self.ops for r in inner.regions for p in r.params}
        first, last = op.regions[0], op.regions[-1]
        self.aliases: dict[Value, Operand] = {}
        self.counter: Value | None = None
        self.width: int | None = None
        self.unit = 0
        inits = op.operands
        if first is last:
            self.counter, inits = first.params[0], op.operands[3:]
            step = linear(op.operands[2], known)
            counts = step.terms and any(is_integer(p.type) for p in first.params[1:])  # steps that cannot be told apart
            self.width = step.const if natural(step) and step.const and not counts else None
            self.unit = gcd(*step.terms.values())
        else:
            self.aliases = dict(zip(last.params, first.results[1:], strict=True))
        homes = first.params[1:] if first is last else first.params
        self.inits = dict(zip(homes, inits, strict=True))  # of loop-carried values
        self.yielded = {p: self.named(x) for p, x in zip(homes, last.results, strict=True)}
        self.memo: dict[Value, Evolution | None] = {}
        self.condition_periods: dict[tuple[Value, bool], int | None] = {}  # of conditions that are made of others
        self.depth = 0  # of definitions that are followed

    def named(self, x: Operand) -> Operand:
        """A value under its name in the first block, if it has one."""
        while isinstance(x, Value) and x in self.aliases:
            x = self.aliases[x]
        return x

    def linear(self, x: Operand) -> Linear:
        """An index value as an expression of names in the first block."""
        made = linear(x)
        while alias := next((v for v in made.terms if v in self.aliases), None):
            made = made.put({alias: linear(self.aliases[alias])})
        return made

    # Values

    def of(self, x: Operand) -> Evolution | None:
        """The evolution of an index value; None when it is not known."""
        return self.combined(self.linear(x))

    def combined(self, expression: Linear) -> Evolution | None:
        """The evolution of an expression."""
        made = Evolution(low=expression.const, high=expression.const)
        for v, k in parts(expression):
            e = self.atom(v)
            if e is None:
                return None
            made = _sum(made, _scaled(e, k))
        return made

    def atom(self, v: Value) -> Evolution | None:
        """The evolution of a value that is not a sum."""
        if v not in self.memo:
            self.memo[v] = None  # a recurrence has none, unless `carried_evolution` finds one
            with self.nested() as allowed:
                self.memo[v] = self._atom(v) if allowed else None
        return self.memo[v]

    @contextmanager
    def nested(self) -> Iterator[bool]:
        """Follow a definition; whether the depth limit still allows it."""
        self.depth += 1
        yield self.depth <= DEPTH
        self.depth -= 1

    def _atom(self, v: Value) -> Evolution | None:
        if v in self.aliases:
            return self.of(v)
        if v is self.counter:
            start = self.invariant(linear(self.op.operands[0]))
            if self.width is None:
                return None
            symbolic, unit = start.symbolic or self.unit > 0, gcd(start.unit, self.unit)
            return start._replace(slope=Fraction(self.width), symbolic=symbolic, unit=unit)
        if v in self.inits:
            return self.carried_evolution(v)
        if v in self.params:
            return self.inner_parameter(v, self.params[v])
        return self.result(v, v.op) if v.op in self.inner else self.invariant(atom(v))

    def invariant(self, expression: Linear) -> Evolution:
        """The evolution of an expression of values from outside of the loop."""
        made = expression.put(self.known)
        unit = gcd(*made.terms.values()) if natural(made - number(made.const)) else 1
        return Evolution(low=made.const, high=made.const, symbolic=bool(made.terms), unit=unit)

    def carried_evolution(self, p: Value) -> Evolution | None:
        """The evolution of a loop-carried value. It grows by a number, changes sign, rotates, counts modulo a number, or
        follows from other values."""
        given = self.yielded[p]
        after, start = self.linear(given), self.invariant(linear(self.inits[p]))
        if after.terms == {p: 1}:
            return start._replace(slope=Fraction(after.const))
        if after.terms == {p: -1}:
            return Evolution(period=2, inexact=True)
        if (length := self.rotation_length(p)) is not None:
            return Evolution(period=length, inexact=True)
        op = given.op if isinstance(given, Value) else None
        if op is not None and op.defn.short == "remsi" and op in self.inner:
            x, n = self.linear(op.operands[0]), self.linear(op.operands[1])
            if x.terms == {p: 1} and not n.terms and n.const:
                size = abs(n.const)
                return Evolution(period=size // gcd(size, x.const), inexact=True)
        made = self.combined(after)
        return None if made is None or made.slope else made._replace(inexact=True)

    def rotation_length(self, p: Value) -> int | None:
        """The number of iterations after which values that the loop rotates return to `p`; None when it is not rotated."""
        at = p
        for length in range(1, len(self.yielded) + 1):
            x = self.yielded[at]
            if x is p:
                return length
            if not isinstance(x, Value) or x not in self.yielded:
                return None
            at = x
        return None

    def inner_parameter(self, v: Value, inner: Op) -> Evolution | None:
        """The evolution of a parameter of an inner loop: a counter ranges over its bounds, an accumulator starts at its
        initial value."""
        if is_while(inner):
            head, tail = inner.regions
            if v not in head.params:
                return self.of(head.results[1 + tail.params.index(v)])
            k = head.params.index(v)
            start, again = self.of(inner.operands[k]), linear(tail.results[k])
            again = again.put({p: linear(x) for p, x in zip(tail.params, head.results[1:], strict=True)})
            return start._replace(inexact=True) if start is not None and again.terms == {v: 1} else None
        if not is_for(inner):
            return None
        body = inner.regions[0]
        if v is body.params[0]:
            lower, upper = self.of(inner.operands[0]), self.of(inner.operands[1])
            if lower is None or upper is None or lower.slope != upper.slope:
                return None
            inexact = lower.symbolic or upper.symbolic or lower.inexact or upper.inexact
            ends = lower.low, max(lower.low, upper.high - 1)
            return Evolution(lower.slope, lcm(lower.period, upper.period), *ends, lower.symbolic, inexact)
        k = body.params.index(v)
        start, after = self.of(inner.operands[2 + k]), linear(body.results[k - 1])
        return start._replace(inexact=True) if start is not None and after.terms == {v: 1} else None

    def result(self, v: Value, op: Op) -> Evolution | None:
        """The evolution of the result of an op of the loop that is not a sum."""
        short = op.defn.short
        if short == "scf.if":
            k = op.results.index(v)
            then, otherwise = op.regions
            return _either(self.of(then.results[k]), self.of(otherwise.results[k]), self.condition_period(op.operands[0]))
        if short == "select":
            return _either(self.of(op.operands[1]), self.of(op.operands[2]), self.condition_period(op.operands[0]))
        if short not in ("remsi", "divsi", "minsi", "maxsi", "muli"):
            return None
        a, b = self.of(op.operands[0]), self.of(op.operands[1])
        if a is None or b is None:
            return None
        whole = short in ("remsi", "divsi") and b == Evolution(low=b.low, high=b.low) and b.low and not a.unit % b.low
        if (a.symbolic and not whole) or b.symbolic:  # the walk takes them as unknown in every iteration
            return Evolution(symbolic=True, inexact=True, unit=1)
        if short in ("minsi", "maxsi"):
            if a.slope != b.slope and not a.inexact and not b.inexact:  # the final one; `settled` gives its first iteration
                return a if (a.slope > b.slope) == (short == "maxsi") else b
            return _either(a, b)
        if b != Evolution(low=b.low, high=b.low) or not b.low:  # not by a number
            return None if a.slope or b.slope else Evolution(period=lcm(a.period, b.period), inexact=True)
        size, moved = abs(b.low), a.slope * a.period
        if moved.denominator != 1:
            return None
        period = a.period * (size // gcd(size, int(moved)))
        if short == "remsi":
            return Evolution(Fraction(0), period, 1 - size, size - 1)
        low, high = sorted((Fraction(a.low, b.low), Fraction(a.high, b.low)))
        return Evolution(a.slope / b.low, period, floor(low) - 1, ceil(high) + 1, a.symbolic, a.inexact, a.unit // size)

    # Conditions

    def condition_period(self, x: Operand, again: bool = False) -> int | None:
        """The period in iterations of an i1, once its comparisons no longer change; None when it is not known."""
        x = self.named(x)
        if not isinstance(x, Value) or (
            x.op is None and x not in self.params and x not in self.yielded and x is not self.counter
        ):
            return 1
        if x.op is None:
            return self.carried_condition(x) if x in self.yielded and not again else None
        if x.op not in self.inner:
            return 1
        if x.op.defn.short == "cmpi":
            apart = self.difference(x.op)
            return None if apart is None else 1 if apart.slope else apart.period
        if x.op.defn.short not in ("andi", "ori", "xori", "select"):
            return 1  # unknown in every iteration
        if (x, again) not in self.condition_periods:
            with self.nested() as allowed:
                parts = [self.condition_period(y, again) if allowed else None for y in x.op.operands]
            self.condition_periods[x, again] = None if None in parts else lcm(*[p for p in parts if p is not None])
        return self.condition_periods[x, again]

    def carried_condition(self, p: Value) -> int | None:
        """The period of a loop-carried i1: it stays, alternates, or follows from others."""
        given = self.yielded[p]
        op = given.op if isinstance(given, Value) else None
        if given is p or (op is not None and op.defn.short == "xori" and p in map(self.named, op.operands)):
            others = [y for y in map(self.named, op.operands) if y is not p] if op is not None and given is not p else []
            constant = all(not isinstance(y, Value) or (y.op is not None and y.op.defn.is_constant) for y in others)
            return (2 if others else 1) if constant else None
        return self.condition_period(given, again=True)

    def difference(self, op: Op) -> Evolution | None:
        """The evolution of the difference of the two sides of a comparison, or of the bounds of a loop."""
        a, b = op.operands[:2]
        return Evolution() if scalar_dtype(operand_type(a)) is I1 else self.combined(self.linear(a) - self.linear(b))

    def linear_difference(self, op: Op) -> tuple[Linear, int] | None:
        """The difference of the two sides of a comparison in iteration 0, and its increment; None when it is not linear."""
        apart = self.difference(op)
        if scalar_dtype(operand_type(op.operands[0])) is I1 or apart is None or not apart.slope or apart.slope.denominator != 1:
            return None
        made = self.linear(op.operands[0]) - self.linear(op.operands[1])
        made = made.put({v: linear(self.inits[v]) for v in made.terms if v in self.inits})
        return made.put(self.known), int(apart.slope)

    def settled(self) -> int | None:
        """The iteration from which on no comparison with a number changes its result; None when it is not known."""
        last = 0
        for op in self.ops:
            short = op.defn.short
            if short in ("scf.if", "select"):
                if self.condition_period(op.operands[0]) is None:
                    return None
                continue
            if short in ("remsi", "divsi"):
                apart = self.of(op.operands[0])
            elif short in ("cmpi", "scf.for", "minsi", "maxsi"):
                apart = self.difference(op)
                if short in ("cmpi", "scf.for") and (apart is None or (short == "scf.for" and apart.slope)):
                    return None
            elif (valid := group(op, "valid")) and short.startswith("tile."):
                grown = self.extents_settled(valid, valid_shape(op))
                if grown is None:
                    return None
                last = max(last, grown)
                continue
            else:
                continue
            if apart is not None and apart.slope and not apart.symbolic:
                if apart.inexact:
                    return None
                last = max(last, *[ceil(-end / apart.slope) + 1 for end in (apart.low, apart.high)])
        return last

    def extents_settled(self, valid: Sequence[Operand], shape: Shape) -> int | None:
        """The iteration from which on growing or shrinking extents would not fit into a tile; None when it is not known."""
        last = 0
        for x, extent in zip(valid, shape, strict=True):
            e = self.of(x)
            if e is None:
                return None
            if e.slope and not e.symbolic:  # the walk takes symbolic extents as unknown
                if e.inexact or not isinstance(extent, int):
                    return None
                last = max(last, *[ceil((end - start) / e.slope) for end in (0, extent) for start in (e.low, e.high)])
        return last

    def period(self) -> int:
        """The common period of all periodic values and conditions, in iterations."""
        made = [v for op in self.ops if op.defn.short in _PERIODIC for v in op.results]
        found = [self.atom(v) for v in (*made, *self.yielded) if is_integer(v.type)]
        turns = [self.condition_period(op.operands[0]) for op in self.ops if op.defn.short in ("scf.if", "select")]
        return lcm(*[e.period for e in found if e is not None], *[n for n in turns if n is not None])

    def longest_carry(self) -> int:
        """An upper bound of the number of iterations for which the loop carries a tile, an event or a valid region. A tile that
        the loop loads has a valid region of its own."""
        carried = {p: x for p, x in self.yielded.items() if isinstance(p.type, (TileType, EventType))}
        longest = 0
        for p, x in carried.items():
            length = 1
            while isinstance(x, Value) and x in carried and x is not p and length <= len(carried):
                p, x, length = x, carried[x], length + 1
            op = x.op if isinstance(x, Value) else None
            if length > len(carried) or (op in self.inner and op is not None and not _is_new(x, op)):
                return len(carried)
            longest = max(longest, length)
        return longest

    # Accesses

    def dependence_distance(self, met: Accesses, exposed: bool) -> int | None:
        """The largest number of iterations between two conflicting accesses, one of which is in the loop; None when it has no
        bound. `exposed`: other functions may have running accesses that `met` does not contain."""
        inside: dict[Value, list[Access]] = {}
        for op in self.ops:
            if op in met.has_unknown_part:
                return None
            if (access := met.by.get(op)) is not None:
                inside.setdefault(access.root, []).append(access)
        reach = 0
        for root, accesses in inside.items():
            foreign = exposed and isinstance(root.type, MemRefType)
            if len(met.pipes[root]) == 1 and not foreign:  # one pipe is in order
                continue
            others = [extents for op, extents in met.extents[root] if op not in self.inner]
            bounds = [self.dimension_distance(d, accesses, [e[d] for e in others]) for d in range(len(accesses[0].starts))]
            if all(b == FIXED for b in bounds):
                continue
            known = [b for b in bounds if b is not None and b != FIXED]
            if not known or foreign:
                return None
            reach = max(reach, min(known))
        return reach

    def dimension_distance(self, d: int, accesses: Sequence[Access], others: Sequence[tuple[int, int]]) -> int | None:
        """The dependence distance in dimension `d` of one memory; `others` are the accesses outside of the loop."""
        found = [e for a in accesses if (e := self.combined(a.starts[d])) is not None]
        slopes = {e.slope for e in found}
        if len(found) < len(accesses) or len(slopes) > 1:
            return None
        if slopes == {0}:
            return FIXED
        rest = {frozenset((v, k) for v, k in parts(a.starts[d]) if self.has_unknown_part(v)) for a in accesses}
        if len(rest) > 1 or any(e.inexact for e in found):
            return None
        sizes = [(a.most[d] or 1) * abs(a.steps[d] or 1) for a in accesses]
        first = min([low for low, _ in others] + [e.low for e in found])
        last = max([high for _, high in others] + [e.high + n for e, n in zip(found, sizes, strict=True)])
        return ceil((last - first) / abs(slopes.pop()))

    def has_unknown_part(self, v: Value) -> bool:
        """Whether the value of `v` has a symbolic part."""
        e = self.atom(v)
        return e is not None and e.symbolic


_PERIODIC = ("remsi", "divsi", "select", "scf.if")


class Accesses(NamedTuple):
    """The accesses of a function by op. For each memory: the pipes that access it, and the extents of each access in every
    dimension, as far as numbers bound them."""

    by: dict[Op, Access]
    has_unknown_part: set[Op]
    pipes: dict[Value, set[int]]
    extents: dict[Value, list[tuple[Op, list[tuple[int, int]]]]]


def accesses_of(function: Region) -> Accesses:
    """The accesses of a function. Counters range over their bounds, as far as these are numbers."""
    found = Accesses({}, set(), {}, {})
    counters: dict[Value, Op] = {}
    starts: dict[Value, Operand] = {}  # of what a loop carries
    for op in function.ops():
        if is_for(op):
            counters[op.regions[0].params[0]] = op
            starts.update(zip(op.regions[0].params[1:], op.operands[3:], strict=True))
        elif is_while(op):
            before, body = op.regions
            starts.update(zip((*before.params, *body.params), (*op.operands, *before.results[1:]), strict=True))
    for op in function.ops():
        if touches_memory(op):
            access, pipe = access_of(op), PIPES.index(pipe_of(op))
        elif is_assign(op):
            access, pipe = on_chip(need_tile("the tile", operand_type(op.operands[0])), linear(op.operands[1])), -id(op)
        else:
            continue
        if access is None:
            found.has_unknown_part.add(op)
            continue
        found.by[op] = access
        found.pipes.setdefault(access.root, set()).add(pipe)
        sizes = [(m or 1) * abs(step or 1) for m, step in zip(access.most, access.steps, strict=True)]
        ranges = [_range(s, counters, starts) for s in access.starts]
        extents = [(low, high + n) for (low, high), n in zip(ranges, sizes, strict=True)]
        found.extents.setdefault(access.root, []).append((op, extents))
    return found


def _range(expression: Linear, counters: Mapping[Value, Op], starts: Mapping[Value, Operand]) -> tuple[int, int]:
    for _ in range(DEPTH):
        if (v := next((v for v, _ in parts(expression) if v in starts), None)) is None:
            break
        expression = expression.put({v: linear(starts[v])})
    low = high = expression.const
    for v, k in parts(expression):
        if v in counters:
            lower, upper = (linear(x) for x in counters[v].operands[:2])
            first = lower.const if not lower.terms else 0
            ends = sorted((first * k, max(first, upper.const - 1 if not upper.terms else first) * k))
            low, high = low + ends[0], high + ends[1]
    return low, high
