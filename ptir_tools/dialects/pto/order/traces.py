"""An abstract interpretation of a function that covers all its executions, for the hazard check.

Both blocks of a branch are followed, each under its condition, and their states are merged. A value or clock is then a number
that depends on conditions (`decisions`). Two conditions are one when they compare the same: an i1 with itself, or two integers
by their difference. So the trip count `n` of a loop and a test of `i + 1 < n` inside it agree.

A loop is followed for as many iterations as can show something new (`Walk.window`, from `evolution`), and where the trip count
is known, for some at its end. Where no number of iterations is proved to be enough, the loop is followed to its end as far as
`Limits.unrolled` allows. The rest is reported as `Unproved`. A call is followed into the callee, unless that can show nothing
new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import lcm

from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import I1
from ptir_tools.core.ir import Function, Op, Region, Value, operand_type
from ptir_tools.core.limits import current
from ptir_tools.core.records import dataclass
from ptir_tools.core.typed import Any
from ptir_tools.dialects.pto.affine import Linear, Natural, atom, constant, linear, most_of, natural, number
from ptir_tools.dialects.pto.memory.windows import Access, accessed, composed, whole
from ptir_tools.dialects.pto.ops.memory import is_load, memory_of, touches_memory
from ptir_tools.dialects.pto.order.clocks import State
from ptir_tools.dialects.pto.order.decisions import ALWAYS, NEVER, Number, TooManyConditions
from ptir_tools.dialects.pto.order.evolution import Accesses, Evolutions, accesses_of
from ptir_tools.dialects.pto.order.values import Alternatives, BlockValue, Values
from ptir_tools.dialects.pto.pipes import PIPES, is_tile_op, pipe_of
from ptir_tools.dialects.pto.structure import callees, is_assign, is_barrier, is_for
from ptir_tools.dialects.pto.types import EventType, MemRefType, TileType, is_integer, scalar_dtype

MAX_CALL_DEPTH = 16  # calls within calls
MAX_CASES = 36  # of what parameters may be
MAX_ITERATIONS = 64  # iterations of a loop that is not followed to its end

Iterations = tuple[tuple[Op, int], ...]  # the loops around an op, with the number of the iteration
_Exit = tuple[Number, State, list[BlockValue]]  # where a loop ends unless a condition holds, and its results there

Case = dict[Value, Linear]


@dataclass(slots=True)
class Cases:
    """The cases of parameters in which no loop begins below 0. `ring` is the number of slots; `begins` are the parameters at
    which loops begin, with the loops."""

    natural: list[Case]
    ring: int
    begins: dict[Value, list[Op]]

    def below(self, p: Value, first: int, last: int) -> Iterator[Case]:
        """The same cases with `p` from `-first` down to `-last`."""
        for case in self.natural:
            if not case[p].const:
                yield from ({**case, p: number(-n)} for n in range(first, last + 1))


@dataclass(slots=True, frozen=True)
class Role:
    """The facts about an op that follow from its types: its pipe, its tile and event operands, its accesses of memory."""

    pipe: int
    tile_op: bool
    asynchronous: bool
    tiles: tuple[int, ...]
    events: tuple[int, ...]
    access: bool
    writes: bool


def role_of(op: Op) -> Role:
    """The role of an op; it is cached by declaration, operand types and attributes."""
    key = (op.defn, tuple(map(operand_type, op.operands)), op.attrs)
    if (found := _ROLES.get(key)) is None:
        last = op.results[-1].type if op.results else None
        kinds = [operand_type(x).__class__ for x in op.operands]
        tiles, events = (tuple([i for i, k in enumerate(kinds) if k is kind]) for kind in (TileType, EventType))
        signals = last.__class__ is EventType
        pipe = PIPES.index(pipe_of(op))
        found = Role(
            pipe, is_tile_op(op.defn), signals, tiles, events, touches_memory(op), touches_memory(op) and not is_load(op)
        )
        _ROLES[key] = found
    return found


_ROLES: dict[object, Role] = {}


class Stopped(Exception):
    """An execution ends here with an error: an address or index is negative."""


class Walk(Values):
    """Follows the ops of a function. A subclass defines the effect of tile ops and the state at forks and joins."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.unrolled = current().unrolled  # ops that are followed one by one
        self.path_condition: Number = ALWAYS  # under which the next op runs
        self.enclosing = Region()  # the function that is followed
        self.touched: dict[Region, Accesses] = {}  # by function
        self.exposed = False  # whether callers may have running ops
        self.depth = 0
        self.iterations: Iterations = ()
        self.branches = 0  # around the next op
        self.max_window = 0  # the most iterations that a loop was followed for
        self.starts_below_zero = False  # whether a loop begins below 0 here, because an argument is
        self.stopped = False  # whether a run would then end with an error
        self.unproved: dict[Op, str] = {}
        self.truncated = False  # whether the function was not followed to its end

    def step(self, op: Op, role: Role) -> None:
        """Follow an op that is not control flow and uses or makes tiles or events."""
        raise NotImplementedError

    def state(self) -> State:
        """The state at a fork."""
        raise NotImplementedError

    def restore(self, state: State) -> None:
        """Set the state."""
        raise NotImplementedError

    def merged_state(self, condition: Number, then: State, otherwise: State) -> State:
        """The state that is `then` where the condition holds, else `otherwise`."""
        raise NotImplementedError

    # Blocks and values

    def function(self, function: Function, case: Mapping[Value, Linear]) -> None:
        self.index.update(case)
        for p in function.params:
            if isinstance(p.type, MemRefType):
                self.known[p] = ((ALWAYS, whole(p)),)
        self.enclosing = function
        try:
            self.block(function)
        except TooManyConditions:
            self.truncated = True
        except Stopped:
            self.stopped, self.unproved = True, {}

    def negative(self) -> None:
        """An address or index is negative. In a case that begins below 0, an execution ends with an error: the rest is not
        followed."""
        if self.starts_below_zero and not self.branches:
            raise Stopped

    def cases(self, function: Function) -> Cases:
        """The cases of the parameters that give loop starts and steps. A step is at least 1. Where indices are used modulo a
        number of slots, there is a case for each remainder. A loop may then also begin below 0 (`Cases.below`)."""
        loops = [*filter(is_for, function.ops())]
        own = {p for p in function.params if is_integer(p.type)}
        steps = {p for op in loops for p in own if linear(op.operands[2]).terms == {p: 1}}
        begins = {p for op in loops for p in own if p in linear(op.operands[0]).terms} - steps
        slots = [constant(op.operands[1]) or 1 for op in function.ops() if op.defn.short in ("remsi", "divsi")]
        ring = lcm(*map(abs, slots))
        if ring ** (len(steps) + len(begins)) > MAX_CASES:
            ring = 1
        found: list[Case] = [{}]
        for p in [p for p in function.params if p in steps or (p in begins and ring > 1)]:
            first = int(p in steps)
            ways = [atom(Natural(p.type, p.name)) * ring + number(first + r) for r in range(ring)]
            found = [{**case, p: way} for case in found for way in ways]
        return Cases(found, ring, {p: [op for op in loops if p in linear(op.operands[0]).terms] for p in begins if ring > 1})

    def block(self, block: Region) -> list[BlockValue]:
        for op in block.body:
            handler = _HANDLERS.get(op.defn.short)
            if handler is not None:
                handler(self, op)
            elif op.regions:
                self.unknown_op(op)
            else:
                self.simple_op(op)
        return [self.block_value(x) for x in block.results]

    def simple_op(self, op: Op) -> None:
        for v in op.results:
            if (dtype := scalar_dtype(v.type)) is None:
                continue
            if dtype is I1:
                self.known[v] = self.condition_of(op)
            elif dtype.is_integer and not (op.defn.is_constant and v in self.index):
                self.number(v)
        role = role_of(op)
        if role.tile_op or role.events or role.tiles or is_barrier(op):
            self.step(op, role)

    # Memory

    def accesses(self, op: Op) -> Iterator[tuple[Number, Access]]:
        """The windows that a load or store may touch, each with its condition."""
        for when, view in self.options(memory_of(op)):
            for also, valid in self.touched_extents(op):
                access = accessed(op, view, self.index, valid)
                if self.starts_below_zero and any(s.const < 0 and not s.terms for s in access.starts):
                    self.negative()
                yield self.decisions.both(when, also), access

    def touched_extents(self, op: Op) -> Alternatives:
        """The extents that a load or store may touch, each with its condition."""
        raise NotImplementedError

    def view(self, op: Op) -> None:
        views = self.options(op.operands[0])
        self.known[op.results[0]] = tuple([(when, composed(op, parent, self.index)) for when, parent in views])

    # Control flow

    def branch(self, op: Op) -> None:
        condition = self.condition(op.operands[0])
        ways = [(condition, op.regions[0]), (self.decisions.negated(condition), op.regions[1])]
        outer, before = self.path_condition, self.state()
        ends = []
        self.branches += 1
        for when, region in ways:
            self.path_condition = self.decisions.both(outer, when)
            passed = None
            if self.path_condition != NEVER:
                self.restore(before)
                passed = (self.block(region), self.state())
            ends.append(passed)
        self.branches -= 1
        self.path_condition = outer
        if ends[0] is None or ends[1] is None:
            values, state = ends[0] or ends[1] or ([self.unknown_value(v) for v in op.results], before)
        else:
            state = self.merged_state(condition, ends[0][1], ends[1][1])
            values = [self.merged_value(condition, a, b) for a, b in zip(ends[0][0], ends[1][0], strict=True)]
        self.restore(state)
        for v, value in zip(op.results, values, strict=True):
            self.bind(v, value)

    def for_loop(self, op: Op) -> None:
        lower, upper, step = (linear(x, self.index) for x in op.operands[:3])
        apart = upper - lower
        width = step.const if natural(step) and step.const else None  # the least that the step may be
        trips = max(0, -(-apart.const // width)) if width and not apart.terms and not step.terms else None
        window, end, why = self.window(op)
        most = most_of(apart, self.counters) if trips is None and width else None
        if (
            most is not None
            and width
            and (most <= window * width or (why and -(-most // width) * _iteration_size(op) <= self.unrolled))
        ):
            numbers, why = list(range(max(0, -(-most // width)))), None
        elif trips is None:
            numbers = list(range(window))
        elif trips <= window + end or (why is not None and trips * _iteration_size(op) <= self.unrolled):
            numbers, why = list(range(trips)), None
        else:  # the first and the last ones, with the slots in step
            period = end // 2
            numbers = [*range(window), *range(trips - end - (trips - window) % period, trips)]
        if why is not None:
            self.unproved[op] = why
        carried = [self.block_value(x) for x in op.operands[3:]]
        if trips is None and width:  # the last condition gets the first variable: it is tested last
            for k in reversed(range(len(numbers))):
                self.positive(apart - step * k)
        self.repeat(op, numbers, carried, lower, step if width else None, apart if trips is None else None)

    def repeat(
        self, op: Op, numbers: list[int], carried: list[BlockValue], lower: Linear, step: Linear | None, apart: Linear | None
    ) -> None:
        """Follow iterations. When the trip count is not known (`apart`), each may be the last."""
        (body,), exits = op.regions, list[_Exit]()
        with self.looping() as around:
            for k in numbers:
                self.iterations = (*around, (op, k))
                if apart is not None:
                    goes = self.positive(apart - step * k) if step is not None else self.decisions.fresh()
                    self.may_end(goes, carried, exits)
                    if self.path_condition == NEVER:
                        break
                i = body.params[0]
                self.index[i] = lower + step * k if step is not None else atom(Value(i.type, i.name))
                for p, value in zip(body.params[1:], carried, strict=True):
                    self.bind(p, value)
                carried = self.block(body)
        self.leave(exits, op.results, carried)

    @contextmanager
    def looping(self) -> Iterator[Iterations]:
        """Follow iterations of a loop; the iterations around it. Afterwards the path is that around the loop."""
        around, outer = self.iterations, self.path_condition
        self.nesting += 1
        yield around
        self.nesting -= 1
        self.iterations, self.path_condition = around, outer

    def may_end(self, goes: Number, values: list[BlockValue], exits: list[_Exit]) -> None:
        """The loop ends here with these values unless the condition `goes` holds."""
        exits.append((goes, self.state(), values))
        self.path_condition = self.decisions.both(self.path_condition, goes)

    def leave(self, exits: list[_Exit], results: Iterable[Value], values: list[BlockValue]) -> None:
        """Merge the state and values at the end of a loop with those of its exits."""
        state = self.state()
        for goes, before, others in reversed(exits):
            state = self.merged_state(goes, state, before)
            values = [self.merged_value(goes, a, b) for a, b in zip(values, others, strict=True)]
        if exits:
            self.restore(state)
        for v, value in zip(results, values, strict=True):
            self.bind(v, value)

    def window(self, op: Op) -> tuple[int, int, str | None]:
        """The number of iterations that show all effects of a loop, the number at its end, and the reason why that is not
        proved."""
        changes = Evolutions(op, self.index)
        if (met := self.touched.get(self.enclosing)) is None:
            met = self.touched[self.enclosing] = accesses_of(self.enclosing)
        period, settled, reach = changes.period(), changes.settled(), changes.dependence_distance(met, self.exposed)
        wanted = 2 * period + changes.longest_carry() + (reach or 0) + (settled or 0) + 1
        most = max(
            3, min(2 * MAX_ITERATIONS if self.starts_below_zero else MAX_ITERATIONS, self.unrolled // max(1, _iteration_size(op)))
        )
        why = None
        if settled is None:
            why = "its comparisons change in an unknown way, and it may have more iterations than are followed"
        elif reach is None:
            why = "the dependence distance of its accesses has no known bound, and it may have more iterations than are followed"
        elif wanted > most:
            why = f"only {most} of the {wanted} iterations that could matter are followed"
        elif (called := self.unsynchronized_call(changes.ops)) is not None:
            why = f"@{called} may return with running ops, and it may have more iterations than are followed"
        self.max_window = max(self.max_window, min(wanted, most))
        return max(3, min(wanted, most)), 2 * period, why

    def unsynchronized_call(self, ops: Iterable[Op]) -> str | None:
        """The name of a function called among `ops` that may conflict with running ops; None where there is none."""
        ops = list(ops)
        called = callees(ops, self.program)
        alone = called and self.all_complete() and not any(role_of(op).asynchronous for op in ops if is_tile_op(op.defn))
        return next((f.name for f in called if not (alone and self.completes(f))), None)

    def while_loop(self, op: Op) -> None:
        """A loop whose first block gives the condition: it may end after any iteration of its window, or where numbers decide
        it."""
        before, body = op.regions
        window, _, why = self.window(op)
        most = max(window, self.unrolled // max(1, _iteration_size(op)))
        ends = before.results[0].op if isinstance(before.results[0], Value) else None
        if (
            ends is not None
            and ends.defn.short == "cmpi"
            and (apart := Evolutions(op, self.index).linear_difference(ends)) is not None
        ):
            for k in reversed(range(window + 1)):  # the last condition gets the first variable: it is tested last
                self.comparison(ends.attr("predicate").lstrip("s"), apart[0] + number(apart[1] * k), number(0))
        carried, given, exits = [self.block_value(x) for x in op.operands], list[BlockValue](), list[_Exit]()
        with self.looping() as around:
            while True:
                self.iterations = (*around, (op, len(exits)))
                for p, value in zip(before.params, carried, strict=True):
                    self.bind(p, value)
                (goes, _), *given = self.block(before)
                goes = self.decisions.fresh() if goes is None or isinstance(goes, tuple) else goes
                self.may_end(goes, given, exits)
                rounds = len(exits) - 1
                if self.path_condition == NEVER:  # followed to its end
                    why = None
                    break
                if rounds >= (most if goes == ALWAYS else window):
                    why = why or (f"it has more than {rounds} iterations" if goes == ALWAYS else None)
                    break
                for p, value in zip(body.params, given, strict=True):
                    self.bind(p, value)
                carried = self.block(body)
        if why is not None:
            self.unproved[op] = why
        self.leave(exits[:-1], op.results, given)

    def unknown_op(self, op: Op) -> None:
        """An op with regions that is not known here: its regions are followed three times, and a warning is reported."""
        self.unproved[op] = "its trip count is not known: three iterations are followed"
        exits: list[_Exit] = []
        with self.looping() as around:
            for k in range(3):
                self.iterations = (*around, (op, k))
                for region in op.regions:
                    self.may_end(self.decisions.fresh(), [], exits)
                    for p in region.params:
                        self.bind(p, self.unknown_value(p))
                    self.block(region)
        self.leave(exits, [], [])
        for v in op.results:
            self.bind(v, self.unknown_value(v))

    def call(self, op: Op) -> None:
        callee = self.program.function(op.attr("callee"))
        if callee is None or self.depth >= MAX_CALL_DEPTH:
            self.simple_op(op)
            return
        if self.isolated(op, callee):
            return
        for p, x in zip(callee.params, op.operands, strict=True):
            self.bind(p, self.block_value(x))
        outer, exposed, self.enclosing = self.enclosing, self.exposed, callee
        self.exposed = exposed or not (self.all_complete() and self.completes(callee))
        self.depth, self.nesting = self.depth + 1, self.nesting + 1
        results = self.block(callee)
        self.enclosing, self.exposed = outer, exposed
        self.depth, self.nesting = self.depth - 1, self.nesting - 1
        for v, value in zip(op.results, results, strict=True):
            self.bind(v, value)

    def all_complete(self) -> bool:
        """Whether no op may still be running here."""
        raise NotImplementedError

    def completes(self, callee: Function) -> bool:
        """Whether all ops of a function are complete when it returns."""
        raise NotImplementedError

    def isolated(self, op: Op, callee: Function) -> bool:
        """Whether a call adds no finding to those of the callee by itself."""
        raise NotImplementedError


_HANDLERS: dict[str, Callable[[Any, Op], None]] = {
    "memref.subview": Walk.view,
    "scf.for": Walk.for_loop,
    "scf.while": Walk.while_loop,
    "scf.if": Walk.branch,
    "func.call": lambda walk, op: walk.call(op),
}


# How long a loop is followed


def _iteration_size(op: Op) -> int:
    """The number of ops of one iteration, without constants and addresses. Inner loops count by their trip count."""
    count = 0
    for inner in (x for r in op.regions for x in r.body):
        count += not inner.defn.is_constant and not is_assign(inner)
        if is_for(inner):
            lower, upper, step = (linear(x) for x in inner.operands[:3])
            apart = upper - lower
            known = not apart.terms and not step.terms and step.const > 0
            count += _iteration_size(inner) * (max(0, -(-apart.const // step.const)) if known else 4)
        elif inner.regions:
            count += sum(len(list(r.ops())) for r in inner.regions)
    return count
