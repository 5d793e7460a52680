"""Partition of a function into kernels: an op joins the last kernel that makes one of its operands, if both fit together."""

from __future__ import annotations

from collections.abc import Container, Hashable, Sequence

from ptir_tools.convert.emitter import NOT_TRANSLATABLE
from ptir_tools.convert.naming import spelled
from ptir_tools.convert.ptir_to_pto.approximations import LOSSY_FORMULAS
from ptir_tools.convert.ptir_to_pto.axes import AffineExpr, usual
from ptir_tools.convert.ptir_to_pto.chain import LEAST, MOST, chained
from ptir_tools.convert.ptir_to_pto.emit import KernelEmit
from ptir_tools.convert.ptir_to_pto.kernel import COUNT, PRODUCT, Either, Shapes, unfit
from ptir_tools.convert.ptir_to_pto.layout import Blocks, Layout, layouts
from ptir_tools.convert.ptir_to_pto.lower import RULES
from ptir_tools.convert.ptir_to_pto.outline import Outline, values_of
from ptir_tools.core.diagnostics import Diagnostic, Diagnostics, Severity
from ptir_tools.core.dialect import Options, Program, clone
from ptir_tools.core.ir import Function, Literal, Op, Operand, Region, Value, operand_type
from ptir_tools.core.records import dataclass, field, replace
from ptir_tools.core.source import Source
from ptir_tools.core.types import Sym
from ptir_tools.core.verify import verify
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.pto import BOUND, TILES
from ptir_tools.dialects.pto.memory import capacity
from ptir_tools.dialects.pto.memory.info import infer, tile_bytes
from ptir_tools.dialects.pto.memory.spare import end_of_tiles, spare_bytes
from ptir_tools.dialects.pto.structure import is_for
from ptir_tools.dialects.pto.targets import Target
from ptir_tools.dialects.pto.types import INDEX_TYPE
from ptir_tools.passes import PassContext, run_pipeline

TOO_LARGE = "CapacityExceeded"
_STRICT = Options(forms=True)  # what `pto-legalize` has no way to rewrite is an error
_LONGEST = 64  # the most ops of a kernel: beyond, another memory access costs little, and each join is tried


Signature = Sequence[tuple[Value, str]]  # parameters by name


@dataclass(slots=True, eq=False)
class Kernel:
    """The ops of one loop nest over blocks, and their inputs and outputs in memory."""

    body: list[Op]
    stored: Container[Value]  # the values of earlier kernels
    shared: bool = True  # whether an operand that is read twice is the same block
    outputs: list[Value] = field(default_factory=list)
    shapes: Shapes | None = None  # cached


class Tiler:
    """Builds and checks the PTO of single kernels."""

    def __init__(self, target: Target, source: Source | None, cores: int = 1) -> None:
        self.target = target
        self.source = source
        self.cores = cores  # over which kernels are split

    def smallest(self, kernel: Kernel, shapes: Shapes, read: Sequence[Value]) -> Diagnostics:
        """The errors of a kernel in the smallest blocks of its best layout; `read` are its inputs."""
        first = Diagnostics(self.source)
        for i, layout in enumerate(layouts(shapes)):
            inputs, outputs = ([(v, v.name) for v in values] for values in (read, kernel.outputs))
            result, report = self.made(shapes, layout, layout.least, "main", inputs, outputs)
            if not _wrong(report) and len(kernel.body) > 1:
                self._report_spare(result.main, report)
            if not _wrong(report):
                return report
            first = report if i == 0 else first
        return first

    def _report_spare(self, function: Function, report: Diagnostics) -> None:
        """Report that tiles leave no room for the scratch memory of an op."""
        tiles = infer(function, self.target)
        if not (spare := spare_bytes(function, tiles, self.target)):
            return
        used = max((s.peak for s in capacity.spaces(function, self.target, tiles) if s.name == "Vec"), default=0)
        if used + spare > self.target.capacity["Vec"]:
            report.error(TOO_LARGE, f"an op takes {spare} bytes of Vec beyond its tiles, which take {used}", function.loc)

    def largest(self, shapes: Shapes, name: str, inputs: Signature, outputs: Signature) -> Program:
        """A kernel in the best blocks that fit; preferred are those with room for prefetching the next block and for the scratch
        memory of ops."""
        first: Program | None = None
        for layout in layouts(shapes):
            tight: list[Blocks] = []
            hopeless: bool | None = None
            for size in layout.blocks(self.target, cores=self.cores):
                output, report = self.made(shapes, layout, size, name, inputs, outputs)
                wrong = _wrong(report)
                if not wrong and self._has_room(output.main):
                    result = self.finished(output)
                    if self._has_spare(result):
                        return result
                    first = first or result
                elif not wrong:
                    tight.append(size)
                if any(d.code != TOO_LARGE for d in wrong):
                    if hopeless is None:
                        hopeless = bool(_wrong(self.made(shapes, layout, layout.least, name, inputs, outputs)[1]))
                    if hopeless:
                        break
            for size in tight:
                result = self.finished(self.made(shapes, layout, size, name, inputs, outputs)[0])
                if self._has_spare(result):
                    return result
                first = first or result
        for layout in layouts(shapes) if first is None else ():
            for size in layout.smaller(self.target):
                output, report = self.made(shapes, layout, size, name, inputs, outputs)
                if not _wrong(report):
                    result = self.finished(output)
                    if self._has_spare(result):
                        return result
                    first = first or result
        assert first is not None, f"{name} fitted before"
        return first

    def chained(self, kernels: Sequence[tuple[Shapes, Signature, Signature]], private: Container[Value]) -> Program | None:
        """Kernels, the last two of which are products, fused into one, in the first blocks that fit and whose dependences are
        proved. No other kernel reads `private` memory."""
        *ahead, first, second = kernels
        layout, after = layouts(first[0])[0], layouts(second[0])[0]
        for size in dict.fromkeys(layout.blocks(self.target)):
            many, rest = divmod(usual(layout.rows), size.high)
            next_size = next(after.blocks(self.target, size.rows), None)
            if rest or not LEAST <= many <= MOST or next_size is None or not self._has_room_for(size, next_size):
                continue
            sizes = [*(layouts(k[0])[0].fewest(self.target, many) for k in ahead), size, next_size]
            if (program := self._chained(kernels, sizes, private)) is not None:
                return program
        return None

    def _has_room_for(self, first: Blocks, second: Blocks) -> bool:
        """Whether both accumulators fit, and two blocks of the first product in Vec."""
        areas, capacity = [4 * b.rows * b.columns for b in (first, second)], self.target.capacity
        return sum(areas) <= capacity["Acc"] and 2 * areas[0] <= capacity["Vec"]

    def _chained(
        self, kernels: Sequence[tuple[Shapes, Signature, Signature]], sizes: Sequence[Blocks | None], private: Container[Value]
    ) -> Program | None:
        results, memory = list[Program](), dict[Value, Value]()
        for k, ((shapes, inputs, outputs), size) in enumerate(zip(kernels, sizes, strict=True)):
            if size is None:
                return None
            program, report = self.made(shapes, layouts(shapes)[0], size, f"k{k}", inputs, outputs)
            if _wrong(report):
                return None
            results.append(program)
            values = [shapes.outline.memory(v) for v, _ in (*inputs, *outputs)]
            memory |= dict(zip(program.main.params, values, strict=True))
        function = chained([p.main for p in results], memory, private, "chain")
        if function is None:
            return None
        program.functions[:] = [function]
        program.entry = function.name
        report = Diagnostics(self.source)
        run_pipeline(program, f"{TILES},{BOUND}", PassContext(verify_each=False, diagnostics=report))
        if not report.errors:
            verify(program, report)
        unproved = any(d.code == "Unproved" for d in report)
        return None if _wrong(report) or unproved or not self._has_spare(program) else program

    def _has_room(self, function: Function) -> bool:
        """Whether the loads of innermost loops fit twice, and the scratch memory of ops."""
        tiles = infer(function, self.target)
        left = self.target.capacity | {}
        left["Vec"] -= spare_bytes(function, tiles, self.target)
        for space in capacity.spaces(function, self.target, tiles):
            left[space.name] -= space.peak
        for op in function.ops():
            if is_for(op) and not any(is_for(inner) for inner in op.regions[0].ops()):
                for load in op.regions[0].body:
                    if load.defn.short == "tile.load":
                        t = tiles[load.result]
                        left[t.loc or "Vec"] -= tile_bytes(t)
        return min(left.values()) >= 0

    def _has_spare(self, program: Program) -> bool:
        """Whether the scratch memory of a kernel's ops fits beyond its tiles."""
        tiles = infer(program.main, self.target)
        end = end_of_tiles(program.main, tiles)
        spare = spare_bytes(program.main, tiles, None)
        return not spare or (end is not None and end + spare <= self.target.capacity["Vec"])

    def made(
        self, shapes: Shapes, layout: Layout, blocks: Blocks, name: str, inputs: Signature, outputs: Signature
    ) -> tuple[Program, Diagnostics]:
        """A kernel as a function in blocks of one size, and its errors."""
        report = Diagnostics(self.source)
        emit = KernelEmit(RULES, name, shapes, layout, blocks, self.target, report)
        program = emit.run(inputs, outputs)
        program.attrs["pto.target"] = f"#pto.target<{self.target.name}>"
        if not report.errors:
            run_pipeline(program, "pto-legalize", PassContext(verify_each=False))
            verify(program, report, _STRICT)
        return program, report

    def finished(self, program: Program) -> Program:
        """A kernel after all passes of its target, split over the cores. It prefetches where the carried tiles have addresses and
        the check of events can prove the result."""
        if self.cores > 1:
            run_pipeline(program, f"pto-split-cores{{cores={self.cores}}}", PassContext(verify_each=False))
        if not _open_inside(program.main):
            ahead = clone(program)
            run_pipeline(ahead, "pto", PassContext(verify_each=False, diagnostics=(report := Diagnostics(self.source))))
            if not report.errors:
                if any(p.type is INDEX_TYPE for p in ahead.main.params):  # little can be proved about loops that may not run
                    verify(ahead, report)
                if not any(d.code == "Unproved" or d.severity is Severity.ERROR for d in report):
                    return ahead
        run_pipeline(program, f"{TILES},{BOUND}", PassContext(verify_each=False))
        return program


def _open_inside(block: Region, inside: bool = False) -> bool:
    """Whether an innermost loop and one around it both have symbolic bounds. Either may not run, so the order of prefetched loads
    cannot be proved."""
    for op in block.body:
        if is_for(op):
            ends = isinstance(op.operands[1], Value) and op.operands[1].op is None
            deeper = any(is_for(inner) for inner in op.regions[0].ops())
            if (ends and inside and not deeper) or _open_inside(op.regions[0], inside or ends):
                return True
    return False


def _wrong(report: Diagnostics) -> list[Diagnostic]:
    """The diagnostics that rule a kernel out: errors, and tiles that do not fit together, of which the check only warns."""
    return [d for d in report if d.severity is Severity.ERROR or d.code == TOO_LARGE]


@dataclass(slots=True, eq=False)
class Repeat:
    """A loop or branch of the source, with the kernels and scalar ops of each of its blocks in order."""

    item: Op
    steps: list[list[Step]]


@dataclass(slots=True, eq=False)
class Chain:
    """Kernels, by their numbers, that are fused into one function with the parameters `params`."""

    kernels: tuple[int, ...]
    program: Program
    params: list[Value]


Step = int | Op | Repeat | Chain  # a kernel by its number, an op of scalars


class _Before:
    """The values of all kernels before one."""

    def __init__(self, where: dict[Value, int], k: int) -> None:
        self.where, self.k = where, k

    def __contains__(self, v: object) -> bool:
        return isinstance(v, Value) and self.where.get(v, self.k) < self.k


class Partition:
    """The kernels of a function, and the order of their calls. Errors are reported."""

    def __init__(self, outline: Outline, tiler: Tiler, diagnostics: Diagnostics) -> None:
        self.outline = outline
        self.tiler = tiler
        self.diagnostics = diagnostics
        self.kernels: list[Kernel] = []
        self.steps: list[Step] = []
        self.current = self.steps  # of the current block
        self.where: dict[Value, int] = {}  # the kernel that makes a value
        self.written: dict[Value, int] = {}  # the last kernel that writes to a memory
        self.floor = 0  # kernels before it are complete
        self.lost = set(outline.lost)  # refused values: their readers are not reported
        self.tried: dict[Hashable, list[Diagnostic]] = {}  # the errors of kernels, by `key`
        self.users: dict[Value, list[Op]] = {}
        self.results = set(values_of(outline.function.results))
        for op in outline.function.ops():
            for x in () if op.regions else op.values():
                self.users.setdefault(x, []).append(op)

    def run(self) -> None:
        """Place every op; views only where they need memory."""
        self._run(self.outline.function, self.steps)
        for kernel in self.kernels:
            kernel.outputs = self._outputs(kernel)
        if not self.diagnostics.errors and self.tiler.cores == 1:
            self._chain(self.steps, {})

    def _chain(self, steps: list[Step], known: dict[Hashable, Program | None]) -> None:
        """Fuse kernels that pass rows from one to the next."""
        for step in steps:
            for inner in step.steps if isinstance(step, Repeat) else ():
                self._chain(inner, known)
        at = 0
        while at < len(steps):
            for n in (3, 2):
                numbers = [s for s in steps[at : at + n] if isinstance(s, int)]
                if len(numbers) == n and self._hands_on(numbers) and (result := self._made_chain(numbers, known)) is not None:
                    steps[at : at + n] = [result]
                    break
            at += 1

    def _hands_on(self, numbers: Sequence[int]) -> bool:
        """Whether kernels may be fused: each has one result, which the next one reads; the last two are products, and no extent
        is a symbol."""
        kernels = [self.kernels[k] for k in numbers]
        many = [sum(op.defn.short == PRODUCT for op in k.body) for k in kernels]
        results = [[v for v in k.outputs if self._escapes(v, set(k.body))] for k in kernels]
        if many != [*[0] * (len(many) - 2), 1, 1] or len(kernels[-2].body) == 1 or any(len(r) != 1 for r in results):
            return False
        handed = all(r[0] in self.inputs(b) for r, b in zip(results, kernels[1:], strict=False))
        return handed and not any(self.symbols(k) or r[0] in self.outline.writes for k, r in zip(kernels, results, strict=True))

    def _made_chain(self, numbers: Sequence[int], known: dict[Hashable, Program | None]) -> Chain | None:
        kernels = [self.kernels[k] for k in numbers]
        given = [[*self.inputs(k), *k.outputs] for k in kernels]
        params = list(dict.fromkeys(v for values in given for v in values))
        inside = {op for k in kernels for op in k.body}
        private = [v for k in kernels for v in k.outputs if not self._escapes(v, inside)]
        places = tuple(map(params.index, private))
        key = (places, *((self.key(k), *map(params.index, values)) for k, values in zip(kernels, given, strict=True)))
        if key not in known:
            named = [([(v, spelled(v.name)) for v in self.inputs(k)], [(v, spelled(v.name)) for v in k.outputs]) for k in kernels]
            known[key] = self.tiler.chained([(self.shapes(k), *n) for k, n in zip(kernels, named, strict=True)], private)
        program = known[key]
        return None if program is None else Chain(tuple(numbers), program, params)

    def _run(self, block: Region, steps: list[Step]) -> None:
        outer, self.current = self.current, steps
        steps += [op for op in block.body if self.outline.scalars.intersection(op.results)]  # they depend on scalars alone
        ready: list[Op] = []
        for item in block.body:
            if item.regions:
                self._place(ready)
                ready = []
                result = Repeat(item, [[] for _ in item.regions])
                for region, inner in zip(item.regions, result.steps, strict=True):
                    self.floor = len(self.kernels)
                    self._run(region, inner)
                self.floor = len(self.kernels)
                if any(result.steps):
                    steps.append(result)
            elif item.result not in self.outline.scalars and self._computes(item):
                ready.append(item)
        self._place(ready)
        self.current = outer

    def _computes(self, op: Op) -> bool:
        if op.defn.is_constant or op.defn.short == COUNT:
            return False
        return not self.outline.is_view(op) or op.result in self.results

    def _place(self, ops: Sequence[Op]) -> None:
        """Place ops in order, as many at once as join the last kernel."""
        at, many = 0, 4
        while at < len(ops):
            joined = self._joined(ops[at : at + many])
            if not joined:
                self.place(ops[at])
            many = 2 * many if joined >= many else max(joined, 4)
            at += joined or 1

    def _joined(self, ops: Sequence[Op]) -> int:
        """The number of the consecutive `ops` that joined the last kernel."""
        k = len(self.kernels) - 1
        if k < self.floor:
            return 0
        body = self.kernels[k].body
        inside: set[Value] = set()
        fit: list[Op] = []
        for op in ops[: _LONGEST - len(body)]:
            if op.result in self.where or op.result in self.outline.writes or op.defn.short == PRODUCT or _unsaid(op):
                break
            bases = values_of([self.outline.base(x, Either(self.where, inside))[0] for x in op.operands])
            result = max((k if b in inside else self.where[b] for b in bases if b in inside or b in self.where), default=-1)
            if result != k or self.lost.intersection(bases) or any(self.written.get(b, -1) >= k for b in bases):
                break
            inside.add(op.result)
            fit.append(op)
        while len(fit) > 1:
            if not self._fits([*body, *fit], k):
                return len(fit)
            fit = fit[: len(fit) // 2]
        return 0

    def place(self, op: Op) -> None:
        """Put `op` into a kernel, or report why none can have it."""
        bases = [self.outline.base(x, self.where)[0] for x in op.operands]
        if self.lost.intersection(values_of(bases)):
            self.lost.update(op.results)
            return
        if reason := _unsaid(op):
            help = "--lossy makes a formula of it" if op.defn.short in LOSSY_FORMULAS else None
            self.diagnostics.error(NOT_TRANSLATABLE, reason, op.loc, help=help)
            self.lost.update(op.results)
            return
        if op.defn.short == PRODUCT:
            self._in_order(op)
        for k in self._places(op, values_of(bases)):
            if len(self.kernels[k].body) < _LONGEST and not self._fits([*self.kernels[k].body, op], k):
                return
        wrong = self._fits([op], len(self.kernels))
        if wrong and self._stored_views(op):
            wrong = self._fits([op], len(self.kernels))
        for d in wrong:
            self.diagnostics.add(d)
        if wrong:
            self.lost.update(op.results)

    def _places(self, op: Op, bases: Sequence[Value]) -> list[int]:
        """The kernels in which `op` keeps the order of dependences: the last that makes one of its operands, and the last one. A
        kernel does not read memory that it writes, and writes each memory once."""
        last = len(self.kernels) - 1
        if (write := self.outline.writes.get(op.result)) is not None:
            kernel = self.kernels[last] if last >= self.floor else None
            touched = kernel is None or write.memory in self.inputs(kernel) or self.written.get(write.memory) == last
            return [] if touched else [last]
        result = max((self.where[b] for b in bases if b in self.where), default=0)
        least = max((self.written[b] + 1 for b in bases if b in self.written), default=0)
        return [k for k in dict.fromkeys((result, last)) if max(result, least, self.floor) <= k <= last]

    def _fits(self, body: list[Op], k: int) -> list[Diagnostic]:
        """Set the ops of kernel `k`; returns the errors."""
        reasons: list[Diagnostic] = []
        stored = _Before(self.where, k)
        for kernel in (Kernel(body, stored), Kernel(body, stored, shared=False)):
            key = self.key(kernel)
            wrong = self.tried.get(key)
            if wrong is None or (wrong and len(body) == 1):  # the errors of a single op are reported at its location
                wrong = self.tried[key] = self._wrong(kernel)
            if not wrong:
                if k == len(self.kernels):
                    self.current.append(k)
                self.kernels[k : k + 1] = [kernel]
                for op in body:
                    self.where[op.result] = k
                    if op.result in self.outline.writes:
                        memory = self.outline.memory(op.result)
                        self.written[memory] = max(k, self.written.get(memory, k))
                return []
            reasons = reasons or wrong
        return reasons

    def _stored_views(self, op: Op) -> bool:
        """Copy the views that `op` reads to memory. Returns whether there are any."""
        views = [x for x in op.operands if isinstance(x, Value) and self.outline.base(x, self.where)[1]]
        for x in views:
            assert x.op is not None
            if x not in self.where and not isinstance(self.outline.base(x, self.where)[0], Literal):
                self.place(x.op)
        return bool(views) and not self.lost.intersection(views)

    def _in_order(self, op: Op) -> None:
        """Copy operands of a product to memory where their layout does not suit the matrix unit."""
        try:
            shapes = self.shapes(Kernel([op], self.where))
        except Violation:
            return
        product = shapes.products[0]
        for i, outer in enumerate((product.rows, product.columns)):
            x, dims = op.operands[i], shapes.reads[op, i].memory
            places = [d for d, axes in enumerate(dims) if set(axes) & set(outer) or not (axes or outer)]
            inner = [d for d, axes in enumerate(dims) if product.inner and product.inner[-1] in axes]
            last = len(dims) - 1
            good = places and inner and (min(places) < inner[0] == last if i == 0 else inner[0] < max(places) == last)
            if not good and isinstance(x, Value) and x.op is not None and self.outline.base(x, self.where)[1]:
                self.place(x.op)

    def shapes(self, kernel: Kernel) -> Shapes:
        """The axes of a kernel."""
        if kernel.shapes is None:
            kernel.shapes = Shapes(self.outline, kernel.body, kernel.stored, kernel.shared)
        return kernel.shapes

    def symbols(self, kernel: Kernel) -> list[Sym]:
        """The symbolic extents that are parameters of a kernel."""
        return self.shapes(kernel).symbols(kernel.outputs)

    def extents(self) -> list[Sym]:
        """The symbolic extents of kernels, in order of first appearance, except computed ones."""
        symbols = [s for kernel in self.kernels for s in self.symbols(kernel)]
        return [s for s in dict.fromkeys(symbols) if s not in self.outline.lengths]

    def _wrong(self, kernel: Kernel) -> list[Diagnostic]:
        """The errors of a kernel."""
        try:
            shapes = self.shapes(kernel)
            kernel.outputs = self._outputs(kernel)
            report = self.tiler.smallest(kernel, shapes, self.inputs(kernel))
        except Violation as violation:
            report = Diagnostics(self.tiler.source)
            report.violation(violation, violation.loc or kernel.body[-1].loc)
        errors = (replace(d, code=NOT_TRANSLATABLE, severity=Severity.ERROR) for d in _wrong(report))
        return list(dict.fromkeys(errors))

    def key(self, kernel: Kernel) -> Hashable:
        """A key that is equal for kernels with the same ops on other values of the same types; None for a kernel without a
        key."""
        results: dict[Value, int] = {}
        inputs: dict[Operand, int] = {}
        known = Either(kernel.stored, results)
        outline = self.outline

        def place(index_map: Sequence[AffineExpr]) -> Hashable:
            return tuple((s.start, *((~inputs.setdefault(v, len(inputs)), v.type, k) for v, k in s.shifts)) for s in index_map)

        def view(v: Op) -> Hashable:
            subview = outline.subviews.get(v)
            return v.defn, v.defn.key(v.attrs), v.result.type, subview and (place(subview.first), subview.cuts, subview.groups)

        def read(x: Operand) -> Hashable:
            base, path = outline.base(x, known)
            views = tuple(map(view, path))
            if isinstance(base, Literal):
                return base.key, base.type
            if isinstance(base, Value) and base.op is not None and base.op.defn.short == COUNT and base not in known:
                return base.op.defn, base.op.attrs, base.type, views
            own = results.get(base) if isinstance(base, Value) else None
            number = isinstance(base, Value) and base in outline.scalars
            return (own, views) if own is not None else (~inputs.setdefault(base, len(inputs)), operand_type(base), number, views)

        inside = set(kernel.body)
        steps = []
        for op in kernel.body:
            operands = tuple(read(x) for x in op.operands)
            kept = self._escapes(op.result, inside)
            write, subview = outline.writes.get(op.result), outline.subviews.get(op)
            goes = write and (place(write.first), write.steps, write.memory.type)
            sees = subview and (place(subview.first), subview.cuts, subview.groups)
            steps.append((op.defn, op.defn.key(op.attrs), operands, op.result.type, kept, goes, sees))
            results[op.result] = len(results)
        return kernel.shared, tuple(steps)

    def inputs(self, kernel: Kernel) -> list[Value]:
        """The inputs of a kernel."""
        shapes = self.shapes(kernel)
        bases = (r.base for r in shapes.reads.values())
        read = (b for b in bases if isinstance(b, Value) and b not in shapes.made and not _counts(b))
        return list(dict.fromkeys((*read, *shapes.scalars())))

    def _outputs(self, kernel: Kernel) -> list[Value]:
        """The outputs of a kernel. A product is one, too, where tiles of Vec get it through memory alone."""
        inside, through = set(kernel.body), "Vec" not in self.tiler.target.from_acc
        stored = {op.result for op in kernel.body if through and op.defn.short == PRODUCT}
        return [op.result for op in kernel.body if op.result in stored or self._escapes(op.result, inside)]

    def _escapes(self, v: Value, inside: set[Op]) -> bool:
        """Whether a value has uses outside of its kernel, also through views."""
        if v in self.results or v in self.outline.writes:
            return True
        return any(self._reads(op, inside) for op in self.users.get(v, ()))

    def _reads(self, op: Op, inside: set[Op]) -> bool:
        if op in inside:
            return False
        return self._escapes(op.result, inside) if self.outline.is_view(op) and op.result not in self.where else True


def _counts(v: Value) -> bool:
    return v.op is not None and v.op.defn.short == COUNT


def _unsaid(op: Op) -> str:
    """The reason why no tile op can compute `op` in any kernel; "" when one may."""
    types = (*map(operand_type, op.operands), *(v.type for v in op.results))
    known = "" if op.defn.short in RULES else f"no tile op computes {op.defn.short}"
    return next(filter(None, map(unfit, types)), known)
