"""One kernel on several cores: each does a part of the iterations of a loop whose iterations are independent.

A function is split at one loop, if all its stores are in it and no value is carried. Then every element that an iteration
writes is touched by no other iteration. Of nested loops, the one is taken that leaves the fewest iterations to a core. Core `b`
does the iterations from `b * n` on, where n is the number of iterations by the number of cores, rounded up. The last core may
have fewer. Cores without any are not launched, or leave the function out. All else is done by each core: it writes nothing.

An entry that only calls functions is launched, too. A called function that is not split runs on core 0. Where a call touches what
another one wrote, or writes what another one touched, all cores meet before it (`SYNCALL`).

A function that stores outside of such a loop, or carries a reduction through it, stays on one core, and a note says why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ptir_tools.core.declare import OPS
from ptir_tools.core.diagnostics import Diagnostics, Severity, UsageError
from ptir_tools.core.dialect import Options, Program, clone
from ptir_tools.core.dtypes import INDEX, SI64
from ptir_tools.core.ir import Function, Literal, Op, Operand, Region, Value, create, operand_type
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.violations import Violation, require
from ptir_tools.dialects.pto import MOST_CORES, SPLIT
from ptir_tools.dialects.pto.affine import constant, parts
from ptir_tools.dialects.pto.memory.windows import Access, access_of, view_of
from ptir_tools.dialects.pto.ops.memory import is_load, touches_memory
from ptir_tools.dialects.pto.order import hazards
from ptir_tools.dialects.pto.pipes import is_tile_op
from ptir_tools.dialects.pto.structure import (
    BLOCK_DIM,
    SYNCALL,
    block_dim,
    has_events,
    is_barrier,
    is_block_idx,
    is_call,
    is_fifo,
    is_for,
)
from ptir_tools.dialects.pto.targets import target_of
from ptir_tools.dialects.pto.text.literals import integer
from ptir_tools.dialects.pto.types import INDEX_TYPE, MemRefType, scalar
from ptir_tools.passes import PassContext
from ptir_tools.rewrite.rewriter import Rewriter

OPTIONS = {"cores": 1}
KEPT = "Unproved"


def run(program: Program, context: PassContext) -> None:
    """Split kernels over `cores` cores, at loops whose iterations are independent."""
    cores = int(str(program.attrs.pop(SPLIT, context.options["cores"])))
    if not 1 <= cores <= MOST_CORES:
        raise UsageError(f"cores is {cores}, must be in 1..{MOST_CORES}")
    main = program.main
    if cores == 1 or block_dim(main) > 1:
        return
    for op in (op for f in program.functions for op in f.ops()):
        if (is_block_idx(op) and program.functions == [main]) or is_fifo(op):
            context.diagnostics.note(KEPT, "the program says itself what its cores do", op.loc)
            return
    called = {op.attr("callee") for op in main.ops() if is_call(op)}
    mixed = next((op for op in main.ops() if is_tile_op(op.defn)), None) if called else None
    if mixed is not None:
        context.diagnostics.note(KEPT, f"@{main.name} stays on one core: it has tiles of its own, and calls functions", mixed.loc)
        return
    split = [f for f in program.functions if f.name in called or (f is main and not called)]
    for rw in context.rewriters(program):
        if isinstance(f := rw.block, Function) and f in split and BLOCK_DIM not in f.attrs:
            try:
                apart = _distinct(program, f)
                part = _Split(f, cores, apart)
                require(_proved(program, f, cores, apart), KEPT, "the order of its ops may depend on the first iteration")
                f.attrs[BLOCK_DIM] = str(part.build(rw))
            except Violation as kept:
                f.attrs[BLOCK_DIM] = "1"
                context.diagnostics.note(KEPT, f"@{f.name} stays on one core: {kept.message}", kept.loc or f.loc)
    used = {f.name: block_dim(f) for f in split}
    launched = max(used.values(), default=1)
    context.count("functions", sum(n > 1 for n in used.values()))
    for f in split:
        del f.attrs[BLOCK_DIM]
    if launched > 1:
        main.attrs[BLOCK_DIM] = str(launched)
        for rw in context.rewriters(program):
            if rw.block is main and called:
                _Entry(rw, program, used, launched).block(main, _Touched())


def _root(x: Operand) -> Value | None:
    """The memref parameter that a memref is a part of; None where it is not known, and for what is no memref."""
    view = view_of(x) if isinstance(x, Value) and isinstance(x.type, MemRefType) else None
    return view.root if view is not None else None


def _distinct(program: Program, function: Function) -> bool:
    """Whether the memrefs of a function are different ones in every call."""
    calls = (op for f in program.functions for op in f.ops() if is_call(op) and op.attr("callee") == function.name)
    roots = [[_root(x) for x in op.operands if isinstance(operand_type(x), MemRefType)] for op in calls]
    return all(None not in found and len(set(found)) == len(found) for found in roots)


def _proved(program: Program, function: Function, cores: int, distinct: bool) -> bool:
    """Whether the hazard check finds nothing new where a function that orders its ops itself is split; it checks a copy."""
    if not has_events(function) and not any(map(is_barrier, function.ops())):
        return True
    copy = clone(program)
    block = copy.functions[program.functions.index(function)]
    with Rewriter(block, copy.dialect, program=copy) as rw:
        _Split(block, cores, distinct).build(rw)
    counts = [Counter[str](), Counter[str]()]
    for codes, tried in zip(counts, (program, copy), strict=True):
        hazards.check(tried, found := Diagnostics(), target_of(tried, Options()))
        codes.update(d.code for d in found if d.severity is not Severity.NOTE)
    return counts[1] <= counts[0]


# A function


class _Split:
    """The loop of a function that is split. Raises Violation where there is none, with the reason."""

    def __init__(self, function: Function, cores: int, distinct: bool) -> None:
        self.function, self.cores = function, cores
        ops = list(function.ops())
        self.counters = {op.regions[0].params[0]: op for op in ops if is_for(op)}
        self.accesses = {op: access_of(op) for op in ops if touches_memory(op)}
        self.written = {a.root if a is not None else None for op, a in self.accesses.items() if not is_load(op)}
        call = next((op for op in ops if is_call(op)), None)
        require(call is None, KEPT, "it calls functions")
        require(distinct, KEPT, "it is called with parts of one memory")
        known = all(v in function.params for v in self.written)
        require(known, KEPT, "it writes to memory that a loop or branch chooses")
        require(not function.results, KEPT, "it returns values")
        require(bool(self.written), KEPT, "it stores nothing")
        reasons, choices = list[Violation](), list[Op]()
        for loop in self.nest():
            try:
                self.check(loop)
                choices.append(loop)
            except Violation as violation:
                violation.loc = loop.loc
                reasons.append(violation)
        if not choices:
            raise reasons[0] if reasons else Violation(KEPT, "its stores are not in one loop")
        self.loop = min(choices, key=self.longest)

    def longest(self, loop: Op) -> float:
        """The part of the iterations that the busiest core does."""
        trips = self.trips(loop)
        return self.share(trips) / trips if trips else 1 / self.cores

    def share(self, trips: int) -> int:
        """The most iterations of a core."""
        return -(-trips // self.cores)

    def trips(self, loop: Op) -> int | None:
        """The number of iterations; None where it is not known."""
        lower, upper, step = (constant(x) for x in loop.operands[:3])
        return None if lower is None or upper is None else max(0, -(-(upper - lower) // (step or 1)))

    def nest(self) -> Iterator[Op]:
        """The loops that have all stores, from the outermost."""
        block: Region = self.function
        while True:
            storing = [op for op in block.body if self.stores(op)]
            if len(storing) != 1 or not is_for(storing[0]):
                return
            yield storing[0]
            block = storing[0].regions[0]

    def stores(self, op: Op) -> bool:
        """Whether an op, or one in its blocks, writes to memory."""
        inner = (op, *(x for r in op.regions for x in r.ops()))
        return any(x in self.accesses and not is_load(x) for x in inner)

    def check(self, loop: Op) -> None:
        """Check that no iteration touches what another one writes. Raises Violation."""
        step, counter = constant(loop.operands[2]), loop.regions[0].params[0]
        require(not loop.results, KEPT, "its loop carries values from one iteration to the next")
        require(step is not None and step > 0 and counter.type is INDEX_TYPE, KEPT, "its loop counts by no known number")
        require(self.trips(loop) != 1, KEPT, "its loop has one iteration")
        assert step is not None
        inside = set(loop.regions[0].ops())
        for root in filter(None, self.written):
            touching = [(op, a) for op, a in self.accesses.items() if a is None or a.root is root]
            for op, a in touching:
                require(a is not None, KEPT, "it accesses memory that a loop or branch chooses")
                require(op in inside, KEPT, f"%{root.name} is written in a loop, and read before or behind it")
            windows = [a for _, a in touching if a is not None]
            apart = any(self.apart(windows, d, counter, step, inside) for d in range(len(windows[0].starts)))
            require(apart, KEPT, f"what iterations write to %{root.name} may overlap")

    def apart(self, windows: Sequence[Access], d: int, counter: Value, step: int, inside: set[Op]) -> bool:
        """Whether the windows of different iterations are apart in dimension `d`: they move by at least their range."""
        params = {*self.function.params}
        factors, fixed, ends = set[int](), set[frozenset[tuple[Value, int]]](), list[tuple[int, int]]()
        for a in windows:
            size, stride = a.most[d], a.steps[d]
            if size is None or stride is None or stride < 1:
                return False
            low = high = a.starts[d].const
            rest, factor = list[tuple[Value, int]](), 0
            for v, k in parts(a.starts[d]):
                if v is counter:
                    factor = k
                elif v in self.counters and (self.counters[v] in inside or self.encloses(v, counter)):
                    if (sides := self.range(v)) is None:
                        return False
                    low, high = low + min(k * n for n in sides), high + max(k * n for n in sides)
                elif v.op not in inside and _sources(v) <= params:
                    rest.append((v, k))
                else:
                    return False
            factors.add(factor)
            fixed.add(frozenset(rest))
            ends.append((low, high + (size - 1) * stride))
        if len(factors) != 1 or len(fixed) != 1 or 0 in factors:
            return False
        return max(high for _, high in ends) - min(low for low, _ in ends) < abs(factors.pop()) * step

    def encloses(self, v: Value, counter: Value) -> bool:
        """Whether the loop of the counter `v` is around that of `counter`."""
        return self.counters[counter] in set(self.counters[v].regions[0].ops())

    def range(self, counter: Value) -> tuple[int, int] | None:
        """The first and the last value of a counter, where they are known."""
        lower, upper, step = (constant(x) for x in self.counters[counter].operands[:3])
        if lower is None or upper is None or not step or step < 0:
            return None
        return lower, max(lower, lower + (upper - lower - 1) // step * step)

    def build(self, rw: Rewriter) -> int:
        """Let the loop count the part of a core; the number of cores with a part."""
        loop, counter = self.loop, self.loop.regions[0].params[0]
        top = next(op for op in self.function.body if op is loop or loop in {x for r in op.regions for x in r.ops()})
        lower, upper, step = loop.operands[:3]
        width, trips = constant(step) or 1, self.trips(loop)
        at = top if trips is not None else loop

        def build(short: str, *given: Operand) -> Value:
            return rw.build(at, short, *(self.value(rw, at, x) for x in given))

        block = rw.build(top, "index_cast", rw.build(top, "block_idx", to=scalar(SI64)), to=INDEX_TYPE)
        if trips is not None:
            span: Operand = integer(self.share(trips) * width, INDEX)
            used, even = -(-trips // self.share(trips)), trips % self.share(trips) == 0
        else:
            used, even = self.cores, False
            many = build("ceildivsi", build("subi", upper, lower), integer(width, INDEX))
            span = build("muli", build("ceildivsi", many, integer(self.cores, INDEX)), integer(width, INDEX))
        first = build("muli", block, span)
        count = span if even else build("minsi", build("subi", build("subi", upper, lower), first), span)
        start = first if constant(lower) == 0 else build("addi", lower, first)
        now = rw.build(loop.regions[0].body[0], "addi", start, counter)
        rw.replace_all_uses(counter, now)
        assert now.op is not None
        rw.set_operands(now.op, [start, counter])
        rw.set_operands(loop, [integer(0, INDEX), count, step, *loop.operands[3:]])
        return used

    def value(self, rw: Rewriter, at: Op, x: Operand) -> Value:
        """An operand as a value."""
        return rw.build(at, "constant", value=x) if isinstance(x, Literal) else x  # type: ignore[return-value]


def _sources(v: Value) -> set[Value]:
    """The values without an op from which a value is computed."""
    found, todo, seen = set[Value](), [v], set[Value]()
    while todo:
        x = todo.pop()
        if x not in seen:
            seen.add(x)
            if x.op is None:
                found.add(x)
            else:
                todo += x.op.values()
    return found


# The entry


@dataclass(slots=True)
class _Touched:
    """What the cores have touched since they met. `unknown` where that is not known."""

    read: set[Value] = field(default_factory=set)
    written: set[Value] = field(default_factory=set)
    unknown: bool = False


class _Entry:
    """The entry of a program: its calls run on the cores with a part, and cores meet between calls that depend on each other."""

    def __init__(self, rw: Rewriter, program: Program, used: dict[str, int], cores: int) -> None:
        self.rw, self.program, self.used, self.cores = rw, program, used, cores
        self.block_index: Value | None = None

    def block(self, block: Region, before: _Touched) -> _Touched:
        """Rewrite the calls of a block."""
        for op in list(block.body):
            if is_call(op):
                before = self.call(op, before)
            elif any(is_call(x) for r in op.regions for x in r.ops()):
                for r in op.regions:
                    self.block(r, _Touched(unknown=True))
                before = _Touched(unknown=True)
        return before

    def call(self, op: Op, before: _Touched) -> _Touched:
        """Rewrite a call; what is touched behind it."""
        function = self.program.function(op.attr("callee"))
        assert function is not None
        ours = dict(zip(function.params, map(_root, op.operands), strict=True))
        accesses = {x: access_of(x) for x in function.ops() if touches_memory(x)}
        roots = {p: v for p, v in ours.items() if isinstance(p.type, MemRefType)}
        sure = None not in roots.values() and all(a is not None and a.root in roots for a in accesses.values())
        sure = sure and not any(is_call(x) for x in function.ops())
        touched = [(ours.get(a.root), is_load(x)) for x, a in accesses.items() if a is not None]
        read, written = ({v for v, loads in touched if v is not None and loads is which} for which in (True, False))
        clash = before.unknown or not sure or before.written & (read | written) or before.read & written
        if clash and (before.unknown or before.read or before.written):
            self.rw.insert_before(op, create(OPS["pto.sync.op"], (), {"opcode": SYNCALL}, loc=op.loc))
            before = _Touched()
        if self.used[function.name] < self.cores:
            self.guard(op, self.used[function.name])
        return _Touched(before.read | read, before.written | written, before.unknown or not sure)

    def guard(self, op: Op, used: int) -> None:
        """Let the first `used` cores do a call."""
        rw = self.rw
        if self.block_index is None:
            first = rw.block.body[0]
            self.block_index = rw.build(first, "index_cast", rw.build(first, "block_idx", to=scalar(SI64)), to=INDEX_TYPE)
        limit = rw.build(op, "constant", value=integer(used, INDEX))
        condition = rw.build(op, "cmpi", self.block_index, limit, predicate="slt")
        then, otherwise = (Region(name, isolated=False) for name in ("then", "otherwise"))
        branch = create(OPS["pto.scf.if"], [condition], {}, regions=[then, otherwise], loc=op.loc)
        rw.insert_before(op, branch)
        rw.append(then, create(op.defn, op.defn.split(op.attrs, op.operands), op.defn.named(op.attrs), loc=op.loc))
        rw.erase(op)
