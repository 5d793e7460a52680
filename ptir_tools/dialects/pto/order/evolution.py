"""How index values change from one iteration of a loop to the next (scalar evolution), and so how far apart in iterations two
accesses can meet.

In iteration k a value is `slope * k`, plus what comes round every `period` iterations, plus what stays the same. Instead of the
last, it may go over one range in every iteration: the counter of an inner loop. What is none of that has no evolution.
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
from ptir_tools.dialects.pto.affine import DEPTH, Linear, linear, natural, number
from ptir_tools.dialects.pto.memory.windows import Access, access_of, on_chip
from ptir_tools.dialects.pto.ops.memory import touches_memory
from ptir_tools.dialects.pto.pipes import PIPES, pipe_of
from ptir_tools.dialects.pto.rules import group, valid_shape
from ptir_tools.dialects.pto.types import MemRefType

FIXED = -1  # an extent in which nothing moves with the loop, or only by its slots


class Evolution(NamedTuple):
    """How a value changes. What is not `slope * k` is from `low` to `high`.

    Where it is `symbolic`, something unknown is added, of which `unit` is a factor; where it is `loose`, no numbers say the
    range. The slope is then the least that it may be."""

    slope: Fraction = Fraction(0)
    period: int = 1
    low: int = 0
    high: int = 0
    symbolic: bool = False
    loose: bool = False
    unit: int = 0


def _scaled(e: Evolution, k: int) -> Evolution:
    low, high = sorted((e.low * k, e.high * k))
    return e._replace(slope=e.slope * k, low=low, high=high, unit=e.unit * abs(k))


def _sum(a: Evolution, b: Evolution) -> Evolution:
    period = lcm(a.period, b.period)
    symbolic, loose, unit = a.symbolic or b.symbolic, a.loose or b.loose, gcd(a.unit, b.unit)
    return Evolution(a.slope + b.slope, period, a.low + b.low, a.high + b.high, symbolic, loose, unit)


def _either(a: Evolution | None, b: Evolution | None, period: int | None = 1) -> Evolution | None:
    """One of two, which may be another one in each iteration of a period."""
    if a is None or b is None or period is None or a.slope != b.slope:
        return None
    apart = a.symbolic or b.symbolic  # then no one knows by how much
    ends = min(a.low, b.low), max(a.high, b.high)
    return Evolution(a.slope, lcm(a.period, b.period, period), *ends, apart, a.loose or b.loose or (apart and a != b))


class Evolutions:
    """The evolutions of values in the loop `op`. `known` says what values from outside of it are. An iteration of `scf.while` is
    its first block and then its second, whose parameters are other names (`same`) of what the first gives."""

    def __init__(self, op: Op, known: Mapping[Value, Linear]) -> None:
        self.op = op
        self.known = known
        self.ops = [x for r in op.regions for x in r.ops()]
        self.inner = set(self.ops)
        self.params = {p: inner for inner in self.ops for r in inner.regions for p in r.params}
        first, last = op.regions[0], op.regions[-1]
        self.same: dict[Value, Operand] = {}
        self.counter: Value | None = None
        self.width: int | None = None
        self.unit = 0
        inits = op.operands
        if first is last:
            self.counter, inits = first.params[0], op.operands[3:]
            step = linear(op.operands[2], known)
            counts = step.terms and any(_is_index(p) for p in first.params[1:])  # paces that cannot be told apart
            self.width = step.const if natural(step) and step.const and not counts else None
            self.unit = gcd(*step.terms.values())
        else:
            self.same = dict(zip(last.params, first.results[1:], strict=True))
        homes = first.params[1:] if first is last else first.params
        self.starts = dict(zip(homes, inits, strict=True))  # what the loop carries: as it starts, and as it goes on
        self.given = {p: self.named(x) for p, x in zip(homes, last.results, strict=True)}
        self.found: dict[Value, Evolution | None] = {}
        self.rounds: dict[tuple[Value, bool], int | None] = {}  # of conditions that are made of others
        self.depth = 0  # of definitions that are followed

    def named(self, x: Operand) -> Operand:
        """A value under its name in the first block, if it has one."""
        while isinstance(x, Value) and x in self.same:
            x = self.same[x]
        return x

    def linear(self, x: Operand) -> Linear:
        """An index value as an expression, of names in the first block."""
        made = linear(x)
        while (v := next((v for v in made.terms if v in self.same), None)) is not None:
            made = made + Linear(0, {v: -made.terms[v]}) + linear(self.same[v]) * made.terms[v]
        return made

    # Values

    def of(self, x: Operand) -> Evolution | None:
        """How an index value changes; None where that is not known."""
        return self.combined(self.linear(x))

    def combined(self, expression: Linear) -> Evolution | None:
        """As `of`, of an expression."""
        made = Evolution(low=expression.const, high=expression.const)
        for v, k in expression.terms.items():
            e = self.atom(v)
            if e is None:
                return None
            made = _sum(made, _scaled(e, k))
        return made

    def atom(self, v: Value) -> Evolution | None:
        """As `of`, of a value that no sum makes."""
        if v not in self.found:
            self.found[v] = None  # what depends on itself has none, unless `carried` knows how
            with self.deeper() as near:
                self.found[v] = self._atom(v) if near else None
        return self.found[v]

    @contextmanager
    def deeper(self) -> Iterator[bool]:
        """One definition deeper; whether that is not too deep to know anything."""
        self.depth += 1
        yield self.depth <= DEPTH
        self.depth -= 1

    def _atom(self, v: Value) -> Evolution | None:
        if v in self.same:
            return self.of(v)
        if v is self.counter:
            start = self.outside(linear(self.op.operands[0]))
            if self.width is None:
                return None
            symbolic, unit = start.symbolic or self.unit > 0, gcd(start.unit, self.unit)
            return start._replace(slope=Fraction(self.width), symbolic=symbolic, unit=unit)
        if v in self.starts:
            return self.carried(v)
        if v in self.params:
            return self.within(v, self.params[v])
        return self.result(v, v.op) if v.op in self.inner else self.outside(Linear(0, {v: 1}))

    def outside(self, expression: Linear) -> Evolution:
        """What stays the same."""
        made = Linear(expression.const, {})
        for v, k in expression.terms.items():
            made = made + self.known.get(v, Linear(0, {v: 1})) * k
        unit = gcd(*made.terms.values()) if natural(Linear(0, made.terms)) else 1
        return Evolution(low=made.const, high=made.const, symbolic=bool(made.terms), unit=unit)

    def carried(self, p: Value) -> Evolution | None:
        """What the loop carries: it grows by a number, changes sides, comes round, or follows from what does."""
        given = self.given[p]
        after, start = self.linear(given), self.outside(linear(self.starts[p]))
        if after.terms == {p: 1}:
            return start._replace(slope=Fraction(after.const))
        if after.terms == {p: -1}:
            return Evolution(period=2, loose=True)
        if (length := self.turn(p)) is not None:
            return Evolution(period=length, loose=True)
        op = given.op if isinstance(given, Value) else None
        if op is not None and op.defn.short == "remsi" and op in self.inner:
            x, n = self.linear(op.operands[0]), self.linear(op.operands[1])
            if x.terms == {p: 1} and not n.terms and n.const:
                size = abs(n.const)
                return Evolution(period=size // gcd(size, x.const), loose=True)
        made = self.combined(after)
        return None if made is None or made.slope else made._replace(loose=True)

    def turn(self, p: Value) -> int | None:
        """After how many iterations values that the loop passes on among its own come round to `p`."""
        at = p
        for length in range(1, len(self.given) + 1):
            x = self.given[at]
            if x is p:
                return length
            if not isinstance(x, Value) or x not in self.given:
                return None
            at = x
        return None

    def within(self, v: Value, inner: Op) -> Evolution | None:
        """A parameter of a block in the loop: a counter goes over a range, and what grows there starts so."""
        if inner.defn.short == "scf.while":
            head, tail = inner.regions
            if v not in head.params:
                return self.of(head.results[1 + tail.params.index(v)])
            k = head.params.index(v)
            start, again = self.of(inner.operands[k]), linear(tail.results[k])
            for p in [p for p in again.terms if p in tail.params]:
                again = again + Linear(0, {p: -again.terms[p]}) + linear(head.results[1 + tail.params.index(p)]) * again.terms[p]
            return start._replace(loose=True) if start is not None and again.terms == {v: 1} else None
        if inner.defn.short != "scf.for":
            return None
        body = inner.regions[0]
        if v is body.params[0]:
            lower, upper = self.of(inner.operands[0]), self.of(inner.operands[1])
            if lower is None or upper is None or lower.slope != upper.slope:
                return None
            loose = lower.symbolic or upper.symbolic or lower.loose or upper.loose
            ends = lower.low, max(lower.low, upper.high - 1)
            return Evolution(lower.slope, lcm(lower.period, upper.period), *ends, lower.symbolic, loose)
        k = body.params.index(v)
        start, after = self.of(inner.operands[2 + k]), linear(body.results[k - 1])
        return start._replace(loose=True) if start is not None and after.terms == {v: 1} else None

    def result(self, v: Value, op: Op) -> Evolution | None:
        """The evolution of what an op of the loop makes other than by a sum."""
        short = op.defn.short
        if short == "scf.if":
            k = op.results.index(v)
            then, otherwise = op.regions
            return _either(self.of(then.results[k]), self.of(otherwise.results[k]), self.condition(op.operands[0]))
        if short == "select":
            return _either(self.of(op.operands[1]), self.of(op.operands[2]), self.condition(op.operands[0]))
        if short not in ("remsi", "divsi", "minsi", "maxsi", "muli"):
            return None
        a, b = self.of(op.operands[0]), self.of(op.operands[1])
        if a is None or b is None:
            return None
        whole = short in ("remsi", "divsi") and b == Evolution(low=b.low, high=b.low) and b.low and not a.unit % b.low
        if (a.symbolic and not whole) or b.symbolic:  # of these the walk knows nothing, each time
            return Evolution(symbolic=True, loose=True, unit=1)
        if short in ("minsi", "maxsi"):
            if a.slope != b.slope and not a.loose and not b.loose:  # which one it is in the end; `settled` knows from when on
                return a if (a.slope > b.slope) == (short == "maxsi") else b
            return _either(a, b)
        if b != Evolution(low=b.low, high=b.low) or not b.low:  # not by a number
            return None if a.slope or b.slope else Evolution(period=lcm(a.period, b.period), loose=True)
        size, moved = abs(b.low), a.slope * a.period
        if moved.denominator != 1:
            return None
        period = a.period * (size // gcd(size, int(moved)))
        if short == "remsi":
            return Evolution(Fraction(0), period, 1 - size, size - 1)
        low, high = sorted((Fraction(a.low, b.low), Fraction(a.high, b.low)))
        return Evolution(a.slope / b.low, period, floor(low) - 1, ceil(high) + 1, a.symbolic, a.loose, a.unit // size)

    # Conditions

    def condition(self, x: Operand, again: bool = False) -> int | None:
        """After how many iterations an i1 comes round, once what it compares has crossed; None where that is not known."""
        x = self.named(x)
        if not isinstance(x, Value) or (x.op is None and x not in self.params and x not in self.given and x is not self.counter):
            return 1
        if x.op is None:
            return self.switch(x) if x in self.given and not again else None
        if x.op not in self.inner:
            return 1
        if x.op.defn.short == "cmpi":
            apart = self.apart(x.op)
            return None if apart is None else 1 if apart.slope else apart.period
        if x.op.defn.short not in ("andi", "ori", "xori", "select"):
            return 1  # nothing is known of it, each time
        if (x, again) not in self.rounds:
            with self.deeper() as near:
                parts = [self.condition(y, again) if near else None for y in x.op.operands]
            self.rounds[x, again] = None if None in parts else lcm(*[p for p in parts if p is not None])
        return self.rounds[x, again]

    def switch(self, p: Value) -> int | None:
        """As `condition`, of an i1 that the loop carries: it stays, changes, or follows from others."""
        given = self.given[p]
        op = given.op if isinstance(given, Value) else None
        if given is p or (op is not None and op.defn.short == "xori" and p in map(self.named, op.operands)):
            others = [y for y in map(self.named, op.operands) if y is not p] if op is not None and given is not p else []
            constant = all(not isinstance(y, Value) or (y.op is not None and y.op.defn.is_constant) for y in others)
            return (2 if others else 1) if constant else None
        return self.condition(given, again=True)

    def apart(self, op: Op) -> Evolution | None:
        """The difference of the two sides of a comparison, or of the bounds of a loop."""
        a, b = op.operands[:2]
        return Evolution() if _is_i1(a) else self.combined(self.linear(a) - self.linear(b))

    def line(self, op: Op) -> tuple[Linear, int] | None:
        """The difference of the two sides of a comparison in iteration 0, and what is added in each; None where it is no line."""
        apart = self.apart(op)
        if _is_i1(op.operands[0]) or apart is None or not apart.slope or apart.slope.denominator != 1:
            return None
        made = self.linear(op.operands[0]) - self.linear(op.operands[1])
        for v in [v for v in made.terms if v in self.starts]:
            made = made + Linear(0, {v: -made.terms[v]}) + linear(self.starts[v]) * made.terms[v]
        known = number(made.const)
        for v, n in made.terms.items():
            known = known + self.known.get(v, Linear(0, {v: 1})) * n
        return known, int(apart.slope)

    def settled(self) -> int | None:
        """The iteration from which on nothing that is compared with a number changes sides; None where that is not known."""
        last = 0
        for op in self.ops:
            short = op.defn.short
            if short in ("scf.if", "select"):
                if self.condition(op.operands[0]) is None:
                    return None
                continue
            if short in ("remsi", "divsi"):
                apart = self.of(op.operands[0])
            elif short in ("cmpi", "scf.for", "minsi", "maxsi"):
                apart = self.apart(op)
                if short in ("cmpi", "scf.for") and (apart is None or (short == "scf.for" and apart.slope)):
                    return None
            elif (valid := group(op, "valid")) and short.startswith("tile."):
                grown = self.filled(valid, valid_shape(op))
                if grown is None:
                    return None
                last = max(last, grown)
                continue
            else:
                continue
            if apart is not None and apart.slope and not apart.symbolic:
                if apart.loose:
                    return None
                last = max(last, *[ceil(-end / apart.slope) + 1 for end in (apart.low, apart.high)])
        return last

    def filled(self, valid: Sequence[Operand], shape: Shape) -> int | None:
        """The iteration from which on extents that grow or shrink would not fit into a tile; None where that is not known."""
        last = 0
        for x, extent in zip(valid, shape, strict=True):
            e = self.of(x)
            if e is None:
                return None
            if e.slope and not e.symbolic:  # of what has an unknown part the walk takes nothing for known
                if e.loose or not isinstance(extent, int):
                    return None
                last = max(last, *[ceil((end - start) / e.slope) for end in (0, extent) for start in (e.low, e.high)])
        return last

    def period(self) -> int:
        """After how many iterations all that comes round has."""
        made = [v for op in self.ops if op.defn.short in _ROUND for v in op.results]
        found = [self.atom(v) for v in (*made, *self.given) if _is_index(v)]
        turns = [self.condition(op.operands[0]) for op in self.ops if op.defn.short in ("scf.if", "select")]
        return lcm(*[e.period for e in found if e is not None], *[n for n in turns if n is not None])

    # Accesses

    def reach(self, met: Accesses, exposed: bool) -> int | None:
        """How many iterations apart two accesses can meet, of which one is in the loop; None where nothing bounds it. `exposed`
        says that other functions may have accesses under way, which `met` does not know."""
        inside: dict[Value, list[Access]] = {}
        for op in self.ops:
            if op in met.unknown:
                return None
            if (access := met.by.get(op)) is not None:
                inside.setdefault(access.root, []).append(access)
        reach = 0
        for root, accesses in inside.items():
            foreign = exposed and isinstance(root.type, MemRefType)
            if len(met.pipes[root]) == 1 and not foreign:  # one pipe is in order
                continue
            others = [extents for op, extents in met.extents[root] if op not in self.inner]
            bounds = [self.meeting(d, accesses, [e[d] for e in others]) for d in range(len(accesses[0].starts))]
            if all(b == FIXED for b in bounds):
                continue
            known = [b for b in bounds if b is not None and b != FIXED]
            if not known or foreign:
                return None
            reach = max(reach, min(known))
        return reach

    def meeting(self, d: int, accesses: Sequence[Access], others: Sequence[tuple[int, int]]) -> int | None:
        """As `reach`, for dimension `d` of one memory; `others` are accessed outside of the loop."""
        found = [e for a in accesses if (e := self.combined(a.starts[d])) is not None]
        slopes = {e.slope for e in found}
        if len(found) < len(accesses) or len(slopes) > 1:
            return None
        if slopes == {0}:
            return FIXED
        rest = {frozenset((v, k) for v, k in a.starts[d].terms.items() if self.unknown(v)) for a in accesses}
        if len(rest) > 1 or any(e.loose for e in found):
            return None
        sizes = [(a.most[d] or 1) * abs(a.steps[d] or 1) for a in accesses]
        first = min([low for low, _ in others] + [e.low for e in found])
        last = max([high for _, high in others] + [e.high + n for e, n in zip(found, sizes, strict=True)])
        return ceil((last - first) / abs(slopes.pop()))

    def unknown(self, v: Value) -> bool:
        """Whether the value of `v` has a part that no number says."""
        e = self.atom(v)
        return e is not None and e.symbolic


_ROUND = ("remsi", "divsi", "select", "scf.if")


def _is_i1(x: Operand) -> bool:
    return getattr(operand_type(x), "dtype", None) is I1


def _is_index(v: Value) -> bool:
    dtype = getattr(v.type, "dtype", None)
    return dtype is not None and not getattr(v.type, "shape", ()) and dtype.is_integer and dtype is not I1


class Accesses(NamedTuple):
    """The accesses of a function by op. Of each memory: the pipes that touch it, and from where to where each op touches it in
    every dimension, as far as numbers say it."""

    by: dict[Op, Access]
    unknown: set[Op]
    pipes: dict[Value, set[int]]
    extents: dict[Value, list[tuple[Op, list[tuple[int, int]]]]]


def accesses_of(function: Region) -> Accesses:
    """The accesses of a function. A counter goes over its range, as far as numbers say it."""
    found = Accesses({}, set(), {}, {})
    counters: dict[Value, Op] = {}
    starts: dict[Value, Operand] = {}  # of what a loop carries
    for op in function.ops():
        if op.defn.short == "scf.for":
            counters[op.regions[0].params[0]] = op
            starts.update(zip(op.regions[0].params[1:], op.operands[3:], strict=True))
        elif op.defn.short == "scf.while":
            before, body = op.regions
            starts.update(zip((*before.params, *body.params), (*op.operands, *before.results[1:]), strict=True))
    for op in function.ops():
        if touches_memory(op):
            access, pipe = access_of(op), PIPES.index(pipe_of(op))
        elif op.defn.short == "tile.assign":
            access, pipe = on_chip(operand_type(op.operands[0]), linear(op.operands[1])), -id(op)  # type: ignore[arg-type]
        else:
            continue
        if access is None:
            found.unknown.add(op)
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
        if (v := next((v for v in expression.terms if v in starts), None)) is None:
            break
        k = expression.terms[v]
        expression = expression + Linear(0, {v: -k}) + linear(starts[v]) * k
    low = high = expression.const
    for v, k in expression.terms.items():
        if v in counters:
            lower, upper = (linear(x) for x in counters[v].operands[:2])
            first = lower.const if not lower.terms else 0
            ends = sorted((first * k, max(first, upper.const - 1 if not upper.terms else first) * k))
            low, high = low + ends[0], high + ends[1]
    return low, high
