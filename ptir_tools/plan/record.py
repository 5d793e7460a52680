"""The plan of a program: live ranges placed in arenas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Function, Region
from ptir_tools.core.lazy import late, lazy
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.symbols import mentioned
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.violations import Violation
from ptir_tools.plan.liveness import Buffer, Leaf, Liveness, Unit, analyze, workspace
from ptir_tools.plan.placement import Interval, peak, place, timeline
from ptir_tools.plan.search import kernel

if TYPE_CHECKING:
    from ptir_tools.plan import exact, spaces, validate
    from ptir_tools.plan import mesh as meshes
    from ptir_tools.plan.exact import Budget, Watch
    from ptir_tools.plan.mesh import Mesh, Sharding, Spec
else:
    exact = lazy("ptir_tools.plan.exact")
    meshes = lazy("ptir_tools.plan.mesh")
    spaces = lazy("ptir_tools.plan.spaces")
    validate = lazy("ptir_tools.plan.validate")

_picture: Callable[[Plan], Iterator[str]] = late("ptir_tools.plan.svg", "to_svg")
ALIGN = 64  # bytes: a cache line, and the alignment of vector loads
ALGORITHMS = ("auto", "greedy", "quick", "exact")
_QUICK = 8000  # steps of a search: some ten milliseconds
_AUTO = 1_500_000  # steps that take some seconds; steps are counted so that a plan is the same on every machine


Partition = Callable[[Region], Sequence[Unit]]


@dataclass(slots=True, frozen=True)
class Method:
    """The method that finds offsets.

    `greedy` tries several orders. `exact` searches until the peak is proved optimal, is at most `limit`, or `seconds` of CPU
    have passed for an arena. `auto` searches for a number of steps that takes some seconds, `quick` for some milliseconds,
    both only with the kernel. `watch` reports the progress of a search.
    """

    algorithm: str = "auto"
    seconds: float = 10.0
    limit: int = 0
    watch: Watch | None = None

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise UsageError(f"algorithm `{self.algorithm}` is none of {', '.join(ALGORITHMS)}")

    def budget(self, capacity: int | None) -> Budget | None:
        """The budget of a search; None for no search. It also ends at a placement that fits `capacity`."""
        if self.algorithm == "greedy" or (self.algorithm != "exact" and kernel() is None):
            return None
        if self.algorithm == "quick":
            return exact.Budget(_QUICK)
        target = self.limit or capacity or 0
        steps, seconds = (1 << 62, self.seconds) if self.algorithm == "exact" else (_AUTO, None)
        return exact.Budget(steps, seconds, target, self.watch)


@dataclass(slots=True, eq=False)
class BlockPlan:
    """The buffers of one function or region.

    `peak` is the size of its arena, `lower_bound` the most bytes live at once. In a region, results are placed in the arena,
    too; its parameters have storage of its op. On a mesh it is the plan of one device; `cuts` has the shardings of buffers.
    `capacity` is the size of the target's space; `proved`: no placement of these live ranges has a lower peak.
    """

    name: str
    live: Liveness
    peak: int = 0
    lower_bound: int = 0
    inner: bool = False
    capacity: int | None = None
    proved: bool = False
    mesh: Mesh | None = None
    cuts: Mapping[Buffer, Spec] = field(default_factory=dict)

    @property
    def buffers(self) -> list[Buffer]:
        """The buffers, in order of definition."""
        return self.live.buffers

    @property
    def ratio(self) -> float:
        """`peak` divided by `lower_bound`; 1 is optimal."""
        return self.peak / self.lower_bound if self.lower_bound else 1.0

    def placed(self) -> Iterator[Buffer]:
        """The buffers that own a part of the arena."""
        return (b for b in self.buffers if b.parent is None and _in_arena(b, self.inner))

    def nbytes(self, usage: str) -> int:
        """The bytes of storage with this usage (parameter, constant, result, temporary, workspace)."""
        return sum(b.nbytes for b in self.buffers if b.parent is None and b.usage == usage)

    def alive_at_peak(self) -> list[Buffer]:
        """The buffers that are live at the peak of the arena, the biggest first."""
        placed, grown = list(self.placed()), Counter[int]()
        for b in placed:
            grown[b.start] += b.nbytes
            grown[b.end + 1] -= b.nbytes
        steps = sorted(grown)
        sums = list(accumulate(map(grown.__getitem__, steps)))
        at = steps[sums.index(max(sums))] if steps else 0
        return sorted((b for b in placed if b.start <= at <= b.end), key=lambda b: -b.nbytes)

    @property
    def total(self) -> int:
        """Bytes in and out of the arena. A region's results are in it."""
        outside = ("parameter", "constant") if self.inner else ("parameter", "constant", "result")
        return self.peak + sum(map(self.nbytes, outside))

    def faults(self, align: int = ALIGN) -> list[str]:
        """The errors that an independent sweep finds in the placement."""
        placed = list(self.placed())
        offsets = [-1 if b.offset is None else b.offset for b in placed]
        return validate.conflicts(intervals(placed, 1), offsets, align=align, limit=self.peak)


@dataclass(slots=True, eq=False)
class Plan:
    """The plans of a program's functions and of the regions that they reach."""

    functions: dict[str, BlockPlan] = field(default_factory=dict)
    regions: dict[Region, BlockPlan] = field(default_factory=dict)
    align: int = ALIGN
    method: Method = field(default_factory=Method)
    mesh: Mesh | None = None

    def __repr__(self) -> str:
        return f"<plan: {', '.join(f'{name} {block.peak} bytes' for name, block in self.functions.items())}>"

    def _repr_html_(self) -> str:
        """The picture of the plan, for a notebook."""
        return "".join(_picture(self))


def plan(program: Program, *, align: int = ALIGN, method: Method | str = "auto", sharding: Sharding | None = None) -> Plan:
    """Plan every function of `program`; `method` may be the name of an algorithm.

    With `sharding` it is the plan of one device of the mesh: the entry's values are cut accordingly, and other values as
    `mesh.spread` derives. Raises Violation("UnboundSymbol") if an extent is symbolic, UsageError for an unknown algorithm,
    Rejected for an invalid sharding.
    """
    result = Plan(align=align, method=Method(method) if isinstance(method, str) else method)
    if sharding is not None:
        return _plan_device(program, sharding, result)
    if program.dialect.arenas is not None:
        for name, live, capacity in spaces.arenas(program.dialect.arenas(program)):
            result.functions[name] = _placed(BlockPlan(name, live, capacity=capacity), result)
        return result
    for f in program.functions:
        result.functions[f.name] = plan_block(f, result)
    return result


def _plan_device(program: Program, sharding: Sharding, result: Plan) -> Plan:
    """The plan of one device. Raises Violation, UsageError and Rejected as `plan`."""
    if program.dialect.arenas is not None:
        raise UsageError(f"a {program.dialect.name} program runs on one core: it has no mesh")
    diagnostics = Diagnostics(program.source)
    for f in program.functions:
        require_static(f)
    wanted = meshes.placed(program, sharding, diagnostics)
    diagnostics.raise_if_errors()
    result.mesh = sharding.mesh
    for f in program.functions:
        cuts = meshes.spread(f, sharding.mesh, wanted) if f is program.main else {}
        result.functions[f.name] = plan_block(f, result, cuts=cuts)
    return result


def plan_intervals(live: Liveness, *, align: int = 1, method: Method | None = None) -> Plan:
    """Plan buffers without a program, as one block without a name."""
    result = Plan(align=align, method=method or Method())
    result.functions[""] = _placed(BlockPlan("", live), result)
    return result


def plan_block(
    block: Region, into: Plan, partition: Partition | None = None, cuts: Mapping[Leaf, Spec] | None = None
) -> BlockPlan:
    """Plan one block and the regions that its ops run; those go to `into.regions`. `partition` divides a body into steps,
    `cuts` has the shardings of leaves. Raises Violation("UnboundSymbol") if an extent is symbolic."""
    require_static(block)
    for r in _regions(block):
        if r not in into.regions:
            into.regions[r] = plan_block(r, into, partition)
    cut = {leaf: spec for leaf, spec in (cuts or {}).items() if any(spec)}
    parts = {leaf: into.mesh.parts([a for axes in spec for a in axes]) for leaf, spec in cut.items()} if into.mesh else {}
    peaks = {r: into.regions[r].peak for r in _regions(block)}
    steps = partition(block) if partition is not None else None
    live = analyze(block, steps, {op: workspace(op, peaks, into.align) for op in block.body if op.regions}, parts)
    result = BlockPlan(block.name, live, inner=not isinstance(block, Function), mesh=into.mesh)
    result.cuts = {live.places[leaf]: spec for leaf, spec in cut.items() if leaf in live.places}
    return _placed(result, into)


def _placed(result: BlockPlan, of: Plan) -> BlockPlan:
    """`result`, with an offset for every buffer."""
    placed = list(result.placed())
    wanted = intervals(placed, of.align)
    along = timeline(wanted)
    offsets, bound = place(wanted, along), along.bound
    if peak(wanted, offsets) > bound and (budget := of.method.budget(result.capacity)) is not None:
        offsets, bound = exact.improve(wanted, offsets, budget, along)
    for b, at in zip(placed, offsets, strict=True):
        b.offset = at
    for b in result.buffers:
        b.offset = b.root.offset
    result.peak, result.lower_bound = peak(wanted, offsets), along.bound
    result.proved = result.peak <= max(bound, result.lower_bound)
    return result


def intervals(buffers: Iterable[Buffer], align: int) -> list[Interval]:
    """The live ranges of `buffers`, half-open, sizes rounded up to `align`."""
    return [Interval(b.start, b.end + 1, -(-b.nbytes // align) * align) for b in buffers]


def _in_arena(b: Buffer, inner: bool) -> bool:
    return b.usage in ("temporary", "workspace") or (inner and b.usage == "result")


def _regions(block: Region) -> Iterator[Region]:
    return (r for op in block.body for r in op.regions)


def require_static(block: Region) -> None:
    """Raise Violation("UnboundSymbol") when an extent in `block` is symbolic."""
    types = dict.fromkeys([*(p.type for p in block.params), *(v.type for op in block.body for v in op.results)])
    if names := dict.fromkeys(s.name for t in types for s in mentioned(t)):
        raise Violation("UnboundSymbol", f"no value for {', '.join(names)}", help="give it with --bind NAME=INT")
