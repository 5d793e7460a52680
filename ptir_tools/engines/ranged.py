"""Programs whose extents change from call to call, such as a language model with a growing cache.

Passes, plan and memory are made once for a range of extents. A call builds the steps of those units again whose extents changed.

Every extent is a linear function of the symbols that change, and these grow in step. The choices of the plan (what is fused,
what shares memory) compare extents with each other and with numbers. If they are the same for two values of the symbols, extents
that are equal for both are equal for all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from sys import getrefcount

from ptir_tools.core import symbols
from ptir_tools.core.arrays import Array, copied, numpy_dtype
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Program, clone
from ptir_tools.core.evaluate import Context
from ptir_tools.core.expressions import Quotient
from ptir_tools.core.ir import Op, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.limits import require_memory
from ptir_tools.core.strides import dense_strides, is_dense
from ptir_tools.core.typed import TypeVar, cast
from ptir_tools.core.types import Sym, nest
from ptir_tools.core.verify import legalized
from ptir_tools.core.violations import Violation
from ptir_tools.engines import entered
from ptir_tools.engines import signature as ports
from ptir_tools.engines.choose import optimized, with_steps, without_dead
from ptir_tools.engines.numpy import Bound, Executable, owner
from ptir_tools.engines.numpy.frame import aligned
from ptir_tools.engines.options import RunOptions
from ptir_tools.plan import BlockPlan
from ptir_tools.plan.liveness import Buffer, leaves

FARTHEST = 1 << 12  # how far the symbols may grow before the program is prepared again
ROOM = 1 << 26  # bytes of an arena that are always granted

Numbers = dict[str, int]
T = TypeVar("T")


class Symbolic:
    """A program whose symbols get their numbers from the inputs of each call."""

    def __init__(self, program: Program, options: RunOptions) -> None:
        self.program = entered(clone(legalized(program)), ports.entry(program, options.function).name)
        self.signature = ports.signature(self.program)
        self.known = {**self.program.attrs.get("dims", {}), **options.bindings}

    def numbers(self, shapes: Sequence[tuple[int, ...]]) -> Numbers:
        """The numbers of the symbols that these shapes of inputs and derived extents determine. Raises Violation for a clash."""
        result = dict(self.known)
        code = self.program.dialect.codes.extent
        ports.bind_shapes(self.signature, shapes, result, code)
        symbols.derive(self.program.main, result, code)
        return result


class Types:
    """The types and attributes of a program that mention symbols. `put` replaces them, in place, each time from the symbols."""

    def __init__(self, program: Program) -> None:
        blocks = list(program.blocks())
        values = [v for b in blocks for v in (*b.params, *(v for op in b.body for v in op.results))]
        self.values = {v: v.type for v in values if _mentions(v.type)}
        self.attrs = {op: op.attrs for b in blocks for op in b.body if _mentions(op.attrs)}
        self.results = {b: b.result_types for b in blocks if _mentions(tuple(b.result_types))}

    def extents(self) -> set[Sym]:
        """All extents that are symbols or expressions."""
        found = [*self.values.values(), *self.attrs.values(), *(tuple(t) for t in self.results.values())]
        return {s for x in found for s in symbols.symbolic(x)}

    def put(self, numbers: Numbers) -> None:
        """Give every symbol its number. Raises Violation for an extent that would be negative."""
        made: dict[object, object] = {}

        def found(x: T) -> T:
            if x not in made:
                made[x] = symbols.substitute(x, lookup)
            return cast("T", made[x])

        lookup = symbols.numbered(numbers)
        for v, t in self.values.items():
            v.type = found(t)
        for op, attrs in self.attrs.items():
            op.attrs = symbols.substitute(attrs, lookup)
        for b, ts in self.results.items():
            b.result_types = [found(t) for t in ts]

    def are_positive(self, numbers: Numbers) -> bool:
        """Whether these numbers make no extent 0."""
        lookup = symbols.numbered(numbers)
        types = [t for v in self.values.values() for _, t in leaves(symbols.substitute(v, lookup))]
        return all(t.is_static and t.count for t in types)

    def reach(self, op: Op) -> bool:
        """Whether the types, the attributes or the regions of `op` mention a symbol."""
        if op in self.attrs or any(v in self.values for v in (*op.values(), *op.results)):
            return True
        return any(r in self.results or any(map(self.reach, r.body)) for r in op.regions)


def _mentions(x: object) -> bool:
    return any(True for _ in symbols.symbolic(x))


def _is_linear(extent: Sym, free: Collection[str]) -> bool:
    """Whether an extent is a linear function of the symbols in `free`, and mentions no other."""
    if extent.poly is None:
        return extent.name in free
    return all(len(m) <= 1 and not any(isinstance(a, Quotient) for a in m) for m, _ in extent.poly.monomials) and all(
        name in free for name in extent.poly.names()
    )


class Ranged:
    """A program prepared for a range of extents. A call builds only the steps that depend on them. Results that do belong to the
    caller; their memory is used again when the caller has freed it."""

    def __init__(
        self, program: Program, types: Types, fixed: Numbers, first: Numbers, last: Numbers, executable: Executable
    ) -> None:
        self.types, self.fixed, self.first, self.last, self.executable = types, fixed, first, last, executable
        plans = [executable.own, *executable.plan.regions.values()]
        self.buffers = [(leaf, b) for p in plans for leaf, b in p.live.places.items() if leaf[0] in types.values]
        self.room = {b: b.nbytes for p in plans for b in p.buffers if b.parent is None}
        self.values = {v for p in plans for v in _placed_with(p, types)}  # values whose arrays change
        units = executable.target.partition(program.main)
        self.units = [at for at, unit in enumerate(units) if any(map(self.reaches, unit.computed))]
        self.changed = {op for at in self.units for op in units[at].computed}
        self.moves = [p in types.values for p in program.main.params for _ in leaves(p.type)]
        self.blocks: dict[Buffer, list[tuple[Array, int]]] = {}  # memory of results, with its reference count when it is free
        self.bound = self.widest(program)

    def reaches(self, op: Op) -> bool:
        """Whether the steps of `op` depend on extents that change."""
        return self.types.reach(op) or any(v in self.values for v in (*op.values(), *op.results))

    def widest(self, program: Program) -> Bound:
        """All steps, for the farthest extents, so that scratch memory is enough for all."""
        arrays = [np.empty(t.static_shape, numpy_dtype(t.dtype)) for p in program.main.params for _, t in leaves(p.type)]
        self.given = arrays
        rest = iter(arrays)
        arguments = [nest(p.type, rest) for p in program.main.params]
        bound = self.executable.bind(arguments)
        return self.executable.bind(arguments) if bound.shared.first else bound  # now the size of scratch memory is known

    def fits(self, numbers: Numbers) -> bool:
        """Whether the range has these numbers: the symbols that change have all grown by one number, and the others have not."""
        if any(numbers[name] != n for name, n in self.fixed.items()):
            return False
        grown = {numbers[name] - n for name, n in self.first.items()}
        return len(grown) == 1 and grown.pop() >= 0 and all(numbers[name] <= n for name, n in self.last.items())

    def ready(self, given: Sequence[Array], numbers: Numbers) -> bool:
        """Build the steps for these inputs, whose numbers fit. False if the memory is not enough."""
        self.types.put(numbers)
        for (value, path), b in self.buffers:
            b.type = next(t for at, t in leaves(value.type) if at == path)
            if b.parent is None and b.usage != "constant":
                b.nbytes, b.strides = b.type.nbytes, dense_strides(b.type.static_shape)
                if b.nbytes > self.room[b]:
                    return False
        for key in [k for k in self.executable.kept if isinstance(k, tuple) and k[0] in self.changed]:
            del self.executable.kept[key]
        for own, a, moves in zip(self.given, given, self.moves, strict=True):
            if not moves:
                own[...] = a
        self.given = [a if moves else own for own, a, moves in zip(self.given, given, self.moves, strict=True)]
        self.bound.forget(self.units, self.values)
        self.bound.refit(self.units, self.given, self.handed())
        return not self.bound.shared.short

    def handed(self) -> dict[Buffer, Array]:
        """Memory that no caller has, for the results whose extents change."""
        result: dict[Buffer, Array] = {}
        for _, b in self.buffers:
            if b.parent is not None or b.usage != "result" or b.offset is not None:
                continue
            blocks = self.blocks.setdefault(b, [])
            free = next((x for x, count in blocks if getrefcount(owner(x)) == count), None)
            if free is None:
                free = aligned(self.room[b])
                blocks.append((free, getrefcount(owner(free))))
            result[b] = free[: b.nbytes]
        return result

    def __call__(self, context: Context) -> list[Array]:
        """The results; those that the next call would overwrite are copied."""
        results = self.bound(context)
        lent = {id(owner(x)) for blocks in self.blocks.values() for x, _ in blocks}
        return [a.view() if id(owner(a)) in lent else copied(a) for a in results]


def ranged(symbolic: Symbolic, before: Numbers, now: Numbers, options: RunOptions) -> Ranged | None:
    """The program, prepared for `now` and other numbers of the symbols that have changed since `before`. None if it has to be
    prepared for each: extents are not linear, there are random ops or convolutions over such extents, or an extent is 0."""
    free = {name for name, n in now.items() if before.get(name) != n}
    if not free or min(now[name] for name in free) < 1 or not _is_valid(symbolic.program, now):
        return None
    program = clone(symbolic.program)
    fixed = {name: n for name, n in now.items() if name not in free}
    symbols.bind(program, fixed)
    program = optimized(without_dead(program, options), options, Diagnostics(program.source))
    types = Types(program)
    if program.streams() or not all(_is_linear(extent, free) for extent in types.extents()):
        return None
    if any(_is_window(op) and types.reach(op) for b in program.blocks() for op in b.body):
        return None
    near = _planned(program, types, now, options)
    first = _grown(now, free, 1 - min(now[name] for name in free))
    if not _is_valid(symbolic.program, first) or not types.are_positive(first):
        first = now
    reach = FARTHEST
    while reach:
        far = _grown(now, free, reach)
        if _is_valid(symbolic.program, far):
            made = _planned(program, types, far, options)
            same = _form(made) in (_form(near), _form(_planned(program, types, _grown(now, free, 1), options)))
            if same and made.memory <= max(2 * near.memory, near.memory + ROOM) and _is_dense(made, types):
                types.put(far)
                require_memory(made.memory)
                return Ranged(
                    program, types, fixed, {name: first[name] for name in free}, {name: far[name] for name in free}, made
                )
        reach //= 2
    return None


def _placed_with(plan: BlockPlan, types: Types) -> Iterator[Value]:
    """The values whose extents change, and the views of their memory."""
    moving = {b for (value, _), b in plan.live.places.items() if value in types.values}
    for (value, _), b in plan.live.places.items():
        above: Buffer | None = b
        while above is not None and above not in moving:
            above = above.parent
        if above is not None:
            yield value


def _grown(numbers: Numbers, free: Collection[str], by: int) -> Numbers:
    return {name: n + by if name in free else n for name, n in numbers.items()}


def _planned(program: Program, types: Types, numbers: Numbers, options: RunOptions) -> Executable:
    types.put(numbers)
    return with_steps(program, options)


def _is_valid(program: Program, numbers: Numbers) -> bool:
    """Whether every type rule holds for these numbers."""
    try:
        symbols.specialize(clone(program), dict(numbers))
    except Violation:
        return False
    return True


def _is_window(op: Op) -> bool:
    return op.defn.inplace is not None and op.defn.inplace.form == "patches"


def _form(executable: Executable) -> list[object]:
    """What the plan decided: the units, and which buffers share memory."""
    result: list[object] = []
    for region, plan in ((executable.function, executable.own), *executable.plan.regions.items()):
        result += [(tuple(unit), unit.again, type(getattr(unit, "found", None))) for unit in executable.target.partition(region)]
        number = {b: i for i, b in enumerate(plan.buffers)}
        result += [(b.alias, b.usage, b.start, b.end, b.parent and number[b.parent]) for b in plan.buffers]
    return result


def _is_dense(executable: Executable, types: Types) -> bool:
    """Whether all memory of changing extents is row-major."""
    places = (leaf for p in (executable.own, *executable.plan.regions.values()) for leaf in p.live.places.items())
    own = (b for (value, _), b in places if value in types.values and b.parent is None)
    return all(b.type is not None and is_dense(b.type.static_shape, b.strides) for b in own)
