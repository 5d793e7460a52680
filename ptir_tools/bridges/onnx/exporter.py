"""PTIR to a ModelProto: the program is prepared, its ops are lowered to nodes, its constants become initializers."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from ptir_tools.bridges.onnx import cells as cells  # whose idioms are declared
from ptir_tools.bridges.onnx import forests as forests
from ptir_tools.bridges.onnx.emitter import READY, Emitter, InError
from ptir_tools.bridges.onnx.graph import Out, inner_reads, needed, read_by, rename
from ptir_tools.bridges.onnx.idioms import GROUPS, IDIOMS
from ptir_tools.bridges.onnx.lowerings import CALLS, COMPOSED, LOWERINGS
from ptir_tools.bridges.onnx.table import DOMAIN, METADATA, NUMBERS
from ptir_tools.convert.legality import NOT_TRANSLATABLE
from ptir_tools.core import arrays
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.dialect import Program, clone
from ptir_tools.core.ir import Op, Value, operand_type, result_names
from ptir_tools.core.lazy import lazy
from ptir_tools.core.typed import IO, TYPE_CHECKING
from ptir_tools.core.types import TensorType, TupleType, flatten, leaves
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.composites.calls import expand, expandable
from ptir_tools.dialects.ptir.composites.express import express
from ptir_tools.passes import PassContext, run_pipeline

if TYPE_CHECKING:
    import onnx
else:
    onnx = lazy("onnx")

OPSET, OLDEST = 21, 13
LARGEST = (1 << 31) - (1 << 20)  # bytes of initializers: the limit of protobuf, less some for the graph
_ALIGN = 64
DOMAINS = {DOMAIN: 1, "ai.onnx.ml": 3}  # and their operator sets


def model(
    program: Program,
    diagnostics: Diagnostics,
    opset: int | None = None,
    lossy: bool = False,
    data: tuple[str, IO[bytes]] | None = None,
) -> onnx.ModelProto | None:
    """The ModelProto of a verified PTIR program, or None after reporting every op that ONNX cannot express. `data` is a file for
    the bytes of big constants, and its name in the model. Raises UsageError for an operator set that is not known here."""
    newest = onnx.defs.onnx_opset_version()
    chosen = OPSET if opset is None else opset
    if not OLDEST <= chosen <= newest:
        raise UsageError(f"operator sets from {OLDEST} to {newest} are written, not {chosen}")
    for hint in program.main.annotations:
        diagnostics.dropped(hint, "ONNX has no fusion hints")
    as_onnx = lossy or METADATA in program.attrs
    return Exporter(made_ready(program, chosen, as_onnx), chosen, lossy, as_onnx, diagnostics).model(data)


def made_ready(program: Program, opset: int, as_onnx: bool) -> Program:
    """A copy with custom calls where ONNX has an operator for them; other known custom calls are decomposed. With `as_onnx`
    scales after convolutions become parts of weights, as in ONNX Runtime."""
    ready, context = clone(program), PassContext(verify_each=False)
    folded = "layout,fold-scales{range=true}," if as_onnx else ""
    laid = "fixpoint{n=2}(layout{channels-first=true})"
    run_pipeline(ready, READY.format(f"{folded}{laid},"), context)
    express(ready, COMPOSED)
    for rw in context.rewriters(ready):
        for op in [op for op in rw.body() if expandable(op) and not _has_lowering(op, opset)]:
            expand(op, rw)
    for p, name in zip(ready.main.params, program.main.attrs.get("input_names", ()), strict=False):
        p.name = name
    return ready


def _has_lowering(op: Op, opset: int) -> bool:
    entry = CALLS.get(op.attr("target"))
    return entry is not None and entry[1](op, opset)


class Exporter(Emitter):
    """Exports one program."""

    def __init__(self, program: Program, opset: int, lossy: bool, as_onnx: bool, diagnostics: Diagnostics) -> None:
        super().__init__(LOWERINGS, IDIOMS, GROUPS, opset, lossy, as_onnx, diagnostics)
        self.results: set[str] = set()  # names of values that are results
        self.program = program

    def model(self, data: tuple[str, IO[bytes]] | None) -> onnx.ModelProto | None:
        """The ModelProto, or None after errors."""
        main, errors = self.program.main, self.diagnostics.errors
        params: list[Out] = []
        arguments = [self.parameter(p, params) for p in main.params]
        outputs = self._names()
        try:
            results = [y for tree in self.block(main, arguments) for y in flatten(tree)]
        except InError:
            results = []
        if self.diagnostics.errors > errors:
            return None
        self.results = {y.name for y, name in zip(results, outputs, strict=True) if y.name == name}
        try:
            named = [self._output(y, name, params) for y, name in zip(results, outputs, strict=True)]
        except Violation as violation:  # a result is only made here: no value has its extents
            self.diagnostics.violation(violation, main.loc)
            return None
        nodes = needed(self.main.nodes, [y.name for y in named])
        used = {name for node in nodes for name in read_by(node)} | {y.name for y in named}
        tensors = [y for name, y in self.constants.items() if name in used]
        size = sum(y.array.nbytes for y in tensors if y.array is not None)
        if data is None and size > LARGEST:
            message = f"the constants are {size} bytes, and a file of ONNX holds less than 2 GB"
            self.diagnostics.error(NOT_TRANSLATABLE, message, main.loc, help="keep them in a file of their own: --external-data")
            return None
        graph = onnx.helper.make_graph(
            nodes,
            main.name,
            [self.info(y.name, y.dtype, y.shape) for y in params],
            [self.info(y.name, y.dtype, y.shape) for y in named],
            [self._tensor(y, data) for y in tensors],
            value_info=self._infos({o for node in nodes for o in node.output} - {y.name for y in named}),
        )
        return self._model(graph)

    def _names(self) -> list[str]:
        """The names of the outputs. A value that is an output has that name from the start; other values keep theirs."""
        main, given = self.program.main, list[str]()
        for x, name in zip(main.results, result_names(main), strict=True):
            t = operand_type(x)
            parts = [f"{name}.{k}" for k in range(len(leaves(t)))] if isinstance(t, TupleType) else [name]
            given.extend(map(self.fresh, parts))
            if isinstance(x, Value) and x.op is not None and isinstance(t, TensorType):
                self.wanted.setdefault(x, given[-1])
        for v in (v for op in main.body for v in op.results):
            if v not in self.wanted and v.name not in self.names:
                self.names.add(v.name)
                self.wanted[v] = v.name
        return given

    def _output(self, y: Out, name: str, params: list[Out]) -> Out:
        """A result under its name. A value that no subgraph reads, and that is no other result, gets this name."""
        self.whole(y)
        if y.name == name:
            return y
        nodes = self.main.nodes
        made = y.name not in self.results and any(y.name in n.output for n in nodes)
        if made and not any(n.attribute and y.name in inner_reads(n) for n in nodes):
            rename(nodes, y.name, name)
            y.name = name
            self.results.add(name)
            return y
        self.main.nodes.append(onnx.helper.make_node("Identity", [y.name], [name]))
        return Out(name, y.dtype, y.shape, self.main)

    def _infos(self, names: set[str]) -> list[onnx.ValueInfoProto]:
        """The ValueInfoProtos of the values that have names in the program."""
        outs = (y for tree in self.values.values() for y in flatten(tree) if isinstance(y, Out) and y.body is self.main)
        return [self.info(y.name, y.dtype, y.shape) for name, y in {y.name: y for y in outs}.items() if name in names]

    def _tensor(self, y: Out, data: tuple[str, IO[bytes]] | None) -> onnx.TensorProto:
        """An initializer; one of more than a page goes to the file of `data`."""
        assert y.array is not None
        proto = onnx.TensorProto(name=y.name, data_type=NUMBERS[y.dtype], dims=y.array.shape)
        raw = arrays.pack(y.array, y.dtype)
        if data is None or len(raw) < 1024:
            proto.raw_data = raw
            return proto
        location, file = data
        start = file.tell()
        file.write(bytes(-start % _ALIGN))
        proto.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", start + -start % _ALIGN), ("length", len(raw))):
            proto.external_data.add(key=key, value=str(value))
        file.write(raw)
        return proto

    def _model(self, graph: onnx.GraphProto) -> onnx.ModelProto | None:
        opsets = [onnx.helper.make_opsetid("", self.opset)]
        present = {node.domain for node in graph.node}
        opsets += [onnx.helper.make_opsetid(domain, number) for domain, number in DOMAINS.items() if domain in present]
        proto = onnx.helper.make_model(graph, opset_imports=opsets, producer_name="ptir-tools", producer_version=_version())
        for key, value in self.program.attrs.get(METADATA, {}).items():
            proto.metadata_props.add(key=key, value=value)
        proto.doc_string = self.program.attrs.get("doc", "")
        proto.ir_version = onnx.helper.find_min_ir_version_for(opsets[:1])
        return proto


def _version() -> str:
    try:
        return version("ptir-tools")
    except PackageNotFoundError:
        return ""
