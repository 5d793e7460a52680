"""Builds a graph of ONNX: nodes checked against the schemas of the operator set, constants, extents, names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from math import prod

from ptir_tools.bridges.onnx.ops.shape import bordered
from ptir_tools.bridges.onnx.protocols import Attribute
from ptir_tools.bridges.onnx.table import NUMBERS
from ptir_tools.convert.legality import NOT_TRANSLATABLE
from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dtypes import (
    BF16,
    F16,
    F32,
    F64,
    FP8_E4M3,
    FP8_E5M2,
    I1,
    SI4,
    SI8,
    SI16,
    SI32,
    SI64,
    UI4,
    UI8,
    UI16,
    UI32,
    UI64,
    DType,
)  # fmt: skip
from ptir_tools.core.expressions import Atom, Poly
from ptir_tools.core.ir import Element, Literal, Op, Operand, Region, Value
from ptir_tools.core.lazy import lazy, np
from ptir_tools.core.records import dataclass, field, replace
from ptir_tools.core.typed import TYPE_CHECKING, TypeAlias
from ptir_tools.core.types import Dim, Nested, Shape, Sym, TensorType, TupleType, flatten, leaves, nest, sym, tensor
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.ops.shape import keeps_row_major, relabeled
from ptir_tools.rewrite.expression import Expression

if TYPE_CHECKING:
    import onnx
else:
    onnx = lazy("onnx")

_FLOATS = frozenset((F16, F32, F64))
_INTS = frozenset((SI8, UI8, SI16, UI16, SI32, UI32, SI64, UI64))
_WORDS = frozenset((SI32, SI64))
_COMMON = frozenset((SI8, UI8, SI32, SI64))


def _each(names: str, dtypes: frozenset[DType]) -> dict[str, frozenset[DType]]:
    return dict.fromkeys(names.split(), dtypes)


# The passes that find what leaves as one operator; others may be put in the middle.
READY = "recognize{{convolutions=true}},raise-strides,{}cse,recognize"
# The dtypes in which ONNX Runtime computes an operator on a CPU. What is of another is cast to one that holds it, and back.
COMPUTED: dict[str, frozenset[DType]] = {
    **_each("Add Sub Mul Div Mod Abs Less LessOrEqual Greater GreaterOrEqual", _FLOATS | _INTS),
    **_each("Equal", _FLOATS | _INTS | {I1}),
    **_each("Max Min", _FLOATS | _COMMON | {UI32, UI64}),
    **_each("Where", _FLOATS | _COMMON | {UI32}),
    **_each("Neg", _FLOATS | {SI8, SI16, SI32, SI64}),
    **_each("Pow Exp Log Tanh Erf Sqrt Reciprocal Floor Ceil Round", _FLOATS),
    **_each("Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh", _FLOATS),
    **_each("Sign", _FLOATS | _INTS),
    **_each("IsNaN IsInf Softmax LogSoftmax LayerNormalization", _FLOATS),
    **_each("Gelu Conv", frozenset((F16, F32))),
    **_each("Reshape Transpose Identity", _FLOATS | _INTS | {I1, BF16, FP8_E4M3, FP8_E5M2}),
    **_each("Expand Tile Shape", _FLOATS | _INTS | {I1}),
    **_each("Pad", _FLOATS | _COMMON | {I1, UI32, UI64}),
    **_each("Slice Concat Gather GatherElements ScatterElements ScatterND", _FLOATS | _INTS | {I1, BF16}),
    **_each("TopK", _FLOATS | _COMMON | {SI16}),
    **_each("ReduceSum ReduceProd CumSum", _FLOATS | _WORDS),
    **_each("ReduceMax ReduceMin ArgMax ArgMin", _FLOATS | _COMMON),
    **_each("Gemm", frozenset((F32, F64))),
    **_each("MatMul", _FLOATS | _WORDS | {UI32, UI64}),
    **_each("BitwiseAnd BitwiseOr BitwiseXor BitwiseNot", _INTS),
    **_each("BitShift", frozenset((UI8, UI32, UI64))),
    **_each("MaxPool", _FLOATS | {SI8, UI8}),
    **_each("Resize", frozenset((F32, SI32, SI8, UI8))),
    **_each("ConvTranspose", frozenset((F32,))),
    **_each("Relu Clip Sigmoid ReduceMean", frozenset((F32, F64))),
    **_each("LeakyRelu PRelu Elu Softplus HardSigmoid HardSwish AveragePool GlobalAveragePool", frozenset((F32,))),
}  # fmt: skip
# What holds every value of a dtype, nearest first. For ui64, si64 has the same bits.
_WIDER: dict[DType, tuple[DType, ...]] = {
    I1: (UI8, SI32), UI4: (UI8, SI32), SI4: (SI8, SI32), UI8: (SI32, UI32), SI8: (SI32,), UI16: (SI32, UI32), SI16: (SI32,),
    UI32: (SI64,), SI32: (SI64,), UI64: (SI64,), FP8_E4M3: (F16, F32), FP8_E5M2: (F16, F32), BF16: (F32,), F16: (F32,),
    F32: (F64,),
}  # fmt: skip
_BY_BITS = frozenset((
    "Add", "Sub", "Mul", "Where", "ReduceSum", "ReduceProd", "CumSum", "MatMul", "Expand", "Tile", "Pad", "Slice", "Concat",
    "Gather",
))  # fmt: skip
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
_REDUCTIONS = {"none": 11, "add": 16, "mul": 16, "max": 18, "min": 18}  # the operator set that first has them
END = (1 << 63) - 1  # a bound of Slice: the end of the axis
_SMALL = 1 << 12  # elements of equal values that are written as they are

Steps = tuple[int, int, int]  # first element, distance, count
Extent = Dim | tuple[Dim, ...]  # several are their product


def refused(message: str, help: str | None = None) -> Violation:
    """The Violation that a lowering raises for what ONNX cannot express."""
    return Violation(NOT_TRANSLATABLE, message, help=help)


@dataclass(slots=True, eq=False)
class Body:
    """The nodes of a graph or of a subgraph, which sees the values of its outer graphs."""

    emitter: Emitter
    outer: Body | None = None
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    extents: dict[Sym, tuple[Out, int]] = field(default_factory=dict)  # by symbol, a value and an axis that has this extent
    measured: dict[Sym, Out] = field(default_factory=dict)


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
    ranged: tuple[Out, Out] | None = None  # the floats that bytes were made of by their range, and the scale
    made: bool = True  # a node, parameter or initializer defines it

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def op(self, name: str, *operands: object, **attrs: Attribute) -> Out:
        """The output of the operator that is the op `name`, or of that name. A number has the dtype of the last operand."""
        e, like = self.body.emitter, [x for x in operands if isinstance(x, Out)][-1]
        return e(OPERATORS.get(name, name), *(x if isinstance(x, Out) else e.scalar(x, like) for x in operands), **attrs)


Tree: TypeAlias = "Nested[Out]"  # what a value became: of a tuple, a tuple


class InError(Exception):
    """An operand was refused before, so the op that reads it is not reported."""


def _border(at: Array, n: int) -> tuple[str, int] | None:
    """The mode of the padding that takes these indices from `n` elements, and the padding before them; None for other indices."""
    if n < 2 or len(at) < 2:
        return None
    for mode, low in (("reflect", int(at[0])), ("edge", int(np.argmax(at != 0)) - 1)):
        high = len(at) - n - low
        if 0 <= low < n and high < n and (low or high > 0) and np.array_equal(at, bordered(mode, n, low, high)):
            return mode, low
    return None


class Emitter:
    """Appends nodes to a body, by the idioms and lowerings of ops. `op` is the current PTIR op. With `as_onnx` the result may
    differ where ONNX leaves it open: NaNs in orderings, the last digits next to zero."""

    def __init__(
        self,
        lowerings: Mapping[str, Callable[..., Tree]],
        idioms: Mapping[str, Sequence[Callable[[Emitter, Op], Tree | None]]],
        groups: Mapping[str, Sequence[Callable[[Emitter, Op, Region], None]]],
        opset: int,
        lossy: bool,
        as_onnx: bool,
        diagnostics: Diagnostics,
    ) -> None:
        self.lowerings, self.idioms, self.groups, self.opset, self.diagnostics = lowerings, idioms, groups, opset, diagnostics
        self.lossy, self.as_onnx = lossy, as_onnx
        self.main = self.body = Body(self)
        self.names: set[str] = set()
        self.new: list[str] = []  # names in the order in which they were made
        self.wanted: dict[Value, str] = {}  # names of the values of the outermost block
        self.reads: Counter[Value] = Counter()  # the number of uses of each value, uses as block results included
        self.values: dict[Value, Tree | None] = {}  # None: the op was refused
        self.parts: dict[Value, Callable[[], Out | None]] = {}  # how an operator of several outputs makes a value
        self.constants: dict[str, Out] = {}
        self.known: dict[object, Out] = {}
        self.literals: dict[Literal, Out] = {}
        self.op: Op | None = None
        self.stem = "v"

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

    # The op at hand

    @property
    def type(self) -> TensorType:
        """The type of the result of the op at hand."""
        assert self.op is not None
        t = self.op.result.type
        assert isinstance(t, TensorType)
        return t

    @property
    def shape(self) -> Shape:
        """The shape of that result."""
        return self.type.shape

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
        used = self._machine(name, dtype, schema.inputs[min(first, last)].types)
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

    def _machine(self, name: str, dtype: DType, types: Collection[str]) -> DType:
        """The dtype in which the operator `name` computes operands of `dtype`. Raises Violation."""

        def taken(d: DType) -> bool:
            return d in NUMBERS and _spelled(d) in types

        good = COMPUTED.get(name)
        if taken(dtype) and (good is None or dtype in good):
            return dtype
        for wider in _WIDER.get(dtype, ()):
            if dtype is UI64 and name not in _BY_BITS:
                continue
            if taken(wider) and (good is None or wider in good):
                return wider
        if taken(dtype):
            return dtype
        raise refused(f"{name} of operator set {self.opset} takes no {dtype}")

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
            if _spelled(d) not in schema.outputs[0].types:
                raise refused(f"Cast of operator set {self.opset} has no {d}")
        y = Out(self.fresh(), dtype, x.shape, self.body, widened=x if widens else None)
        attrs = {"to": NUMBERS[dtype], **more}
        self.body.nodes.append(onnx.helper.make_node("Cast", [self.whole(x).name], [y.name], **attrs))
        return y

    # Ops, blocks and graphs

    def read(self, x: Operand) -> Tree:
        """The output for an operand. Raises InError where it was refused."""
        if isinstance(x, Literal):
            return self.literal(x)
        result = self.values[x.value if isinstance(x, Element) else x]
        if result is None:
            raise InError
        if not isinstance(x, Element):
            return result
        assert isinstance(result, tuple)
        return result[x.index]

    def tensor(self, x: Operand) -> Out:
        """The output for an operand that is not a tuple. Raises InError where it was refused."""
        result = self.read(x)
        assert isinstance(result, Out)
        return result

    def block(self, block: Region, arguments: Sequence[Tree]) -> list[Tree]:
        """The outputs for the results of a block. Raises InError where one was refused."""
        for p, given in zip(block.params, arguments, strict=True):
            self.values[p] = given
        read = (*block.results, *(x for op in block.body for x in op.operands))
        self.reads.update(x.value if isinstance(x, Element) else x for x in read if not isinstance(x, Literal))
        for op in block.body:
            for find in self.groups.get(op.name, ()):
                find(self, op, block)
        for op in block.body:
            self.values[op.result] = self.convert(op)
        return [self.read(x) for x in block.results]

    def convert(self, op: Op) -> Tree | None:
        """The output for the result of `op`, by its lowering. None where the op is refused, or reads a refused value."""
        outer, stem = self.op, self.stem
        self.op, self.stem = op, op.result.name
        mark, first, part = len(self.new), len(self.body.nodes), self.parts.get(op.result)
        try:
            operands = [self.read(x) for x in op.operands]
            lowering = self.lowerings.get(op.name)
            if lowering is None:
                raise refused("the numbers that it draws are others in ONNX" if op.defn.is_random else "ONNX has no such op")
            result: Tree | None = part() if part is not None else None
            if result is None:
                part = None
                result = next((y for idiom in self.idioms.get(op.name, ()) if (y := idiom(self, op)) is not None), None)
            result = lowering(self, op, *operands) if result is None else result
        except InError:
            return None
        except Violation as violation:
            message = f"{op.defn.short}: {violation.message}"
            self.diagnostics.error(violation.code, message, violation.loc or op.loc, help=violation.help)
            return None
        finally:
            self.op, self.stem = outer, stem
        fresh = set(self.new[mark:])
        for k, (y, t) in enumerate(zip(flatten(result), leaves(op.result.type), strict=True)):
            assert isinstance(t, TensorType)
            if y.name in fresh or part is not None:
                y.shape = t.shape
                suffix = f".{k}" if isinstance(op.result.type, TupleType) else ""
                self._called(y, op.result, suffix, self.body.nodes[first if part is None else 0 :])
            self.seen(y)
        return result

    def _called(self, y: Out, v: Value, suffix: str, nodes: Sequence[onnx.NodeProto]) -> None:
        """Give a new output the name of a PTIR value."""
        self.names.discard(y.name)
        new = self.wanted.pop(v) if v in self.wanted and not suffix else self.fresh(v.name + suffix)
        if self.constants.pop(y.name, None) is not None:
            self.constants[new] = y
        rename(nodes, y.name, new)
        y.name = new

    def graph(
        self, block: Region, arguments: Sequence[Tree] | None, first: Sequence[Out] = (), test: Region | None = None
    ) -> onnx.GraphProto:
        """A block as a GraphProto: on `arguments` of the outer graph, or (None) on its own parameters. With `first`, parameters
        before those, it is the body of a Loop, and `test` runs after it."""
        outer, self.body = self.body, Body(self, self.body)
        try:
            given = list(first)
            if arguments is None:
                arguments = [self.parameter(p, given) for p in block.params]
            results = self.block(block, arguments)
            if test is not None:
                results = self.block(test, results)
            outs = [y for tree in results for y in flatten(tree)]
            outputs: list[Out] = []
            for y in outs:
                inside = self.whole(y).body is self.body and y.array is None and y not in given and y not in outputs
                outputs.append(y if inside else self("Identity", y))
            nodes = needed(self.body.nodes, [y.name for y in outputs])
            infos = [[self.info(y.name, y.dtype, y.shape) for y in ys] for ys in (given, outputs)]
            return onnx.helper.make_graph(nodes, block.name or "body", *infos)
        finally:
            self.body = outer

    def loop(self, test: Region, body: Region) -> onnx.GraphProto:
        """The body of a Loop: `body`, then `test`."""
        inner = [Out(self.fresh("step"), SI64, (), self.body), Out(self.fresh("go"), I1, (), self.body)]
        return self.graph(body, None, inner, test)

    def parameter(self, p: Value, given: list[Out]) -> Tree:
        """A parameter of the current graph; its leaves are added to `given`."""
        types = leaves(p.type)
        names = [p.name] if not isinstance(p.type, TupleType) else [f"{p.name}.{k}" for k in range(len(types))]
        parts = []
        for name, t in zip(names, types, strict=True):
            assert isinstance(t, TensorType)
            y = Out(self.fresh(name), t.dtype, t.shape, self.body)
            self.seen(y)
            parts.append(y)
        given.extend(parts)
        return nest(p.type, iter(parts))

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
            dtype = _dtypes()[array.dtype]
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
            return self._sum(d.poly)
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

    def _sum(self, p: Poly) -> Out:
        """An expression of extents as a vector of one si64."""
        if p.value is not None:
            return self.ints([p.value])
        terms = []
        for m, n in p.monomials:
            factors = [self._factor(a) for a in m] + ([self.ints([n])] if n != 1 or not m else [])
            terms.append(reduce(lambda x, y: self("Mul", x, y), factors))
        return reduce(lambda x, y: self("Add", x, y), terms)

    def _factor(self, a: Atom[str]) -> Out:
        if isinstance(a, str):
            return self.extent(sym(a))
        left, right = self._sum(a.left), self._sum(a.right)
        if a.op == "max":
            return self("Max", left, right)
        rest = self("Mod", left, right)  # of the sign of `right`, which is positive
        return rest if a.op == "%" else self("Div", self("Sub", left, rest), right)

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

    # Movement

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

    def nan_is_zero(self, y: Out, x: Out) -> Out:
        """Integers `y` converted from floats `x`, with 0 where `x` is NaN, which ONNX leaves open."""
        return y if self.as_onnx else self("Where", self("IsNaN", x), self.scalar(0, y), y, shape=y.shape)

    def reshape(self, x: Out, shape: Sequence[Extent]) -> Out:
        """`x` in another shape; an extent may be a product."""
        flat = tuple(_one(d) for d in shape)
        if flat == x.shape and not any(isinstance(d, tuple) for d in shape):
            return x
        static = all(isinstance(d, int) for d in flat)
        x = self.whole(x)
        if x.array is not None and static:
            return self._folded(x, np.reshape(x.array, flat))
        moved = relabeled(x.shape, flat)
        if moved is not None and x.moved is not None:
            return self.transpose(x, moved)
        if x.laid is not None and static:
            return self.reshape(x.laid, flat)
        zero: dict[str, Attribute] = {"allowzero": 1} if 0 in flat else {}
        y: Out = self("Reshape", x, self.extents(shape, free=True), shape=flat, **zero)
        y.laid, y.moved = (x if static else None), ((x, moved) if moved is not None else None)
        return y

    def transpose(self, x: Out, perm: Sequence[int]) -> Out:
        """`x` with its axes in another order."""
        perm = tuple(a % x.rank for a in perm) if x.rank else ()
        shape = tuple(x.shape[a] for a in perm)
        if x.spread is not None and not x.made and x.spread.array is not None:
            source = self.reshape(x.spread, (*[1] * (x.rank - x.spread.rank), *x.spread.shape))
            return self.expand(self.transpose(source, perm), shape)
        x = self.whole(x)
        if x.array is not None:
            return x if perm == tuple(range(x.rank)) else self._folded(x, np.transpose(x.array, perm))
        if x.moved is not None:
            x, before = x.moved
            perm = tuple(before[a] for a in perm)
        if perm == tuple(range(x.rank)):
            return x
        if all(isinstance(d, int) for d in shape) and keeps_row_major(perm, x.shape):
            y = self.reshape(x, shape)
            if y is x:
                return x  # only axes of extent 1 change places
            y = y if y.moved is None else replace(y)
        else:
            y = self("Transpose", x, perm=list(perm), shape=shape)
        y.moved = (x, perm)
        return y

    def led(self, x: Out) -> Out:
        """`x` with one more axis, of extent 1, before the others."""
        return self.reshape(x, (1, *x.shape))

    def joined(self, xs: Sequence[Out], axis: int) -> Out:
        """`xs` one after the other along an axis."""
        xs = [x for x in xs if x.shape[axis] != 0]
        if len(xs) == 1:
            return xs[0]
        parts = [self.whole(x).array for x in xs]
        if all(a is not None for a in parts):
            return self._folded(xs[0], np.concatenate([a for a in parts if a is not None], axis))
        shape = list(xs[0].shape)
        shape[axis] = sum(d for x in xs if isinstance(d := x.shape[axis], int))
        y: Out = self("Concat", *xs, axis=axis, shape=shape)
        return y

    def _folded(self, x: Out, array: Array) -> Out:
        y = Out(self.fresh(x.name), x.dtype, array.shape, self.main, array)
        self.constants[y.name] = y
        return y

    def slice(self, x: Out, axis: int, start: int, stop: int, step: int = 1, extent: Dim | None = None) -> Out:
        """Elements of an axis: `stop` as in Python, negative ones from the end, `extent` of them."""
        shape = (*x.shape[:axis], extent if extent is not None else max(-(-(stop - start) // step), 0), *x.shape[axis + 1 :])
        steps = [self.ints([step])] if step != 1 else []
        y: Out = self("Slice", x, self.ints([start]), self.ints([stop]), self.ints([axis]), *steps, shape=shape)
        return y

    def picked(self, x: Out, axis: int, at: Array) -> Out:
        """The elements of `x` at the constant indices `at` along an axis."""
        n, count = x.shape[axis], len(at)
        shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
        if x.array is not None:
            return self._folded(x, np.take(x.array, at, axis))
        step = int(at[1] - at[0]) if count > 1 else 1
        if count and step and (at == at[0] + step * np.arange(count)).all() and all(isinstance(d, int) for d in x.shape):
            whole = ((int(at[0]), step, count) if a == axis else (0, 1, d) for a, d in enumerate(x.shape))
            return self.window(x, tuple(whole))  # type: ignore[arg-type]
        known = n if isinstance(n, int) else 0
        times = count // max(known, 1)
        if known and times > 1 and x.dtype in COMPUTED["Resize"] and np.array_equal(at, np.arange(known).repeat(times)):
            source, before = x.resized or (x, (1,) * x.rank)
            scales = tuple(s * times if a == axis else s for a, s in enumerate(before))
            how: dict[str, Attribute] = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
            y: Out = self("Resize", source, None, self.constant(np.array(scales, np.float32)), shape=shape, **how)
            y.resized = (source, scales)
            return y
        if (border := _border(at, known)) is not None and x.dtype in COMPUTED["Pad"]:
            mode, low = border
            pads = [n * (a == axis) for n in (low, count - known - low) for a in range(x.rank)]
            return self("Pad", x, self.ints(pads), shape=shape, mode=mode)
        return self("Gather", x, self.constant(np.asarray(at, np.int64)), axis=axis, shape=shape)

    def window(self, x: Out, steps: tuple[Steps, ...]) -> Out:
        """A strided part of `x`, whose extents are numbers; of a part of another value, a part of that."""
        if x.windowed is not None:
            x, before = x.windowed
            steps = tuple((f + g * d, d * e, n) for (f, d, _), (g, e, n) in zip(before, steps, strict=True))
        axes = [a for a, (first, step, n) in enumerate(steps) if (first, step, n) != (0, 1, x.shape[a])]
        if not axes:
            return x
        if x.array is not None:
            return self._folded(x, x.array[np.ix_(*(first + step * np.arange(n) for first, step, n in steps))])
        ends = [first + step * (n - 1) + (1 if step > 0 else -1) if n else first for first, step, n in steps]
        rows = [[steps[a][0] for a in axes], [ends[a] if ends[a] >= 0 else -END for a in axes], axes]
        more = [[steps[a][1] for a in axes]] if any(steps[a][1] != 1 for a in axes) else []
        y: Out = self("Slice", x, *map(self.ints, rows + more), shape=tuple(n for _, _, n in steps))
        y.windowed = (x, steps)
        return y

    def pad(self, x: Out, low: Sequence[int], high: Sequence[int], fill: Out, shape: Shape) -> Out:
        """`x` padded with `fill`."""
        if not any(low) and not any(high):
            return x
        y: Out = self("Pad", x, self.ints([*low, *high]), fill, shape=shape)
        return y

    def reduce(self, name: str, x: Out, axes: Sequence[int], keepdims: bool, shape: Shape) -> Out:
        """A reduction over at least one axis."""
        if "axes" in self.schema(name).attributes:
            y: Out = self(name, x, axes=list(axes), keepdims=int(keepdims), shape=shape)
        else:
            y = self(name, x, self.ints(axes), keepdims=int(keepdims), shape=shape)
        return y

    def reduction(self, name: str) -> dict[str, Attribute]:
        """The reduction of ScatterND and ScatterElements. Raises Violation when the operator set does not know it."""
        if self.opset < _REDUCTIONS[name]:
            raise refused(f"a scatter of operator set {self.opset} does not combine by {name}", f"--opset {_REDUCTIONS[name]}")
        return {} if name == "none" else {"reduction": name}


def _only(types: Collection[str]) -> DType:
    """The one dtype of a result."""
    return I1 if "tensor(bool)" in types else SI64


def _spelled(d: DType) -> str:
    """A dtype in the spelling of operator schemas."""
    return f"tensor({_NAMES.get(d) or d.numpy})"


_NAMES = {
    F16: "float16", F32: "float", F64: "double", FP8_E4M3: "float8e4m3fn", FP8_E5M2: "float8e5m2", I1: "bool", BF16: "bfloat16",
}  # fmt: skip


def _dtypes() -> dict[object, DType]:
    return {arrays.numpy_dtype(d): d for d in NUMBERS}


def _one(d: Extent) -> Dim:
    """A product of extents as one extent of a type."""
    if not isinstance(d, tuple):
        return d
    symbols = [x for x in d if isinstance(x, Sym)]
    number = prod(x for x in d if isinstance(x, int))
    return number if not symbols else symbols[0] if number == 1 and len(symbols) == 1 else _product(symbols, number)


def _product(symbols: Sequence[Sym], number: int) -> Sym:
    return sym("*".join([*sorted(s.name for s in symbols), *([str(number)] if number != 1 else [])]))


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
    for attribute in node.attribute:
        if attribute.HasField("g"):
            for inner in attribute.g.node:
                yield from read_by(inner)
            yield from (y.name for y in attribute.g.output)
