"""The activation frame of a block: arrays, views and steps are built once; a run calls the steps in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from math import prod

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import DType
from ptir_tools.core.evaluate import Context, Data
from ptir_tools.core.ir import Element, Function, Literal, Op, Operand, Region, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.strides import dense_strides, is_dense
from ptir_tools.core.types import TensorType, flatten, nest
from ptir_tools.core.violations import Violation
from ptir_tools.engines.numpy.constants import Operands
from ptir_tools.engines.numpy.movement import strided_view
from ptir_tools.engines.numpy.poison import Poison
from ptir_tools.engines.numpy.steps import Fused, Linked, Look, Running, Step, Target, unlinked
from ptir_tools.plan import BlockPlan, Plan
from ptir_tools.plan.liveness import Buffer, Unit, leaves, operand_leaves, own_parameters
from ptir_tools.plan.record import ALIGN


class Shared:
    """The state that all frames of one run share: the context, the scratch memory, converted constants."""

    def __init__(
        self, plan: Plan, target: Target, kept: dict[Hashable, Array], scratch: int, poison: Poison | None = None
    ) -> None:
        self.plan = plan
        self.target = target
        self.kept = kept
        self.context = Context()
        self.poison = poison
        self.scratch = self.fresh(scratch)
        self.wanted = 0  # bytes of scratch of the widest step
        self.turn = 0  # the number of the step that is being built
        self.first = 0  # the first step that needed more scratch than available
        self.short = False  # whether another step did, too
        self.pages: dict[int, Array] = {}  # the scratch arrays of that step, by offset

    def fresh(self, size: int) -> Array:
        """New bytes, aligned, with poison if there is any."""
        raw = aligned(size)
        return raw if self.poison is None else self.poison.fill(raw)

    def restart(self) -> None:
        """Prepare to build the steps again in the same memory."""
        self.turn = self.first = 0


PAGE = 4096
LARGE = 1 << 16  # bytes of arrays whose offset in a page matters


def aligned(size: int) -> Array:
    """Bytes aligned to a cache line. A large block begins in the middle of a page. A load stalls on an earlier store with a
    similar page offset (4K aliasing), and a caller's large arrays begin near the start of a page."""
    middle = PAGE // 2 if size >= LARGE else 0
    raw = np.empty(size + (PAGE if middle else ALIGN), np.uint8)
    start = (middle - raw.ctypes.data) % (PAGE if middle else ALIGN)
    return raw[start:][:size]


class Frame:
    """One block with its arrays. `parameters` and `results` are leaves, in order. Parameters are passed in. The caller fills
    those of a region before each run, which may overwrite them."""

    def __init__(self, block: Region, own: BlockPlan, arena: Array, shared: Shared, given: Sequence[Array]) -> None:
        self.block = block
        self.own = own
        self.arena = arena
        self.shared = shared
        self.places: dict[tuple[Value, tuple[int, ...]], Array] = {}
        self.handed: dict[Buffer, Array] = {}
        self.used = 0
        self.lent: list[Array] = []  # the scratch of the step that is being built
        self.parameters = self.bind_parameters(given)
        self.groups: list[Unit] = shared.target.partition(block)
        self.parts = [self.part(at) for at in range(len(self.groups))]
        self.gather()

    def part(self, at: int) -> list[Step]:
        """The steps of a unit, by its number."""
        self.used, self.lent = 0, []
        self.shared.turn += 1
        steps = self.build(self.groups[at])
        poison = self.shared.poison
        return steps if poison is None else [*steps, *poison.over([*self.lent, *self.dying(at + 1)])]

    def gather(self) -> None:
        """Put the steps of all units together."""
        self.linked: Linked | None = None  # the linked steps, made at the first run
        self.quiet = False  # whether these run without Python
        poison = self.shared.poison
        self.steps: list[Step] = [] if poison is None else poison.over([self.arena, *self.handed.values()])
        self.spans: list[tuple[Op, int]] = []  # the last op of each unit, with the end of its steps
        for unit, part in zip(self.groups, self.parts, strict=True):
            self.steps += part
            self.spans.append((unit[-1], len(self.steps)))
        self.results = [a for x in self.block.results for a in flatten(self.data(x))]

    def forget(self, units: Sequence[int], values: Container[Value]) -> None:
        """Refer no more to the arrays of `values`, which the steps of `units` use."""
        self.given.clear()
        self.parameters, self.results, self.steps, self.linked = [], [], [], None
        for at in units:
            self.parts[at] = []
        for leaf in [leaf for leaf in self.places if leaf[0] in values]:
            del self.places[leaf]

    def refit(self, units: Sequence[int], given: Sequence[Array], handed: Mapping[Buffer, Array]) -> None:
        """Build some units again, on other parameters and other memory of results. The types that they read have new extents."""
        self.parameters = self.bind_parameters(given)
        self.handed.update(handed)
        for at in units:
            self.parts[at] = self.part(at)
        self.gather()

    @property
    def context(self) -> Context:
        """The context of the current run."""
        return self.shared.context

    @property
    def running(self) -> Running:
        """The context that steps may keep."""
        return self.shared

    @property
    def threads(self) -> int:
        """The number of threads that a step may use."""
        return self.shared.target.threads

    def bind_parameters(self, given: Sequence[Array]) -> list[Array]:
        """The parameters' leaves. Those of a function are only read."""
        keys = [(p, path) for p in self.block.params for path, _ in leaves(p.type)]
        self.places.update(zip(keys, given, strict=True))
        self.given = {self.own.live.places[key]: x for key, x in zip(keys, given, strict=True)}
        return list(given)

    def dying(self, at: int) -> list[Array]:
        """The memory of this frame that nothing reads after step `at`."""
        found: list[Array] = []
        for b in self.own.live.buffers:
            if b.root is not b or b.end != at or not b.nbytes:
                continue
            if b.usage == "parameter" and not isinstance(self.block, Function):
                found.append(self.given[b])
            elif b.usage in ("temporary", "workspace") and b.offset is not None:
                found.append(self.arena[b.offset :][: -(-b.nbytes // ALIGN) * ALIGN])
        return found

    def build(self, unit: Unit) -> list[Step]:
        """The steps of a unit."""
        if not unit.is_single:
            assert isinstance(unit, Fused)
            return self.build_fused(unit)
        (op,) = unit
        outs = [key for v in op.results for key in operand_leaves(v)]
        buffers = [self.own.live.places[key] for key in outs]
        if buffers and buffers[0].root.usage == "constant":
            return []  # its readers compute the view
        if buffers and buffers[0].alias in ("identity", "view"):
            self.places[outs[0]] = strided_view(op, self.data(op.operands[0]), _static(buffers[0]))
            return []
        ins = Operands(op, self.data) if _is_product(op) else [self.data(x) for x in op.operands]
        results = [self.allocate(b) for b in buffers]
        self.places.update(zip(outs, results, strict=True))
        return self.shared.target.builder(op)(op, ins, results, self)

    def build_fused(self, unit: Fused) -> list[Step]:
        """The steps of several fused ops. Only values that other steps use have an array."""
        results: dict[Value, Array] = {}
        for op in unit:
            if (b := self.own.live.places.get((op.result, ()))) is None:
                continue
            if b.root.usage == "constant":
                continue
            if b.alias in ("identity", "view"):
                self.places[op.result, ()] = strided_view(op, self.data(op.operands[0]), _static(b))
            else:
                self.places[op.result, ()] = results[op.result] = self.allocate(b)
        return unit.found.steps(self.reader(unit), results, self) if results else []

    def reader(self, unit: Unit) -> Look:
        """The data of the operands that the plan keeps for `unit`. Others may be gone when it runs."""
        declared = {*unit.reads}

        def look(x: Operand) -> Data:
            if x not in declared:
                raise AssertionError(f"the step of {unit[-1]} reads {x}, which is none of its operands")
            return self.data(x)

        return look

    def kept(self, key: Hashable, make: Callable[[], Array]) -> Array:
        """The result of `make`, which depends only on constants and on `key`, cached for the program."""
        if (result := self.shared.kept.get(key)) is None:
            self.shared.kept[key] = result = make()
        return result

    def data(self, x: Operand) -> Data:
        """The data of an operand: an array, or nested tuples of arrays."""
        if isinstance(x, Literal):
            return arrays.from_literal(x)
        entry = iter([a if (a := self.places.get(leaf)) is not None else self.constant(leaf[0]) for leaf in operand_leaves(x)])
        return nest(x.value.type.elements[x.index] if isinstance(x, Element) else x.type, entry)  # type: ignore[attr-defined]

    def constant(self, v: Value) -> Array:
        """The array of a constant, or of a view of one. Only its readers keep the array, so that its bytes can be freed."""
        op = v.op
        assert op is not None
        if not op.defn.is_constant:
            return strided_view(op, self.data(op.operands[0]), _static(self.own.live.places[v, ()]))
        literal = op.attr("value")
        if arrays.is_as_stored(literal.type.dtype):
            return arrays.from_literal(literal)
        return self.kept((op, "value"), lambda: arrays.from_literal(literal))

    def allocate(self, b: Buffer) -> Array:
        """The array of a buffer: in the arena, in a parameter, or in new memory for a function's results."""
        root = b.root
        assert b.type is not None
        if root.usage == "parameter":
            return _viewed(self.given[root].reshape(-1).view(np.uint8), b.type)
        if root.offset is None:
            if root not in self.handed:
                self.handed[root] = aligned(root.nbytes)
            raw = self.handed[root]
        else:
            raw = self.arena[root.offset : root.offset + root.nbytes]
        if b.parent is not None or is_dense(b.type.static_shape, b.strides):
            return _viewed(raw, b.type)
        order = sorted(range(b.type.rank), key=lambda axis: -b.strides[axis])  # a stack
        return _viewed(raw, b.type.with_shape(b.type.shape[axis] for axis in order)).transpose(np.argsort(order))

    def scratch(self, shape: tuple[int, ...], dtype: DType) -> Array:
        """An array for the step until it ends; the next step may get the same memory."""
        return self.page(shape, arrays.numpy_dtype(dtype))

    def scratch_like(self, x: Array) -> Array:
        """A scratch array of the shape and dtype of `x`, row-major."""
        return self.page(x.shape, x.dtype)

    def copied(self, out: Array, x: Array) -> list[Step]:
        """The steps that copy `x`, of any strides, to the dense `out`, which may have another dtype."""
        return self.shared.target.copied(out, x, self)

    def page(self, shape: tuple[int, ...], kind: np.dtype) -> Array:
        """The next piece of scratch, aligned to a cache line. If there is not enough, the first such step gets new memory;
        others get a placeholder of the right size and are built again."""
        start = -(-self.used // ALIGN) * ALIGN
        size = prod(shape) * kind.itemsize
        self.used = end = start + size
        shared = self.shared
        shared.wanted = max(shared.wanted, end)
        if end <= shared.scratch.size:
            self.lent.append(raw := shared.scratch[start:end])
            return raw.view(kind).reshape(shape)
        shared.first = shared.first or shared.turn
        if shared.first == shared.turn:
            if start not in shared.pages or shared.pages[start].size != size:  # an empty page and the next one have one offset
                shared.pages[start] = shared.fresh(size)
            self.lent.append(raw := shared.pages[start])
            return raw.view(kind).reshape(shape)
        shared.short = True
        return arrays.strided(np.empty(1, kind), shape, [n * kind.itemsize for n in dense_strides(shape)])

    def frames(self, op: Op, carried: Sequence[Array] = ()) -> list[Frame]:
        """A frame for each region of `op` (one for equal regions), all in its workspace, because one runs at a time. Their
        first parameters are `carried`."""
        workspace = self.own.live.workspaces.get(op)
        by_region: dict[Region, Frame] = {}
        for r in dict.fromkeys(op.regions):
            plan = self.shared.plan.regions[r]
            at, given = (workspace.offset or 0) if workspace else 0, list(carried)
            for t in own_parameters(op, r):
                given.append(_viewed(self.arena[at : at + t.nbytes], t))
                at += -(-t.nbytes // self.shared.plan.align) * self.shared.plan.align
            by_region[r] = Frame(r, plan, self.arena[at : at + plan.peak], self.shared, given)
        return [by_region[r] for r in op.regions]

    def is_quiet(self, context: Context) -> bool:
        """Whether a run calls no function of NumPy that may warn."""
        return self.quiet and context.timeout is None and context.timer is None

    def run(self) -> None:
        """Run the steps. Raises Violation; `context.failed` is then the op. Raises LimitExceeded on timeout."""
        context = self.shared.context
        context.check_time()
        if context.observe is not None:
            return self.run_observed()
        if context.timer is not None:
            return self.run_timed()
        if self.linked is None:
            self.linked = self.shared.target.linked(self.steps)
            self.quiet = not any(arguments for (_, arguments), _ in self.linked)
        done, timed = 0, context.timeout is not None
        try:
            for (function, arguments), end in unlinked(self.steps) if timed else self.linked:
                done = end
                function(*arguments)
                if timed:
                    context.check_time()
        except (Violation, LimitExceeded):
            context.failed = context.failed or next(op for op, end in self.spans if end >= done)
            raise

    def run_timed(self) -> None:
        """Run the steps, and call the timer for each."""
        timer, first = self.context.timer, 0
        assert timer is not None
        for ops, (op, end) in zip(self.groups, self.spans, strict=True):
            if end == first:  # a view, a constant
                continue
            start = time.perf_counter()
            try:
                for function, arguments in self.steps[first:end]:
                    function(*arguments)
            except (Violation, LimitExceeded):
                self.context.failed = self.context.failed or op
                raise
            first = end
            timer(ops, start, time.perf_counter())
            self.context.check_time()

    def run_observed(self) -> None:
        """Run the steps op by op, and call the observer with copies of each op's results."""
        observe = self.context.observe
        assert observe is not None
        start = 0
        for op, end in self.spans:
            self.context.observe = None
            began = time.perf_counter()
            try:
                for function, arguments in self.steps[start:end]:
                    function(*arguments)
            except (Violation, LimitExceeded):
                self.context.failed = self.context.failed or op
                raise
            finally:
                self.context.observe = observe
            if self.context.timer is not None and end > start:
                self.context.timer((op,), began, time.perf_counter())
            start = end
            self.context.check_time()
            observe(op, tuple(_copied(self.data(v)) for v in op.results))


def _viewed(raw: Array, t: TensorType) -> Array:
    """Bytes as an array of the type `t`."""
    dtype = arrays.numpy_dtype(t.dtype)
    return raw[: t.nbytes].view(dtype).reshape(t.static_shape) if t.nbytes else np.empty(t.static_shape, dtype)


def _static(b: Buffer) -> tuple[int, ...]:
    assert b.type is not None
    return b.type.static_shape


def _is_product(op: Op) -> bool:
    return op.defn.inplace is not None and op.defn.inplace.form == "dot"


def _copied(data: object) -> object:
    return tuple(map(_copied, data)) if isinstance(data, tuple) else np.array(data)
