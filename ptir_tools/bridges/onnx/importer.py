"""ModelProto to PTIR: nodes are translated in order, functions are expanded, and refused nodes are collected."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from ptir_tools.bridges import extents
from ptir_tools.bridges.extents import Extent, Size
from ptir_tools.bridges.node import Place
from ptir_tools.bridges.onnx import declared, schemas
from ptir_tools.bridges.onnx.folding import fold
from ptir_tools.bridges.onnx.listing import Listing, graphs_of
from ptir_tools.bridges.onnx.ops import bounded, contrib
from ptir_tools.bridges.onnx.protocols import POISON, Attribute, Bounded, Datum, Items, Poisoned, Scope, spelled
from ptir_tools.bridges.onnx.signature import Signature, is_sequence, tensor_of
from ptir_tools.bridges.onnx.stored import Stored
from ptir_tools.bridges.onnx.table import (
    DEFAULTS,
    DOMAIN,
    DTYPES,
    HANDLERS,
    KEPT,
    METADATA,
    REFUSED,
    Broadcasting,
    Node,
    refused,
)
from ptir_tools.core.arrays import Array
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import BIND, Options, Program
from ptir_tools.core.expressions import of_dim
from ptir_tools.core.ir import Element, Operand, Value, result_names
from ptir_tools.core.lazy import lazy, np
from ptir_tools.core.limits import Expansion
from ptir_tools.core.source import Loc, Source
from ptir_tools.core.symbols import DERIVED
from ptir_tools.core.typed import TYPE_CHECKING, TypeVar
from ptir_tools.core.types import Dim, Shape, Sym, TensorType
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir import GIVEN, PLACEHOLDERS
from ptir_tools.dialects.ptir.builder.build import Tensor

if TYPE_CHECKING:
    import onnx
else:
    onnx = lazy("onnx")

_DOMAINS = {"ai.onnx": ""}  # two names of the default domain
# Operators whose results are integers also as floats, if their operands are.
_INTEGERS_STAY = ("Add", "Ceil", "Concat", "Floor", "Gather", "Mul", "Neg", "Reshape", "Slice", "Squeeze", "Sub", "Unsqueeze")
_BINDING = 1 << 12  # the most elements of an array that is folded


T = TypeVar("T")

# What a handler may raise for operands or lists of other lengths than its operator has. ONNX says then what is wrong.
_UNFIT = (LookupError, ValueError)


class Importer:
    """One reading of a model."""

    def __init__(self, model: onnx.ModelProto, source: Source, diagnostics: Diagnostics, options: Options) -> None:
        self.model, self.source, self.diagnostics, self.options = model, source, diagnostics, options
        self.listing = Listing(model.graph, source)
        self.signature, self.stored = Signature(options), Stored(source)
        self.place = Place(source)
        self.functions = {(_domain(f.domain), f.name, f.overload): f for f in model.functions}
        self.needed: dict[str, None] = {}  # inputs that must be constants
        self.counts: dict[Operand, list[Size]] = {}  # the integers and extents that tensors of another dtype hold
        self.declared: dict[str, onnx.TypeProto.Tensor] = {}  # types of values by name, as the file has them
        self.squeezed: dict[Sym, Loc] = {}  # the symbols of axes that a Squeeze drops when they are 1, and where
        self.assumed: dict[str, Dim] = {}  # extents that the run finds not to be negative, by what that means
        self.bounded: dict[Operand, Bounded] = {}  # tensors with rows that do not count
        self.graph = Broadcasting()
        self.graph.caller = self.place
        self.expansion = Expansion(len(self.listing.nodes) + sum(len(f.node) for f in model.functions))
        self.depth = 0

    def program(self) -> Program | None:
        """The program, or None after errors.

        A Squeeze without axes drops an axis with a symbol only when that is 1. The axis stays, and the symbol must be 2 or more,
        unless the model needs that it is dropped: an output has too many axes, or nodes do not fit. Then the symbol is 1.
        """
        before, errors = len(self.diagnostics.items), self.diagnostics.errors
        program = self._program()
        if not self.squeezed or (program is not None and not self._outputs_have_more_axes(program)):
            if program is not None and self.squeezed:
                table: dict[str, Dim] = program.main.attrs.setdefault(DERIVED, {})
                for d in self.squeezed:
                    table[f"{spelled(str(of_dim(d)))}_is_not_1"] = extents.dim(extents.of(d) - 2)
            return program
        found = self.diagnostics.items[before:], self.diagnostics.errors
        self.diagnostics.items[before:], self.diagnostics.errors = [], errors
        ones = {d.name: 1 for d in self.squeezed if d.poly is None}
        for name, loc in ((d.name, loc) for d, loc in self.squeezed.items() if d.poly is None):
            message = f"Squeeze without axes drops the axis of `{name}`, as the outputs have too many axes otherwise: {name} is 1"
            self.diagnostics.warning("InvalidModel", message, loc)
        options = self.options.having(bind={**self.options[BIND], **ones})
        again = Importer(self.model, self.source, self.diagnostics, options).program() if ones else None
        if again is None:
            self.diagnostics.items[before:], self.diagnostics.errors = found
        return again or program

    def _outputs_have_more_axes(self, program: Program) -> bool:
        """Whether an output has more axes than the model declares."""
        declared = {v.name: v.type.tensor_type for v in self.model.graph.output}
        ranks = {name: len(t.shape.dim) for name, t in declared.items() if t.HasField("shape")}
        results = zip(result_names(program.main), program.main.result_types, strict=True)
        return any(isinstance(t, TensorType) and t.rank > ranks.get(name, t.rank) for name, t in results)

    def _program(self) -> Program | None:
        graph = self.model.graph
        known = ((v.name, tensor_of(v)) for v in (*graph.value_info, *graph.output))
        self.declared = {name: t for name, t in known if t is not None}
        self._named_once(graph)
        newest, opset = onnx.defs.onnx_opset_version(), _opsets(self.model).get("", 1)
        if not 1 <= opset <= newest:
            message = f"the model is of operator set {opset}, and the package `onnx` {onnx.__version__} knows 1 to {newest}"
            self.diagnostics.error("UnsupportedOnnx", message, None, help="pip install -U onnx")
            return None
        scope = Scope(self, self.graph, _opsets(self.model), {}, True)
        given = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
        given -= {*self.options[GIVEN], *self.options[PLACEHOLDERS]}  # an initializer that is an input, too, is its default
        self.signature.bind(graph)
        self.initializers(graph, scope)
        for value in graph.input:
            if value.name not in given:
                elements = self.signature.elements(value) if is_sequence(value) else []
                items = [self._input(x, self.listing.input(value.name)) for x in elements or [value]]
                scope.values[value.name] = Items(tuple(items)) if elements and POISON not in items else items[0]
        self.run(graph.node, scope)
        results = [result for value in graph.output for result in self._results(scope, value.name)]
        if self.diagnostics.errors:
            return None
        program = self.graph.returns(*(x for _, x in results))
        program.source = self.source
        if self.assumed:
            program.main.attrs[DERIVED] = {**program.main.attrs.get(DERIVED, {}), **self.assumed}
        program.attrs[METADATA] = {p.key: p.value for p in self.model.metadata_props}
        if self.model.doc_string:
            program.attrs["doc"] = self.model.doc_string
        program.attrs["bound"] = [name for name in self.signature.numbers if name in self.signature.symbols]
        if any(name != own for name, own in self.signature.names.items()):
            program.main.attrs["input_names"] = list(self.signature.names.values())
        names = [name for name, _ in results]
        if names != [x.operand.name for _, x in results if isinstance(x.operand, Value)]:
            program.main.attrs["output_names"] = names
        return program

    def _named_once(self, graph: onnx.GraphProto) -> None:
        """Report names that two values or two outputs have."""
        defined = [(v.name, self.listing.input(v.name)) for v in graph.input]
        defined += [(name, self.listing.node(node)) for node in graph.node for name in node.output if name]
        for what, names in (("values", defined), ("outputs", [(v.name, 0) for v in graph.output])):
            seen: set[str] = set()
            for name, loc in names:
                if name in seen:
                    self.diagnostics.error("InvalidModel", f"two {what} are called `{name}`", loc or None)
                seen.add(name)
        for name, count in Counter(t.name for t in graph.initializer).items():
            if count > 1:
                self.diagnostics.error("InvalidModel", f"two initializers are called `{name}`", None)

    def _input(self, value: onnx.ValueInfoProto, loc: Loc) -> Datum:
        try:
            return self.signature.datum(value, self.graph)
        except Violation as violation:
            self.diagnostics.violation(violation, loc)
            return POISON

    def initializers(self, graph: onnx.GraphProto, scope: Scope) -> None:
        """Define the initializers of a graph."""
        for t in graph.initializer:
            scope.values[t.name] = self._initializer(self.stored.array, t)
        for s in graph.sparse_initializer:
            scope.values[s.values.name] = self._initializer(self.stored.dense, s)

    def _initializer(self, read: Callable[[T], Array], proto: T) -> Datum:
        try:
            return read(proto)
        except Violation as violation:
            self.diagnostics.violation(violation, None)
            return POISON

    def _results(self, scope: Scope, name: str) -> list[tuple[str, Tensor]]:
        """The results for the output `name`: one, or one for each element of a sequence."""
        try:
            datum = scope.datum(name)
            parts = {f"{name}.{k}": x for k, x in enumerate(datum.items)} if isinstance(datum, Items) else {name: datum}
            results = [(part, scope.tensor(x, part)) for part, x in parts.items()]
        except Poisoned:
            return []
        except Violation as violation:
            self.diagnostics.error(violation.code, f"the output `{name}`: {violation.message}", None, help=violation.help)
            return []
        made = [(part, x) for part, x in results if x is not None]
        counts = [(f"{part}.count", b.count) for part, x in made if (b := self._bound(x))]
        return [*made, *counts]

    def run(self, nodes: Sequence[onnx.NodeProto], scope: Scope) -> None:
        """Translate nodes in order. A refused node is reported, and nodes that depend on it are skipped."""
        for proto in nodes:
            self.expansion.charge(1, self.place.loc)
            before = self.place.loc
            self.place.loc = self.listing.node(proto, before)
            try:
                outputs = self.translate(proto, scope)
            except Poisoned:
                outputs = None
            except Violation as violation:
                violation.at = self.listing.piece(violation, self.place.loc, proto, _shapes(proto, scope))
                called = f" (node `{proto.name}`)" if proto.name else ""
                violation.message += called
                self.diagnostics.violation(violation, self.place.loc)
                outputs = None
            except extents.Unknown as unknown:
                self.diagnostics.error(
                    "UnsupportedOnnx", f"{proto.op_type}: {unknown}", self.place.loc, help="give the symbols with --bind"
                )
                outputs = None
            except _UNFIT:
                if not (message := schemas.malformed(proto, scope.values, scope.opsets, self.model.ir_version or 1)):
                    raise  # a fault of this toolkit: ONNX finds nothing wrong
                self.diagnostics.error("InvalidModel", message, self.place.loc)
                outputs = None
            for k, name in enumerate(proto.output):
                if name:
                    scope.values[name] = POISON if outputs is None else self._output(outputs, k, proto, scope)
            self.place.loc = before

    def _output(self, outputs: Sequence[Datum], k: int, proto: onnx.NodeProto, scope: Scope) -> Datum:
        """Output `k` of a node, named; a missing one is reported."""
        if k >= len(outputs) or outputs[k] is None:
            message = f"output {k} of {proto.op_type}, `{proto.output[k]}`, is not one that is computed here"
            self.diagnostics.error("UnsupportedOnnx", message, self.place.loc)
            return POISON
        return self._named(self._as_declared(outputs[k], proto.output[k], scope), proto.output[k], scope)

    def _as_declared(self, datum: Datum, name: str, scope: Scope) -> Datum:
        """A value whose type the file may declare. Reports another dtype as an error, as ONNX Runtime does, and another shape as
        a warning."""
        t = self.declared.get(name) if scope.top else None
        if t is None or not isinstance(datum, Tensor) or t.elem_type not in DTYPES:
            return datum
        if DTYPES[t.elem_type] is not datum.dtype:
            message = f"`{name}` is declared {DTYPES[t.elem_type]}, and is {datum.type}"
            self.diagnostics.error("InvalidModel", message, self.place.loc)
            return POISON
        wanted = [d.dim_value for d in t.shape.dim]
        pairs = [*zip(datum.shape, wanted, strict=False)]
        if t.HasField("shape") and (len(wanted) != datum.rank or any(isinstance(d, int) and n > 0 and d != n for d, n in pairs)):
            shape = ", ".join(str(n) if n else "?" for n in wanted)
            message = f"`{name}` is declared [{shape}], and is {datum.type}"
            self.diagnostics.warning("InvalidModel", message, self.place.loc)
        return datum

    def _named(self, datum: Datum, name: str, scope: Scope) -> Datum:
        fresh = isinstance(datum, Tensor) and isinstance(datum.operand, Value) and datum.operand.op is not None
        if scope.top and isinstance(datum, Tensor) and fresh and datum.operand is scope.block.region.body[-1].results[0]:
            datum.named(spelled(name))
        return datum

    def translate(self, proto: onnx.NodeProto, scope: Scope) -> list[Datum]:
        """The outputs of a node. Raises Violation for one that cannot be translated."""
        domain = _domain(proto.domain)
        attrs = {k: v for a in proto.attribute if (k := a.name) and (v := self._attribute(a, scope)) is not None}
        if (body := self.functions.get((domain, proto.op_type, proto.overload))) is not None:
            names = {*body.attribute, *(a.name for a in body.attribute_proto)}
            if unknown := [k for k in attrs if k not in names]:
                raise Violation("InvalidModel", f"the function {proto.op_type} has no attribute `{unknown[0]}`")
            if len(proto.input) > len(body.input):
                raise Violation("InvalidModel", f"the function {proto.op_type} has {len(body.input)} operands")
            return self.expand(body, proto, attrs, scope)
        opset = scope.opsets.get(domain)
        if opset is None:
            raise Violation("InvalidModel", f"the model imports no operators of domain `{domain}`, of which {proto.op_type} is")
        schema = schemas.find(proto.op_type, opset, domain)
        if schema is not None:
            schemas.check(schema, proto, opset, attrs)
            schemas.check_kinds(schema, proto, scope.values)
        defaults = DEFAULTS.get((domain, proto.op_type), {}) if schema is None else schemas.defaults(schema)

        def fresh() -> Node:
            return Node(scope, proto, attrs, opset, defaults, schema is None)

        node = fresh()
        read = [name for k, name in enumerate(proto.input) if k not in KEPT.get(proto.op_type, ())]
        if kind := next(filter(None, (self.stored.outside(scope.values.get(name)) for name in read)), ""):
            raise refused(f"PTIR has no {kind}; it is read where it is dequantized or cast")
        if not domain and all(isinstance(scope.values.get(name), np.ndarray) for name in proto.input):
            known = [x for name in proto.input if isinstance(x := scope.datum(name), np.ndarray)]
            if sum(x.size for x in known) <= _BINDING and (folded := fold(fresh(), known)):
                return [*folded]
        handler = HANDLERS.get((domain, proto.op_type))
        if handler is None:
            if domain == DOMAIN and (body := contrib.function_of(node)) is not None:
                return self.expand(body, proto, attrs, scope)
            if (domain, proto.op_type) in REFUSED:
                raise refused(f"{proto.op_type}: {REFUSED[domain, proto.op_type]}")
            if schema is None:
                raise schemas.unknown(proto, opset, domain)
            if not (schema.has_function or schema.has_context_dependent_function):
                raise refused(f"there is no translation of {proto.op_type}")
        if (picked := self._chosen(fresh(), proto, scope)) is not None:
            return picked
        operands = [scope.datum(name) if name else None for name in proto.input]
        kept = self._carried(fresh(), operands) if self.bounded and handler is not None else None
        if handler is not None:
            result = handler(node)
            if left := node.ignored():
                raise refused(f"{proto.op_type} with {left}")
            results = list(result) if isinstance(result, Sequence) else [result]
            if kept is not None:
                self.bounded |= {x.operand: kept for x in results if isinstance(x, Tensor)}
            if not domain and any(isinstance(x, Tensor) and x.operand in self.counts for x in operands):
                self._count(fresh(), operands, results)
            return results
        assert schema is not None
        return self.expand(schemas.body(schema, proto, opset, operands, scope.attrs), proto, {**defaults, **attrs}, scope)

    def _chosen(self, node: Node, proto: onnx.NodeProto, scope: Scope) -> list[Datum] | None:
        """The outputs of a node whose operand decides their type and is not known, where the file declares their types."""
        if node.proto.domain or not scope.top or not declared.decides(proto.op_type):
            return None
        shapes = [self.signature.declared(self.declared.get(name)) for name in proto.output]
        known = [s for s in shapes if s is not None]
        choice = declared.choice(node, known) if known and len(known) == len(shapes) else None
        if choice is None:
            return None
        name = proto.input[choice.operand]
        before, rows = scope.values[name], []
        for value in choice.values:
            scope.values[name] = value
            try:
                made = [scope.tensor(x) for x in self.translate(proto, scope)]
            finally:
                scope.values[name] = before
            rows.append([x for x in made if x is not None])
        columns = [[*column] for column in zip(*rows, strict=True)]
        if any(x.shape != shape for column, shape in zip(columns, known, strict=False) for x in column):
            return None
        return [choice.chosen(column) for column in columns]

    def _bound(self, datum: Datum) -> Bounded | None:
        return self.bounded.get(datum.operand) if isinstance(datum, Tensor) else None

    def _carried(self, node: Node, operands: Sequence[Datum]) -> Bounded | None:
        """The rows that count of a node's results, where its operands have some that do not. Raises Violation."""
        held = {i: b for i, x in enumerate(operands) if (b := self._bound(x)) is not None}
        captured = [name for g in graphs_of(node.proto) for name in node.scope.captured(g)]
        if any(self._bound(node.scope.values.get(name)) for name in captured):
            raise refused(f"a subgraph of {node.name} reads rows whose count depends on data")
        return bounded.carried(node, operands, held) if held else None

    def _attribute(self, a: onnx.AttributeProto, scope: Scope) -> Attribute:
        if a.ref_attr_name:
            return scope.attrs.get(a.ref_attr_name)
        value = onnx.helper.get_attribute_value(a)
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], bytes):
            return [v.decode("utf-8", "replace") for v in value]
        return value

    def expand(self, body: onnx.FunctionProto, proto: onnx.NodeProto, attrs: Mapping[str, object], scope: Scope) -> list[Datum]:
        """The outputs of a function, whose nodes are appended to the block of the caller."""
        bound = {a.name: onnx.helper.get_attribute_value(a) for a in body.attribute_proto} | dict(attrs)
        opsets = {**scope.opsets, **{_domain(o.domain): o.version for o in body.opset_import}}
        inner = Scope(self, scope.block, opsets, bound, False)
        inner.made = scope.made
        for k, name in enumerate(body.input):
            inner.values[name] = scope.datum(proto.input[k]) if k < len(proto.input) and proto.input[k] else None
        self.depth += 1
        if self.depth > 64:
            raise Violation("InvalidModel", f"function {body.name} calls itself")
        errors = self.diagnostics.errors
        self.run(body.node, inner)
        self.depth -= 1
        if self.diagnostics.errors > errors:
            raise Poisoned
        requested = [k < len(proto.output) and bool(proto.output[k]) for k in range(len(body.output))]
        return [inner.datum(name) if used else None for name, used in zip(body.output, requested, strict=True)]

    def counted(self, datum: Datum) -> list[Size] | None:
        """The integers and extents in a datum of any dtype; None when it holds other values or is not constant."""
        if isinstance(datum, Tensor):
            return self.counts.get(datum.operand)
        if datum is None or isinstance(datum, Items):
            return None
        if datum.dtype != object and not (datum == np.floor(datum)).all():
            return None
        return extents.as_dims(datum)

    def _count(self, node: Node, operands: Sequence[Datum], results: Sequence[Datum]) -> None:
        """Keep the integers and extents that tensors of another dtype than si64 hold, where they are computed from such ones."""
        known: list[Array] = []
        for x in operands:
            counts = self.counted(x)
            shape = x.shape if isinstance(x, (Tensor, np.ndarray)) else None
            if counts is None or shape is None or len(counts) != math.prod(d if isinstance(d, int) else -1 for d in shape):
                return
            known.append(extents.vector(counts).reshape([d for d in shape if isinstance(d, int)]))
        exact = all(not isinstance(x, Tensor) or x.dtype.is_integer for x in operands) or node.name in _INTEGERS_STAY
        for x, array in zip(results, (fold(node, known) or ()) if exact else (), strict=False):
            if isinstance(x, Tensor) and array is not None and array.dtype.kind in "iO":
                self.counts[x.operand] = extents.as_dims(array)

    def not_zero(self, extent: Extent) -> None:
        """Assume that an extent, or its negative, is not 0. The run checks it."""
        positive = -extent if extents.most(extent) <= 0 else extent
        self.assumed[f"{spelled(str(positive))}_is_not_0"] = extents.dim(positive - 1)

    def wanted(self, scope: Scope, name: str) -> None:
        """Record the inputs that the value `name` is computed from: they must be constant."""
        entry = scope.values.get(name)
        stack = [entry.operand] if isinstance(entry, Tensor) else []
        seen: set[int] = set()
        params = self.graph.region.params
        while stack:
            x = stack.pop()
            value = x.value if isinstance(x, Element) else x
            if not isinstance(value, Value) or id(value) in seen:
                continue
            seen.add(id(value))
            if value.op is not None:
                stack.extend(value.op.operands)
            elif value in params:
                self.needed[value.name] = None


def _domain(name: str) -> str:
    return _DOMAINS.get(name, name)


def _opsets(model: onnx.ModelProto) -> dict[str, int]:
    return {_domain(o.domain): o.version for o in model.opset_import}


def _shapes(proto: onnx.NodeProto, scope: Scope) -> dict[str, Shape]:
    """The shapes of the operands of a node."""
    return {name: x.shape for name in proto.input if isinstance(x := scope.values.get(name), (Tensor, np.ndarray))}
