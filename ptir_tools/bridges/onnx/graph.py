"""A graph of ONNX that is being built: nodes checked against the schemas of the operator set, constants, extents, names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from math import prod

from ptir_tools.bridges.onnx.computed import computing, spelled
from ptir_tools.bridges.onnx.listing import graphs_of
from ptir_tools.bridges.onnx.protocols import Attribute
from ptir_tools.bridges.onnx.table import NUMBERS
from ptir_tools.convert.legality import NOT_TRANSLATABLE
from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import FP8_E4M3, FP8_E5M2, I1, SI64, DType
from ptir_tools.core.expressions import of_dim
from ptir_tools.core.ir import Literal
from ptir_tools.core.lazy import lazy, np
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import Dim, Shape, Sym, TensorType, sym, tensor
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.ops.numerics import dtype_of
from ptir_tools.rewrite.expression import Expression

if TYPE_CHECKING:
    import onnx
else:
    onnx = lazy("onnx")

# The operators that are ops of PTIR, in formulas, too.
OPERATORS = {
    "neg": "Neg", "abs": "Abs", "exp": "Exp", "log": "Log", "tanh": "Tanh", "erf": "Erf", "reciprocal": "Reciprocal",
    "add": "Add", "sub": "Sub", "mul": "Mul", "maximum": "Max", "minimum": "Min",
    "compare_lt": "Less", "compare_le": "LessOrEqual", "compare_eq": "Equal", "compare_ge": "GreaterOrEqual",
    "compare_gt": "Greater", "select": "Where", "stop_gradient": "Identity",
    "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh",
    "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "floor": "Floor", "ceil": "Ceil", "round_even": "Round",
}  # fmt: skip
# What ONNX broadcasts by itself.
_BROADCASTS = frozenset((
    "Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Pow", "Less", "LessOrEqual", "Equal", "Greater", "GreaterOrEqual",
    "Where", "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift",
))  # fmt: skip
_SMALL = 1 << 12  # elements of equal values that are written as they are
Steps = tuple[int, int, int]  # first element, distance, count
Extent = Dim | tuple[Dim, ...]  # several are their product

_COMBINES = {"+": "Add", "*": "Mul", "max": "Max"}  # of extents


def refused(message: str, help: str | None = None) -> Violation:
    """The Violation that a lowering raises for what ONNX cannot express."""
    return Violation(NOT_TRANSLATABLE, message, help=help)


@dataclass(slots=True, eq=False)
class Body:
    """The nodes of a graph or of a subgraph, which sees the values of its outer graphs."""

    graph: Graph
    outer: Body | None = None
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    extents: dict[Sym, tuple[Out, int]] = field(default_factory=dict)  # by symbol, a value and an axis that has this extent
    measured: dict[Sym, Out] = field(default_factory=dict)


Stored = Callable[["Out", "int | None"], "Out"]  # dequantizes integers whose scales are along an axis


@dataclass(slots=True, eq=False)
class Out(Expression):
    """A value of the graph, with the operators of formulas. `array` is the content of a constant. `spread` is the operand of a
    broadcast that has no node yet. `moved` is the operand of a transpose, `laid` one of another shape with the same elements in
    the same order."""

    name: str
    dtype: DType
    shape: Shape
    body: Body
    array: Array | None = None
    spread: Out | None = None
    moved: tuple[Out, tuple[int, ...]] | None = None
    laid: Out | None = None
    padded: tuple[Out, tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None = None  # with zeros: low, interior, high
    windowed: tuple[Out, tuple[Steps, ...]] | None = None  # a part of it
    resized: tuple[Out, tuple[int, ...]] | None = None  # each element of an axis repeated
    widened: Out | None = None  # integers of a narrower dtype
    centered: tuple[Out, Out] | None = None  # 8-bit integers minus their zero point
    stored: tuple[Out, int | None, Stored] | None = None  # a constant of integers, the axis of scales, what dequantizes it
    ranged: tuple[Out, Out] | None = None  # the floats that bytes were made of by their range, and the scale
    made: bool = True  # a node, parameter or initializer defines it

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def op(self, name: str, *operands: object, **attrs: Attribute) -> Out:
        """The output of the operator that is the op `name`, or of that name. A number has the dtype of the last operand."""
        graph, like = self.body.graph, [x for x in operands if isinstance(x, Out)][-1]
        values = (x if isinstance(x, Out) else graph.scalar(x, like) for x in operands)
        return graph(OPERATORS.get(name, name), *values, **attrs)


class Graph:
    """Appends nodes to `body`: the outermost graph, or a subgraph that is being built."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.main = self.body = Body(self)
        self.names: set[str] = set()
        self.new: list[str] = []  # names in the order in which they were made
        self.constants: dict[str, Out] = {}
        self.known: dict[object, Out] = {}
        self.literals: dict[Literal, Out] = {}
        self.stem = "v"  # of new names

    # Names

    def fresh(self, stem: str = "") -> str:
        """An unused name."""
        name = stem = stem or self.stem
        n = 0
        while name in self.names:
            n += 1
            name = f"{stem}_{n}"
        self.names.add(name)
        self.new.append(name)
        return name

    # Nodes

    def __call__(
        self, name: str, *xs: Out | None, result: DType | None = None, shape: Sequence[Dim] | None = None, **attrs: Attribute
    ) -> Out:
        """The output of a node. The default shape is that of the first operand, or of the operands broadcast by ONNX. `result` is
        the result's dtype where it differs from the operands'. An operator that ONNX Runtime lacks in this dtype is computed in a
        wider one, and cast back. Raises Violation for an operator, attribute or dtype that the operator set has not.
        """
        return self.several(name, 1, *xs, result=result, shape=shape, **attrs)[0]

    def several(
        self,
        name: str,
        outs: int,
        *xs: Out | None,
        result: DType | None = None,
        shape: Sequence[Dim] | None = None,
        **attrs: object,
    ) -> list[Out]:
        """The outputs of a node, all of one shape. Raises like `__call__`."""
        schema = self.schema(name)
        for attr in attrs:
            if attr not in schema.attributes:
                raise refused(f"{name} of operator set {self.opset} has no `{attr}`", "a newer one may: --opset 21")
        last = len(schema.inputs) - 1
        variables = [schema.inputs[min(k, last)].type_str for k in range(len(xs))]
        own = schema.outputs[0].type_str
        variable = own if own in variables else variables[0]
        first = next(k for k, v in enumerate(variables) if v == variable)
        data = xs[first]
        assert data is not None
        if shape is None:
            shape = broadcast([x.shape for x in xs if x is not None]) if name in _BROADCASTS else data.shape
        if name in _BROADCASTS:
            xs = tuple(self._loose(xs, tuple(shape)))
        dtype = data.dtype
        used = computing(name, dtype, schema.inputs[min(first, last)].types)
        if used is None:
            raise refused(f"{name} of operator set {self.opset} takes no {dtype}")
        if name == "Min" and used is SI64 and len(xs) == 2:  # where one is a scalar, ONNX Runtime compares their low halves
            a, b = (self.cast(x, SI64) for x in xs if x is not None)
            return [self.cast(self("Where", self("Less", a, b, result=I1, shape=shape), a, b, shape=shape), dtype)]
        operands = [
            x if x is None else self.whole(self.cast(x, used) if v == variable else x) for x, v in zip(xs, variables, strict=True)
        ]
        made = []
        proto = onnx.helper.make_node(name, [x.name if x is not None else "" for x in operands], [], **attrs)
        for k in range(outs):
            kind = schema.outputs[min(k, len(schema.outputs) - 1)]
            same = kind.type_str == variable
            own_dtype = used if same else result or _only(kind.types)
            y = Out(self.fresh(), own_dtype, tuple(shape), self.body)
            proto.output.append(y.name)
            made.append((y, same))
        self.body.nodes.append(proto)
        return [self.cast(y, dtype) if same and used is not dtype else y for y, same in made]

    def node(self, name: str, xs: Iterable[Out | str], types: Sequence[TensorType], **attrs: Attribute) -> list[Out]:
        """The outputs, of these types, of a node with graphs inside."""
        names = [x if isinstance(x, str) else self.whole(x).name for x in xs]
        outs = [Out(self.fresh(), t.dtype, t.shape, self.body) for t in types]
        self.body.nodes.append(onnx.helper.make_node(name, names, [y.name for y in outs], **attrs))
        return outs

    def schema(self, name: str) -> onnx.defs.OpSchema:
        """The schema of an operator. Raises Violation when the operator set has none of that name."""
        if (found := self._schema(name)) is not None:
            return found
        every = onnx.defs.get_all_schemas_with_history()
        since = min((s.since_version for s in every if s.name == name and not s.domain), default=0)
        raise refused(f"operator set {self.opset} has no {name}", f"--opset {since} has it" if since else None)

    def _schema(self, name: str) -> onnx.defs.OpSchema | None:
        try:
            return onnx.defs.get_schema(name, self.opset, "")
        except onnx.defs.SchemaError:
            return None

    def has(self, name: str) -> bool:
        """Whether the operator set has an operator."""
        return self._schema(name) is not None

    def cast(self, x: Out, dtype: DType) -> Out:
        """`x` converted by ONNX's `Cast`: integers wrap, floats are rounded; fp8 does not saturate."""
        if x.dtype is dtype:
            return x
        if x.spread is not None and not x.made:
            return self.expand(self.cast(x.spread, dtype), x.shape)
        widens = x.dtype.is_integer and dtype.is_integer and dtype.min <= x.dtype.min and x.dtype.max <= dtype.max
        if x.array is not None and x.array.size <= _SMALL and (x.dtype.kind is dtype.kind or x.dtype is I1):
            y = self.constant(arrays.narrow(arrays.widen(x.array), dtype), dtype)
            y.widened = x if widens else None
            return y
        more = {"saturate": 0} if dtype in (FP8_E4M3, FP8_E5M2) else {}
        schema = self.schema("Cast")
        for d in (x.dtype, dtype):
            if spelled(d) not in schema.outputs[0].types:
                raise refused(f"Cast of operator set {self.opset} has no {d}")
        y = Out(self.fresh(), dtype, x.shape, self.body, widened=x if widens else None)
        attrs = {"to": NUMBERS[dtype], **more}
        self.body.nodes.append(onnx.helper.make_node("Cast", [self.whole(x).name], [y.name], **attrs))
        return y

    @staticmethod
    def info(name: str, dtype: DType, shape: Shape) -> onnx.ValueInfoProto:
        """The ValueInfoProto of a value."""
        return onnx.helper.make_tensor_value_info(name, NUMBERS[dtype], [d if isinstance(d, int) else d.name for d in shape])

    # Constants

    def constant(self, array: object, dtype: DType | None = None, name: str = "") -> Out:
        """An initializer. `dtype` is given where the array's own dtype is not enough."""
        array = np.asarray(array)
        if dtype is not None:
            array = array.astype(arrays.numpy_dtype(dtype))
        else:
            dtype = dtype_of(array)
        key = (dtype, array.shape, array.tobytes()) if array.size <= 64 else None
        if key is not None and not name and key in self.known:
            return self.known[key]
        y = Out(self.fresh(name or (self.stem + "_const" if array.size > 1 else "const")), dtype, array.shape, self.main, array)
        self.constants[y.name] = y
        if key is not None:
            self.known.setdefault(key, y)
        return y

    def ints(self, values: Sequence[int]) -> Out:
        """A vector of si64."""
        return self.constant(np.asarray(values, np.int64).reshape(-1))

    def scalar(self, value: object, like: Out | DType) -> Out:
        """A number of the dtype of `like`."""
        dtype = like if isinstance(like, DType) else like.dtype
        wide = np.complex128 if dtype.is_complex else np.float64 if dtype.is_float else None
        return self.constant(arrays.narrow(np.asarray(value, wide), dtype), dtype)

    def literal(self, literal: Literal, name: str = "") -> Out:
        """A PTIR constant; a splat is one number, broadcast. Raises Violation when the payload is missing."""
        if (cached := self.literals.get(literal)) is not None:
            return cached
        if literal.data is None:
            raise Violation("MissingPayload", "the constant has no payload")
        t = literal.type
        if literal.splat and t.shape and t.count != 1:
            one = self.constant(arrays.from_literal(Literal(tensor(t.dtype), literal.data)), t.dtype)
            cached = self.expand(one, t.shape, name)
            cached.body = self.main
        else:
            cached = self.constant(arrays.from_literal(literal), t.dtype, name)
        self.literals[literal] = cached
        return cached

    # Extents

    def seen(self, y: Out) -> None:
        """Remember that `y` has the extents of its symbols, unless it is only made from extents."""
        if y.spread is not None and not y.made:
            return
        for axis, d in enumerate(y.shape):
            if isinstance(d, Sym) and self._source(d) is None:
                y.body.extents[d] = (y, axis)

    def _source(self, d: Sym) -> tuple[Out, int] | None:
        body: Body | None = self.body
        while body is not None:
            if (result := body.extents.get(d)) is not None:
                return result
            body = body.outer
        return None

    def extent(self, d: Dim) -> Out:
        """An extent as a vector of one si64. Raises Violation for a symbol that is not the extent of an earlier value."""
        if isinstance(d, int):
            return self.ints([d])
        source = self._source(d)
        if source is None and d.poly is not None:
            return of_dim(d).built(lambda name: self.extent(sym(name)), lambda n: self.ints([n]), self._combined)
        if source is None:
            raise refused(f"the extent {d} is not that of a value before this op", f"bind it: --bind {d.name}=8")
        x, axis = source
        if d not in x.body.measured:
            x = self.whole(x)
            here, self.body = self.body, x.body
            if "start" in self.schema("Shape").attributes:
                y = self("Shape", x, shape=(1,), start=axis, end=axis + 1)
            else:
                y = self("Gather", self("Shape", x, shape=(x.rank,)), self.ints([axis]), shape=(1,))
            x.body.measured[d], self.body = y, here
        return x.body.measured[d]

    def _combined(self, op: str, x: Out, y: Out | int) -> Out:
        """Two vectors of one si64 combined as `Sum.built` asks."""
        if isinstance(y, int):
            y = self.ints([y])
        if op in _COMBINES:
            return self(_COMBINES[op], x, y)
        rest = self("Mod", x, y)  # of the sign of `y`, which is positive
        return rest if op == "%" else self("Div", self("Sub", x, rest), y)

    def extents(self, shape: Sequence[Extent], free: bool = False) -> Out:
        """A vector of extents; with `free`, one symbolic extent may be -1."""
        flat = [d if isinstance(d, tuple) else (d,) for d in shape]
        fixed = [prod(d for d in ds if isinstance(d, int)) for ds in flat]
        symbols = [[d for d in ds if isinstance(d, Sym)] for ds in flat]
        open_ = [i for i, s in enumerate(symbols) if s]
        inferred: list[int] = []
        if free and 0 not in fixed:
            inferred = open_ if len(open_) == 1 else [i for i in open_ if any(self._source(s) is None for s in symbols[i])][:1]
        if open_ == inferred:
            return self.ints([-1 if i in open_ else n for i, n in enumerate(fixed)])
        parts: list[Out] = []
        for i, (n, ss) in enumerate(zip(fixed, symbols, strict=True)):
            if i in inferred:
                parts.append(self.ints([-1]))
                continue
            part = self.extent(n) if not ss else self.extent(ss[0])
            for s in ss[1:]:
                part = self("Mul", part, self.extent(s))
            parts.append(part if n == 1 or not ss else self("Mul", part, self.ints([n])))
        return parts[0] if len(parts) == 1 else self("Concat", *parts, axis=0, shape=(len(parts),))

    # Broadcasts

    def expand(self, x: Out, shape: Shape, name: str = "") -> Out:
        """`x` broadcast to `shape`; the node is made when its full value is needed."""
        if x.shape == shape:
            return x
        source = x.spread if x.spread is not None and not x.made else x
        return Out(self.fresh(name), x.dtype, shape, self.body, spread=source, made=False)

    def whole(self, x: Out) -> Out:
        """`x`, its pending broadcast made as a node."""
        if x.made or x.spread is None:
            return x
        x.made = True
        source = self.whole(x.spread)
        here, self.body = self.body, x.body
        extents = [d for d in x.shape if isinstance(d, int)]
        if source.array is not None and len(extents) == x.rank and prod(extents) <= _SMALL:
            x.array, x.body = np.broadcast_to(source.array, extents), self.main
            self.constants[x.name] = x
        else:
            y = self("Expand", source, self.extents(x.shape), shape=x.shape)
            if y.body.nodes[-1].output[0] == y.name:
                y.body.nodes[-1].output[0] = x.name
                self.names.discard(y.name)
            else:
                self._alias(y, x)
        self.body = here
        return x

    def _alias(self, y: Out, x: Out) -> None:
        self.body.nodes.append(onnx.helper.make_node("Identity", [y.name], [x.name]))

    def _loose(self, xs: Sequence[Out | None], shape: Shape) -> list[Out | None]:
        """The operands without their pending broadcasts, as long as ONNX broadcasts them to `shape`."""
        loose = [x.spread if x is not None and x.spread is not None else x for x in xs]
        for k, x in enumerate(xs):
            if broadcast([y.shape for y in loose if y is not None]) == shape:
                break
            loose[k] = x
        return loose


def _only(types: Collection[str]) -> DType:
    """The one dtype of a result."""
    return I1 if "tensor(bool)" in types else SI64


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The shape to which ONNX broadcasts `shapes`; () when they do not fit."""
    rank = max(map(len, shapes), default=0)
    out: list[Dim] = []
    for at in range(-rank, 0):
        ds = {d for s in shapes if -at <= len(s) and (d := s[at]) != 1}
        if len(ds) > 1:
            return ()
        out.append(ds.pop() if ds else 1)
    return tuple(out)


def needed(nodes: Sequence[onnx.NodeProto], results: Iterable[str]) -> list[onnx.NodeProto]:
    """The nodes that the results need, in order."""
    live, outputs = set(results), []
    for node in reversed(nodes):
        if live.intersection(node.output):
            outputs.append(node)
            live.update(read_by(node))
    return outputs[::-1]


def rename(nodes: Iterable[onnx.NodeProto], old: str, new: str) -> None:
    """Give the value `old` another name, where nodes make and read it."""
    for node in nodes:
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                if name == old:
                    names[i] = new


def read_by(node: onnx.NodeProto) -> Iterator[str]:
    """The names that a node reads, including those read in its subgraphs."""
    yield from node.input
    yield from inner_reads(node)


def inner_reads(node: onnx.NodeProto) -> Iterator[str]:
    """The names that the subgraphs of a node read."""
    for graph in graphs_of(node):
        for inner in graph.node:
            yield from read_by(inner)
        yield from (y.name for y in graph.output)
