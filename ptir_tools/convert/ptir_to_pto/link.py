"""Linking of kernels into one program: one function per distinct kernel, called in order by the entry, with memory between."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence, Set

from ptir_tools.convert.naming import extent_name, spelled
from ptir_tools.convert.ptir_to_pto.partition import Chain, Kernel, Partition, Repeat, Step
from ptir_tools.convert.ptir_to_pto.values import memory_type, number
from ptir_tools.core import expressions
from ptir_tools.core.builder import single_function
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Function, Literal, Op, Operand, Region, Value, result_names
from ptir_tools.core.symbols import DERIVED, substitute
from ptir_tools.core.types import UNKNOWN, Dim, Sym, TensorType, Type, sym
from ptir_tools.dialects import load_dialect
from ptir_tools.dialects.pto.structure import is_for
from ptir_tools.dialects.pto.types import INDEX_TYPE, MemRefType, scalar
from ptir_tools.rewrite.vocabulary import tensor_type

Names = Sequence[tuple[Value, str]]

SCALARS = {"add": "addi", "sub": "subi", "mul": "muli", "div": "divsi", "minimum": "minsi", "maximum": "maxsi"}
PREDICATES = {f"compare_{mode}": mode if mode in ("eq", "ne") else f"s{mode}" for mode in ("eq", "ne", "lt", "le", "gt", "ge")}


def linked(partition: Partition, used_names: set[str], others: Set[str] = frozenset()) -> Program:
    """The program of all kernels, with names not in `used_names`, to which they are added. Its parameters are those of the
    source, memory between kernels (with names not in `others`), and memory for the results."""
    outline = partition.outline
    inputs = [(p, p.name) for p in outline.function.params]
    results = [x for x in outline.function.results if isinstance(x, Value)]
    outputs = list(zip(results, map(spelled, result_names(outline.function)), strict=True))
    if partition.steps == [0] and set(partition.kernels[0].outputs) == set(results) and not (outline.extents or outline.lengths):
        kernel = partition.kernels[0]
        result = partition.tiler.largest(partition.shapes(kernel), spelled(outline.function.name), inputs, outputs)
        symbols = partition.symbols(kernel)
        _sized(result.main, [v for v, _ in (*inputs, *outputs)], symbols)
        return result
    return _Link(partition, inputs, outputs, used_names, others).run()


def _sized(main: Function, values: Sequence[Value], symbols: Sequence[Sym]) -> None:
    """Declare which of the entry's last parameters are the extents of memory."""
    if symbols:
        names = dict(zip(symbols, (sym(p.name) for p in main.params[-len(symbols) :]), strict=True))
        if derived := dict(_derived(names)):
            main.attrs[DERIVED] = derived
        for p, v in zip(main.params, values, strict=False):
            if isinstance(p.type, MemRefType) and isinstance(v.type, TensorType) and v.type.shape and 0 not in v.type.shape:
                p.type = p.type.with_shape(substitute(v.type.shape, lambda s: names.get(s, UNKNOWN)))


def _derived(named: Mapping[Sym, Sym]) -> Iterator[tuple[str, Dim]]:
    """The parameters whose symbols are expressions, with these, which have the names of parameters."""
    known = {s.name: expressions.name(n.name) for s, n in named.items() if s.poly is None}
    for s, parameter in named.items():
        if s.poly is not None:
            yield parameter.name, expressions.to_dim(s.poly.put(known))


def _shared(partition: Partition, memories: Sequence[Value]) -> dict[Value, Value]:
    """Memory reuse: for each of `memories` the first value of its type that is dead by then."""
    uses: dict[Value, list[int]] = {}
    for at, step in enumerate(partition.steps):
        for v in _touched(partition, step):
            uses.setdefault(v, []).append(at)
    owners: dict[Value, Value] = {}
    free: dict[Type, list[tuple[int, Value]]] = {}  # with the step of its last use
    for v in sorted(memories, key=lambda v: uses[v][0]):
        slots = free.setdefault(v.type, [])
        k = next((k for k, (last, _) in enumerate(slots) if last < uses[v][0]), len(slots))
        owners[v] = first = slots[k][1] if k < len(slots) else v
        slots[k : k + 1] = [(uses[v][-1], first)]
    return owners


def _touched(partition: Partition, step: Step) -> Iterator[Value]:
    """The memory that a step reads or writes; memory of a loop is live from its beginning to its end."""
    if isinstance(step, int):
        kernel = partition.kernels[step]
        yield from (*partition.inputs(kernel), *map(partition.outline.memory, kernel.outputs))
    elif isinstance(step, Chain):
        for k in step.kernels:
            yield from _touched(partition, k)
    elif isinstance(step, Repeat):
        for steps in step.steps:
            for inner in steps:
                yield from _touched(partition, inner)


def _scalar(v: Value) -> Type:
    """The type of a number of rank 0 outside of kernels."""
    return scalar(tensor_type(v).dtype)


class _Link:
    """Builds the entry."""

    def __init__(self, partition: Partition, inputs: Names, outputs: Names, used_names: set[str], others: Set[str]) -> None:
        self.partition = partition
        self.taken = used_names
        self.outline = partition.outline
        self.program, self.builder = single_function(load_dialect("pto"), spelled(self.outline.function.name))
        self.program.main.loc = self.outline.function.loc
        self.program.attrs = {"pto.target": f"#pto.target<{partition.tiler.target.name}>"}
        results = {v for v, _ in outputs}
        stored = dict.fromkeys(self.outline.memory(v) for kernel in partition.kernels for v in kernel.outputs)
        shared = _shared(partition, [v for v in stored if v not in results])
        named = {*others, *(name for _, name in (*inputs, *outputs))}  # names of the source are kept
        between = [(v, "" if (name := spelled(v.name)) in named else name) for v in dict.fromkeys(shared.values())]
        self.values: dict[Value, Value] = {}
        every = (*inputs, *between, *outputs)
        for v, name in every:
            self.values[v] = self.builder.param(memory_type(v, v in self.outline.scalars), name)
        self.values.update({v: self.values[first] for v, first in shared.items()})
        symbols = list(dict.fromkeys((*partition.extents(), *self.outline.extents.values())))
        self.extents = {s: self.builder.param(INDEX_TYPE, extent_name(s.name)) for s in symbols}
        _sized(self.program.main, [v for v, _ in every], symbols)
        self.names: dict[Hashable, str] = {}  # equal kernels are one function

    def run(self) -> Program:
        """The whole program."""
        self.steps(self.partition.steps)
        return self.program

    def steps(self, steps: Sequence[Step]) -> None:
        """Emit the calls and scalar ops, in order."""
        for step in steps:
            if isinstance(step, int):
                self.call(self.partition.kernels[step])
            elif isinstance(step, Chain):
                self.chain(step)
            elif isinstance(step, Op):
                self.values[step.result] = self.scalar(step)
            else:
                self.repeat(step)

    def fresh(self) -> str:
        """A name for the next kernel."""
        name = f"{self.program.main.name}_{len(self.names)}"
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def call(self, kernel: Kernel) -> None:
        """Emit a call of a kernel, and its function if no equal kernel has one."""
        partition, program = self.partition, self.program
        key = partition.key(kernel)
        if (name := self.names.get(key)) is None:
            self.names[key] = name = self.fresh()
            inputs = [(v, spelled(v.name)) for v in partition.inputs(kernel)]
            outputs = [(v, spelled(v.name)) for v in kernel.outputs]
            result = partition.tiler.largest(partition.shapes(kernel), name, inputs, outputs)
            program.functions.insert(len(program.functions) - 1, result.main)
        given = [self.value(v) for v in (*partition.inputs(kernel), *map(self.outline.memory, kernel.outputs))]
        given += [self.extent(s) for s in partition.symbols(kernel)]
        self.builder.op("func.call", given, callee=name, to=())

    def extent(self, s: Sym) -> Value:
        """An extent as an index: a parameter, or a computed number."""
        if s in self.extents:
            return self.extents[s]
        return self.builder.op("index_cast", self.value(self.outline.lengths[s]), to=INDEX_TYPE)

    def value(self, v: Value) -> Value:
        """A memory or scalar of the entry; an extent as a scalar is computed when it is first used."""
        if v not in self.values:
            with self.builder.inside(self.program.main):
                self.values[v] = self.builder.op("index_cast", self.extents[self.outline.extents[v]], to=_scalar(v))
        return self.values[v]

    def chain(self, step: Chain) -> None:
        """Emit a call of fused kernels, and their function if no equal ones have one."""
        if (name := self.names.get(step.program)) is None:
            self.names[step.program] = name = self.fresh()
            step.program.main.name = step.program.entry = name
            self.program.functions.insert(len(self.program.functions) - 1, step.program.main)
        self.builder.op("func.call", [self.values[self.outline.memory(v)] for v in step.params], callee=name, to=())

    def scalar(self, op: Op) -> Value:
        """Emit a scalar op outside of kernels."""
        short = op.defn.short
        operands = [self.read(x) for x in op.operands]
        if short in PREDICATES:
            return self.builder.op("cmpi", *operands, predicate=PREDICATES[short], name=spelled(op.result.name))
        if short == "cast":
            return self.builder.op("index_cast", *operands, to=_scalar(op.result), name=spelled(op.result.name))
        return self.builder.op(SCALARS[short], *operands, name=spelled(op.result.name))

    def read(self, x: Operand) -> Value:
        """A number as an operand."""
        if isinstance(x, Value):
            return self.value(x)
        assert isinstance(x, Literal)
        return self.builder.op("constant", value=x)

    def position(self, x: Operand) -> Operand:
        """A number as an index."""
        if isinstance(x, Literal) and x.data is not None:
            return number(int.from_bytes(x.data, "little", signed=True))
        if isinstance(x, Value) and x in self.outline.extents:
            return self.extents[self.outline.extents[x]]
        return self.builder.op("index_cast", self.read(x), to=INDEX_TYPE)

    def repeat(self, step: Repeat) -> None:
        """A loop or branch."""
        item = step.item
        if is_for(item):
            lower, upper, by = item.operands
            (counter,) = item.regions[0].params
            bounds = self.position(lower), self.position(upper)
            body = Region("body", isolated=False)
            body.params = [Value(INDEX_TYPE, self.builder.name("i"))]
            with self.builder.inside(body):
                self.values[counter] = self.builder.op("index_cast", body.params[0], to=_scalar(counter))
                self.steps(step.steps[0])
            self.builder.op("scf.for", *bounds, by, [], regions=[body])
            return
        condition = self.read(item.operands[0])
        regions = [Region("then", isolated=False), Region("else", isolated=False)]
        for region, block in zip(regions, step.steps, strict=True):
            with self.builder.inside(region):
                self.steps(block)
        self.builder.op("scf.if", condition, regions=regions)
