"""ModelProto to PTIR: nodes are translated in order, functions are expanded, and refused nodes are collected."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache

from ptir_tools.bridges import extents
from ptir_tools.bridges.extents import Extent, Size
from ptir_tools.bridges.node import Place
from ptir_tools.bridges.onnx import declared
from ptir_tools.bridges.onnx.folding import fold
from ptir_tools.bridges.onnx.ops import bounded, contrib
from ptir_tools.bridges.onnx.protocols import OF_NUMPY, POISON, Attribute, Bounded, Datum, Items, Poisoned, Scope, spelled
from ptir_tools.bridges.onnx.table import (
    DEFAULTS,
    DOMAIN,
    DTYPES,
    HANDLERS,
    KEPT,
    METADATA,
    NAMES,
    NUMBERS,
    REFUSED,
    WIDER,
    Broadcasting,
    Node,
    dtype_of,
    refused,
)
from ptir_tools.core import arrays, places
from ptir_tools.core.arrays import Array
from ptir_tools.core.diagnostics import Diagnostics, UsageError, unknown_name
from ptir_tools.core.dialect import BIND, SHAPES, Options, Program
from ptir_tools.core.dtypes import SI64, DType, Kind
from ptir_tools.core.expressions import of_dim
from ptir_tools.core.files import is_below, open_data
from ptir_tools.core.ir import Element, Operand, Value, result_names
from ptir_tools.core.lazy import lazy, np
from ptir_tools.core.limits import Expansion, require_memory
from ptir_tools.core.source import Loc, Source, pack
from ptir_tools.core.spelling import did_you_mean, proposed
from ptir_tools.core.symbols import DERIVED
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import Dim, Sym, TensorType, sym
from ptir_tools.core.violations import Place as Piece
from ptir_tools.core.violations import Violation, operand
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


# What a handler may raise for operands or lists of other lengths than its operator has. ONNX says then what is wrong.
_UNFIT = (LookupError, ValueError)


class Importer:
    """One reading of a model."""

    def __init__(self, model: onnx.ModelProto, source: Source, diagnostics: Diagnostics, options: Options) -> None:
        self.model, self.source, self.diagnostics, self.options = model, source, diagnostics, options
        self.constants, self.numbers = options[PLACEHOLDERS], dict(options[BIND])
        self.symbols: dict[str, None] = {}  # the names of the extents of inputs
        self.folder = os.path.dirname(source.name)
        self.place = Place(source)
        self.functions = {(_domain(f.domain), f.name, f.overload): f for f in model.functions}
        self.locs: dict[int, Loc] = {}
        self.kept: list[onnx.NodeProto] = []  # keeps the nodes alive, since their identity is their key
        self.needed: dict[str, None] = {}  # inputs that must be constants
        self.inputs: dict[str, str] = {}  # parameters by their names in the model
        self.counts: dict[Operand, list[Size]] = {}  # the integers and extents that tensors of another dtype hold
        self.declared: dict[str, onnx.TypeProto.Tensor] = {}  # types of values by name, as the file has them
        self.squeezed: dict[Sym, Loc] = {}  # the symbols of axes that a Squeeze drops when they are 1, and where
        self.assumed: dict[str, Dim] = {}  # extents that the run finds not to be negative, by what that means
        self.bounded: dict[Operand, Bounded] = {}  # tensors with rows that do not count
        self.graph = Broadcasting()
        self.graph.caller = self.place
        self.widened: dict[int, tuple[Array, str]] = {}  # constants of dtypes that PTIR has not, by identity
        self.expansion = Expansion(0)
        self.outside_bytes = 0  # of external data that were read
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
        known = ((v.name, _tensor_of(v)) for v in (*graph.value_info, *graph.output))
        self.declared = {name: t for name, t in known if t is not None}
        self._list(graph)
        self._named_once(graph)
        newest, opset = onnx.defs.onnx_opset_version(), _opsets(self.model).get("", 1)
        if not 1 <= opset <= newest:
            message = f"the model is of operator set {opset}, and the package `onnx` {onnx.__version__} knows 1 to {newest}"
            self.diagnostics.error("UnsupportedOnnx", message, None, help="pip install -U onnx")
            return None
        scope = Scope(self, self.graph, _opsets(self.model), {}, True)
        given = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
        given -= {*self.options[GIVEN], *self.constants}  # an initializer that is an input, too, is its default
        inputs = {v.name: v for v in graph.input}
        for name in (*self.constants, *self.options[SHAPES]):
            if name not in inputs and not _is_sequence(inputs.get(name.rpartition(".")[0])):
                raise unknown_name(
                    "input", name, inputs, " to make a constant" if name in self.constants else " whose shape is given"
                )
        self._shapes(graph)
        self.initializers(graph, scope)
        for value in graph.input:
            if value.name not in given:
                elements = self._elements(value) if _is_sequence(value) else []
                items = [self._input(x, self._guard(value.name)) for x in elements or [value]]
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
        program.attrs["bound"] = [name for name in self.numbers if name in self.symbols]
        if any(name != own for name, own in self.inputs.items()):
            program.main.attrs["input_names"] = list(self.inputs.values())
        names = [name for name, _ in results]
        if names != [x.operand.name for _, x in results if isinstance(x.operand, Value)]:
            program.main.attrs["output_names"] = names
        return program

    def _named_once(self, graph: onnx.GraphProto) -> None:
        """Report names that two values or two outputs have."""
        defined = [(v.name, self._guard(v.name)) for v in graph.input]
        defined += [(name, self.locs[id(node)]) for node in graph.node for name in node.output if name]
        for what, names in (("values", defined), ("outputs", [(v.name, 0) for v in graph.output])):
            seen: set[str] = set()
            for name, loc in names:
                if name in seen:
                    self.diagnostics.error("InvalidModel", f"two {what} are called `{name}`", loc or None)
                seen.add(name)
        for name, count in Counter(t.name for t in graph.initializer).items():
            if count > 1:
                self.diagnostics.error("InvalidModel", f"two initializers are called `{name}`", None)

    def _guard(self, name: str) -> Loc:
        return self.locs.get(hash(name), 0)

    def _list(self, graph: onnx.GraphProto) -> None:
        """Set the source's text to a listing, one line per node, for the spans of diagnostics."""
        lines: list[str] = []
        at = 0

        def add(line: str, key: int) -> None:
            nonlocal at
            self.locs[key] = pack(at + len(line) - len(line.lstrip()), at + len(line))
            lines.append(line)
            at += len(line) + 1

        def walk(g: onnx.GraphProto, indent: str) -> None:
            for value in g.input:
                add(f"{indent}input {value.name}", hash(value.name) if not indent else 0)
            for node in g.node:
                outputs = ", ".join(filter(None, node.output))
                inputs = ", ".join([*node.input, *map(_attribute_text, node.attribute)])
                self.kept.append(node)
                add(f"{indent}{outputs} = {node.op_type}({inputs}){f'  // {node.name}' if node.name else ''}", id(node))
                for attribute in node.attribute:
                    for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                        walk(inner, indent + "  ")

        walk(graph, "")
        self.expansion = Expansion(len(self.kept) + sum(len(f.node) for f in self.model.functions))
        self.source.text = "\n".join(lines) + "\n"

    def _elements(self, value: onnx.ValueInfoProto) -> list[onnx.ValueInfoProto]:
        """The elements of an input that is a sequence: as many as have a shape, `name.0`, `name.1` and so on."""
        names = (f"{value.name}.{k}" for k in range(len(self.options[SHAPES])))
        return [
            onnx.ValueInfoProto(name=name, type=value.type.sequence_type.elem_type)
            for name in itertools.takewhile(lambda name: name in self.options[SHAPES], names)
        ]

    def _input(self, value: onnx.ValueInfoProto, loc: Loc) -> Datum:
        try:
            t = _tensor_of(value)
            if t is None:
                kind = (value.type.WhichOneof("value") or "value without a type").removesuffix("_type")
                way = f"give the shape of each element: --shape {value.name}.0=2,3 --shape {value.name}.1=2,3"
                raise refused(f"input `{value.name}` is a {kind}; PTIR has tensors only", way if kind == "sequence" else None)
            dtype = dtype_of(t.elem_type)
            wanted = self.options[SHAPES].get(value.name)
            names = self._dims(value) if t.HasField("shape") else wanted
            if names is None or None in names:
                raise refused(f"input `{value.name}` has no rank", f"give its shape: --shape {value.name}=1,2,3")
            self.symbols.update((d, None) for d in names if isinstance(d, str))
            shape: list[Dim] = [self.numbers.get(d, sym(d)) if isinstance(d, str) else d for d in names if d is not None]
            if value.name in self.constants:
                return frozen(self.constants[value.name], dtype, shape, value.name)
            name, n = spelled(value.name), 0
            while name in self.inputs:
                name, n = f"{spelled(value.name)}_{n + 1}", n + 1
            self.inputs[name] = value.name
            return self.graph.input(name, dtype, shape)
        except Violation as violation:
            self.diagnostics.violation(violation, loc)
            return POISON

    def _dims(self, value: onnx.ValueInfoProto) -> list[int | str]:
        """The extents of an input: numbers, and the names of symbols. Exporters write -1 and 0 for one that is not known."""
        result: list[int | str] = []
        t = _tensor_of(value)
        for i, d in enumerate(t.shape.dim if t is not None else ()):
            symbol = os.fsdecode(d.dim_param)  # protobuf gives bytes for what is not UTF-8
            known = any(c.isalnum() for c in symbol)  # Paddle calls every unknown extent `?`
            result.append(int(d.dim_value) if d.dim_value > 0 else symbol if known else f"{spelled(value.name)}_{i}")
        return result

    def _shapes(self, graph: onnx.GraphProto) -> None:
        """Bind the symbols that the given shapes of inputs determine. Raises UsageError."""
        for value in graph.input:
            wanted = self.options[SHAPES].get(value.name)
            if wanted is None or (t := _tensor_of(value)) is None or not t.HasField("shape"):
                continue
            dims = self._dims(value)
            for d, n in zip(dims, wanted, strict=False):
                if n is not None and (d if isinstance(d, int) else self.numbers.setdefault(d, n)) != n:
                    bound = d if isinstance(d, int) else f"{d} = {self.numbers[d]}"
                    raise UsageError(f"the shape {list(wanted)} for input `{value.name}` has {n} where its extent is {bound}")
            if len(dims) != len(wanted):
                raise UsageError(f"the shape {list(wanted)} for input `{value.name}` has another rank than {dims}")

    def initializers(self, graph: onnx.GraphProto, scope: Scope) -> None:
        """Define the initializers of a graph."""
        for t in graph.initializer:
            try:
                scope.values[t.name] = self.array(t)
            except Violation as violation:
                self.diagnostics.violation(violation, None)
                scope.values[t.name] = POISON
        for s in graph.sparse_initializer:
            try:
                scope.values[s.values.name] = self.dense(s)
            except Violation as violation:
                self.diagnostics.violation(violation, None)
                scope.values[s.values.name] = POISON

    def outside(self, scope: Scope, name: str) -> str:
        """The name of the dtype of a constant that PTIR lacks and that is stored in a wider one; else ""."""
        entry = scope.values.get(name)
        return self.widened[id(entry)][1] if id(entry) in self.widened else ""

    def array(self, t: onnx.TensorProto) -> Array:
        """The array of a TensorProto. A dtype that PTIR lacks becomes a wider one, which has all its numbers. Raises
        Violation."""
        if t.data_location == 1:
            return self._external(t, dtype_of(t.data_type))
        wider = WIDER.get(t.data_type)
        dtype = arrays.numpy_dtype(wider or dtype_of(t.data_type))
        try:
            stored: Array = onnx.numpy_helper.to_array(t)
            result: Array = stored.view(dtype) if wider is None else stored.astype(dtype)
        except (ValueError, TypeError, IndexError) as error:
            raise Violation("InvalidModel", f"initializer `{t.name}` does not have the bytes of its type: {error}") from None
        if wider is not None:
            self.widened[id(result)] = result, NAMES[t.data_type]
        return result

    def _external(self, t: onnx.TensorProto, dtype: DType) -> Array:
        where = {e.key: e.value for e in t.external_data}
        path = os.path.join(self.folder, where.get("location", ""))
        if not is_below(path, self.folder) and os.path.realpath(path) != os.path.realpath(self.source.name):
            raise Violation("InvalidModel", f"initializer `{t.name}` is kept in {path}, outside of the model's folder")
        count = math.prod(t.dims)
        size = dtype.packed_bytes(count)
        self.outside_bytes += size
        require_memory(self.outside_bytes)
        try:
            with open_data(path) as file:  # its bytes become those of the constant: they are in memory once
                file.seek(int(where.get("offset", 0)))
                data = file.read(size) if size <= os.fstat(file.fileno()).st_size else b""
            if len(data) != size or int(where.get("length", size)) != size:
                raise ValueError(f"its type has {size} bytes")
        except (OSError, ValueError) as error:
            raise Violation("InvalidModel", f"initializer `{t.name}` cannot be read from {path}: {error}") from None
        if dtype.bits == 4:
            return arrays.unpack(data, dtype, count).reshape(tuple(t.dims))
        return np.frombuffer(data, arrays.numpy_dtype(dtype)).reshape(tuple(t.dims))

    def dense(self, s: onnx.SparseTensorProto) -> Array:
        """The array of a SparseTensorProto."""
        values, indices, shape = self.array(s.values), self.array(s.indices), np.array(s.dims, np.int64)
        bounds = shape if indices.ndim == 2 else np.array([math.prod(s.dims)])
        fits = indices.dtype == np.int64 and values.ndim == 1 and len(indices) == len(values) and (shape >= 0).all()
        if not fits or indices.shape[1:] not in ((), shape.shape) or not ((indices >= 0) & (indices < bounds)).all():
            raise Violation(
                "InvalidModel", f"the indices of the sparse tensor `{s.values.name}` do not fit its shape {list(s.dims)}"
            )
        out = np.zeros(tuple(s.dims), values.dtype)
        out[tuple(indices.T) if indices.ndim == 2 else np.unravel_index(indices, out.shape)] = values
        return out

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
            self.place.loc = self.locs.get(id(proto), before)
            try:
                outputs = self.translate(proto, scope)
            except Poisoned:
                outputs = None
            except Violation as violation:
                violation.at = self._piece(violation, proto, scope)
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
                if not (message := self._malformed(proto, scope)):
                    raise  # a fault of this toolkit: ONNX finds nothing wrong
                self.diagnostics.error("InvalidModel", message, self.place.loc)
                outputs = None
            for k, name in enumerate(proto.output):
                if name:
                    scope.values[name] = POISON if outputs is None else self._output(outputs, k, proto, scope)
            self.place.loc = before

    def _piece(self, violation: Violation, proto: onnx.NodeProto, scope: Scope) -> str | Piece | None:
        """The piece of a node's line that a violation is about: an attribute or a value that it names, or the last operand whose
        shape it names; else the operator."""
        span, at, message = self.source.span(self.place.loc), violation.at, violation.message
        if span is None or (at is not None and places.find(self.source, span, at) is not None):
            return at
        names = [*re.findall(r"`([^`]+)`", message), message.partition(":")[0], *_ABOUT.get(message.partition(" ")[0], ())]
        if isinstance(at, Piece) and at.kind == "operand" and int(at.key) < len(proto.input):
            names.append(proto.input[int(at.key)])
        if isinstance(at, Piece) and at.kind == "attribute":
            names.insert(0, str(at.key))
        attributes = {a.name: _attribute_text(a) for a in proto.attribute}
        known = {*proto.input, *proto.output}
        wanted = [attributes.get(name, name if name in known else "") for name in names]
        wanted += [text for name, text in attributes.items() if re.search(rf"\b{re.escape(name)}\b", message)]
        shapes = {name: x.shape for name in proto.input if isinstance(x := scope.values.get(name), (Tensor, np.ndarray))}
        ends = {n: max(message.rfind(f", {'x'.join(map(str, s))}>"), message.rfind(str([*s]))) for n, s in shapes.items()}
        wanted += [name for name, end in sorted(ends.items(), key=lambda item: -item[1]) if end >= 0]
        written = self.source.text[span.start : span.end]
        return next((x for x in (*wanted, proto.op_type) if x and x in written), None)

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

    def _malformed(self, proto: onnx.NodeProto, scope: Scope) -> str:
        """What ONNX's checker, or its inference of types, finds wrong with a node; "" if nothing."""
        context = onnx.checker.C.CheckerContext()
        context.ir_version, context.opset_imports = self.model.ir_version or 1, dict(scope.opsets)
        try:
            onnx.checker.check_node(proto, context)
        except onnx.checker.ValidationError as result:
            return _first_line(result, proto)
        known = {name: scope.values.get(name) for name in proto.input if name}
        constant = [
            onnx.numpy_helper.from_array(x, n) for n, x in known.items() if isinstance(x, np.ndarray) and x.dtype != object
        ]
        typed = [onnx.ValueInfoProto(name=n, type=_type_proto(x)) for n, x in known.items() if x is not None and x is not POISON]
        outputs = [onnx.ValueInfoProto(name=name) for name in proto.output if name]
        graph = onnx.helper.make_graph([proto], "one", typed, outputs, constant)
        opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in scope.opsets.items()]
        try:
            whole = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=self.model.ir_version or 1)
            onnx.shape_inference.infer_shapes(whole, check_type=True, strict_mode=True, data_prop=True)
        except (onnx.shape_inference.InferenceError, ValueError) as result:
            return _first_line(result, proto)
        return ""

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
        schema = _schema(proto.op_type, opset, domain)
        if schema is not None:
            _check(schema, proto, opset, attrs)
            self._check_kinds(schema, proto, scope)
        defaults = DEFAULTS.get((domain, proto.op_type), {}) if schema is None else _defaults(schema)

        def fresh() -> Node:
            return Node(scope, proto, attrs, opset, defaults, schema is None)

        node = fresh()
        if any(
            k not in KEPT.get(proto.op_type, ()) and (kind := self.outside(scope, name)) for k, name in enumerate(proto.input)
        ):
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
                similar = [name for place, name in HANDLERS if place == domain]
                similar += [s.name for s in onnx.defs.get_all_schemas() if s.domain == domain]
                op = f"{domain and domain + '.'}{proto.op_type}"
                begun = [name for name in similar if len(proto.op_type) > 3 and name.startswith(proto.op_type)]
                meant = [other] if (other := _OTHERS.get(proto.op_type.lower())) else begun
                help = did_you_mean(meant[:1]) if meant else proposed(proto.op_type, similar, "{}")[0]
                raise refused(f"there is no operator {op} in operator set {opset}", help)
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
        return self.expand(self._body(schema, proto, opset, operands, scope), proto, {**defaults, **attrs}, scope)

    def _check_kinds(self, schema: onnx.defs.OpSchema, proto: onnx.NodeProto, scope: Scope) -> None:
        """Raises Violation for floats where the operator takes integers alone, such as indices, and the like for truth values."""
        wanted = _only(schema.name, schema.domain, schema.since_version)
        for i, name in enumerate(proto.input):
            x = scope.values.get(name)
            dtype = x.dtype if isinstance(x, Tensor) else OF_NUMPY.get(x.dtype.name) if isinstance(x, np.ndarray) else None
            if dtype is not None and (only := wanted[min(i, len(wanted) - 1)]) and only != _kind(dtype):
                raise Violation("InvalidModel", f"`{name}` is {dtype}, and {proto.op_type} takes {only} there", at=operand(i))

    def _chosen(self, node: Node, proto: onnx.NodeProto, scope: Scope) -> list[Datum] | None:
        """The outputs of a node whose operand decides their type and is not known, where the file declares their types."""
        if node.proto.domain or not scope.top or not declared.decides(proto.op_type):
            return None
        shapes = [self._shape_declared(name) for name in proto.output]
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

    def _shape_declared(self, name: str) -> tuple[Dim, ...] | None:
        """The shape that the file declares for a value: numbers and extents of inputs; None where it is not whole."""
        t = self.declared.get(name)
        if t is None or not t.HasField("shape"):
            return None
        shape: list[Dim] = []
        for d in t.shape.dim:
            if d.HasField("dim_value") and d.dim_value >= 0:
                shape.append(d.dim_value)
            elif d.dim_param in self.symbols:
                shape.append(self.numbers.get(d.dim_param, sym(d.dim_param)))
            else:
                return None
        return tuple(shape)

    def _bound(self, datum: Datum) -> Bounded | None:
        return self.bounded.get(datum.operand) if isinstance(datum, Tensor) else None

    def _carried(self, node: Node, operands: Sequence[Datum]) -> Bounded | None:
        """The rows that count of a node's results, where its operands have some that do not. Raises Violation."""
        held = {i: b for i, x in enumerate(operands) if (b := self._bound(x)) is not None}
        graphs = [g for a in node.proto.attribute for g in (*a.graphs, *([a.g] if a.HasField("g") else []))]
        captured = [name for g in graphs for name in node.scope.captured(g)]
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

    def _body(
        self, schema: onnx.defs.OpSchema, proto: onnx.NodeProto, opset: int, operands: Sequence[Datum], scope: Scope
    ) -> onnx.FunctionProto:
        """The FunctionProto of a composite. Raises Violation when the schema has none for these operands."""
        if schema.has_function:
            older = [v for v in schema.function_opset_versions if v <= opset]
            if older:
                return onnx.FunctionProto.FromString(schema.get_function_with_opset_version(max(older)))
        types = [b"" if x is None else _type_proto(x).SerializeToString() for x in operands]
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
        if not versions:
            raise refused(f"{proto.op_type} has no function body for operator set {opset}")
        plain = onnx.NodeProto()
        plain.CopyFrom(proto)
        for k, x in enumerate(operands):
            if x is None:
                plain.input[k] = ""  # a parameter of a function that its call leaves out
        if any(a.ref_attr_name for a in proto.attribute):
            del plain.attribute[:]
            given = [(a, scope.attrs.get(a.ref_attr_name) if a.ref_attr_name else a) for a in proto.attribute]
            result = (x if x is a else onnx.helper.make_attribute(a.name, x) for a, x in given if x is not None)
            plain.attribute.extend(result)
        result = schema.get_context_dependent_function_with_opset_version(max(versions), plain.SerializeToString(), types)
        return onnx.FunctionProto.FromString(result)

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


def _first_line(error: Exception, proto: onnx.NodeProto) -> str:
    said = next(iter(str(error).strip().splitlines()), f"{proto.op_type} is malformed")
    return said.rpartition("InferenceError] ")[2]


def _tensor_of(value: onnx.ValueInfoProto) -> onnx.TypeProto.Tensor | None:
    """The type of an input that is a tensor, or an optional one, which is taken as there; None for others."""
    t = value.type
    if t.HasField("optional_type"):
        t = t.optional_type.elem_type
    return t.tensor_type if t.HasField("tensor_type") else None


def _is_sequence(value: onnx.ValueInfoProto | None) -> bool:
    return value is not None and value.type.HasField("sequence_type")


def frozen(given: object, dtype: DType, shape: Sequence[Dim], name: str) -> Array:
    """An input that is a constant: an array, or the text of a number or list. Raises UsageError."""
    try:
        array = np.asarray(json.loads(given) if isinstance(given, str) else given).astype(arrays.numpy_dtype(dtype))
    except (ValueError, TypeError):
        raise UsageError(f"--set {name}={given}: a number or a list of numbers is wanted") from None
    fits = len(shape) == array.ndim and all(isinstance(d, Sym) or d == n for d, n in zip(shape, array.shape, strict=True))
    if not fits:
        raise UsageError(f"--set {name}: the input has shape {list(shape)}, the value {list(array.shape)}")
    return array


def _domain(name: str) -> str:
    return _DOMAINS.get(name, name)


# What other libraries call operators, in lower case.
_OTHERS = {
    "linear": "Gemm", "dense": "Gemm", "addmm": "Gemm", "fullyconnected": "Gemm", "multiply": "Mul", "subtract": "Sub",
    "divide": "Div", "power": "Pow", "minimum": "Min", "maximum": "Max", "permute": "Transpose", "view": "Reshape",
    "bmm": "MatMul", "mm": "MatMul",
    "dot": "MatMul", "upsample": "Resize", "interpolate": "Resize", "select": "Where", "convert": "Cast",
    "astype": "Cast", "negative": "Neg", "embedding": "Gather", "take": "Gather", "stack": "Concat", "cat": "Concat",
    "full": "ConstantOfShape", "arange": "Range", "conv2d": "Conv", "clamp": "Clip",
    "avgpool": "AveragePool", "globalavgpool": "GlobalAveragePool", "batchnorm": "BatchNormalization",
}  # fmt: skip
_ABOUT = {"axis": ("axis", "axes"), "perm": ("perm",)}  # attributes that a message is about, by its first word
_SHOWN = 40  # characters of an attribute in a listing


def _attribute_text(a: onnx.AttributeProto) -> str:
    """An attribute in a listing: `axis=1`. Long ones, graphs and tensors are `…`."""
    kinds = onnx.AttributeProto
    plain = a.type in (kinds.INT, kinds.INTS, kinds.FLOAT, kinds.FLOATS, kinds.STRING)
    value = onnx.helper.get_attribute_value(a) if plain and len(a.ints) + len(a.floats) <= _SHOWN else None
    if isinstance(value, bytes):
        text = json.dumps(value.decode("utf-8", "replace"))
    else:
        text = "…" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    return f"{a.name}={text if len(text) <= _SHOWN else '…'}"


def _opsets(model: onnx.ModelProto) -> dict[str, int]:
    return {_domain(o.domain): o.version for o in model.opset_import}


def _schema(op: str, opset: int, domain: str) -> onnx.defs.OpSchema | None:
    """The schema of an operator; the newest one where the operator set is older than it, as models of other tools have it."""
    try:
        return onnx.defs.get_schema(op, opset, domain)
    except onnx.defs.SchemaError:
        return onnx.defs.get_schema(op, domain) if onnx.defs.has(op, domain) else None


def _check(schema: onnx.defs.OpSchema, proto: onnx.NodeProto, opset: int, attrs: Mapping[str, Attribute]) -> None:
    """Check the number of operands, and the names and types of attributes. Raises Violation."""
    what = f"{proto.op_type} of operator set {opset}"
    for a in proto.attribute:
        if a.name not in schema.attributes and a.name in [x.name for x in schema.inputs]:
            message = f"{what} has no attribute `{a.name}`"
            raise Violation("InvalidModel", message, help=f"`{a.name}` is an operand in this operator set")
    if not schema.min_input <= len(proto.input) <= schema.max_input:
        least, most = schema.min_input, schema.max_input
        wanted = f"{least}" if least == most else f"at least {least}" if len(proto.input) < least else f"at most {most}"
        many = operand(most) if len(proto.input) > most else None
        raise Violation("InvalidModel", f"{what} takes {wanted} operands, got {len(proto.input)}", at=many)
    if not schema.min_output <= len(proto.output) <= schema.max_output:
        raise Violation("InvalidModel", f"{what} has {len(proto.output)} outputs")
    for a in proto.attribute:
        declared = schema.attributes.get(a.name)
        if declared is None:
            near = proposed(a.name, schema.attributes, "{}")[0]
            raise Violation("InvalidModel", f"{what} has no attribute `{a.name}`", help=near)
        if int(a.type) != int(declared.type.value):
            given, wanted = (onnx.AttributeProto.AttributeType.Name(int(t)).lower() for t in (a.type, declared.type.value))
            raise Violation("InvalidModel", f"the attribute `{a.name}` of {what} is {wanted}, not {given}")
    if missing := [k for k, a in schema.attributes.items() if a.required and k not in attrs]:
        raise Violation("InvalidModel", f"{what} needs the attribute `{missing[0]}`")


def _kind(dtype: DType) -> str:
    return "integers" if dtype.is_integer else "truth values" if dtype.kind is Kind.BOOL else "other"


@cache
def _only(op: str, domain: str, version: int) -> list[str]:
    """For each operand of an operator "integers" or "truth values", if it takes these alone; else ""."""
    result = []
    for given in onnx.defs.get_schema(op, version, domain).inputs:
        integers = all(re.fullmatch(r"tensor\(u?int\d+\)", t) for t in given.types)
        result.append("integers" if integers else "truth values" if {*given.types} == {"tensor(bool)"} else "")
    return result


def _defaults(schema: onnx.defs.OpSchema) -> dict[str, object]:
    defaults = {}
    for name, a in schema.attributes.items():
        if a.default_value is not None and a.default_value.type:
            value = onnx.helper.get_attribute_value(a.default_value)
            defaults[name] = value.decode() if isinstance(value, bytes) else value
    return defaults


def _type_proto(x: Datum) -> onnx.TypeProto:
    """The TypeProto of a datum; an empty sequence is one of f32."""
    if isinstance(x, Items):
        return onnx.helper.make_sequence_type_proto(_type_proto(x.items[0] if x.items else np.zeros(0, np.float32)))
    if isinstance(x, Tensor):
        dims = [d if isinstance(d, int) else d.name for d in x.shape]
        return onnx.helper.make_tensor_type_proto(NUMBERS[x.dtype], dims)
    assert x is not None
    dtype = SI64 if x.dtype == object else OF_NUMPY[x.dtype.name]
    return onnx.helper.make_tensor_type_proto(NUMBERS[dtype], list(x.shape))
