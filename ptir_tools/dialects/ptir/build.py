"""PTIR from Python: values with methods for the ops, checked at the call.

    g = Graph()
    x = g.input("x", "f32", ("N", 4))
    e = (x - x.reduce_max([-1], keepdims=True).broadcast_like(x)).exp()
    program = g.returns(e / e.reduce_sum([-1], keepdims=True).broadcast_like(e))

Every op of `ptir ops` is a method of its first operand (and of `Graph` and `Block`): first the other operands, then attributes in
declared order or by name. Lists stand for tuples, names for dtypes and symbols, Python numbers for constants of the
other operand's type. A rule that is broken raises Violation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ptir_tools.core import arrays
from ptir_tools.core.builder import Builder
from ptir_tools.core.diagnostics import Violation, require
from ptir_tools.core.dtypes import PTIR_DTYPES, DType
from ptir_tools.core.ir import Element, Function, Operand, Program, Region, Value
from ptir_tools.core.lazy import lazy
from ptir_tools.core.opdef import MANY, OPS, Attr, OpDef, operand_type
from ptir_tools.core.types import UNKNOWN, Dim, Shape, Sym, TensorType, TupleType, Type, sym, tensor, tuple_of
from ptir_tools.dialects.ptir import DIALECT, scalars
from ptir_tools.dialects.ptir.ops.numerics import dtype_of

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy("numpy")

DTYPES = {d.name: d for d in PTIR_DTYPES}
Number = bool | int | float | complex
Build = Callable[..., Any]  # from the values of a region's parameters to its result or results
_CUSTOM_KINDS = {bool: "Bool", int: "I64", float: "F64", str: "String"}


class Tensor:
    """A value of a block under construction: a tensor, or a tuple whose elements are `t[0]`, `t[1]`, …"""

    __slots__ = ("block", "operand")

    def __init__(self, block: Block, operand: Operand) -> None:
        self.block = block
        self.operand = operand

    @property
    def type(self) -> Type:
        """Its type."""
        return operand_type(self.operand)

    @property
    def tensor_type(self) -> TensorType:
        """Its type, which must be a tensor's. Raises Violation("OperandTypeMismatch") for a tuple."""
        t = self.type
        if not isinstance(t, TensorType):
            raise Violation("OperandTypeMismatch", f"{t} is a tuple; name an element")
        return t

    @property
    def dtype(self) -> DType:
        """The dtype of its elements."""
        return self.tensor_type.dtype

    @property
    def shape(self) -> Shape:
        """Its extents."""
        return self.tensor_type.shape

    @property
    def rank(self) -> int:
        """How many axes it has."""
        return len(self.shape)

    def broadcast_like(self, other: Tensor) -> Tensor:
        """`broadcast_to` the shape of `other`."""
        return self.block.op("broadcast_to", self, result_shape=other.shape)

    def named(self, name: str) -> Tensor:
        """Itself, its value called `name` (made unique) from now on."""
        if isinstance(self.operand, Value):
            self.operand.name = self.block.builder.name(name)
        return self

    def __getattr__(self, name: str) -> Callable[..., Tensor]:
        if f"ptir.{name}" not in OPS:
            raise AttributeError(f"PTIR has no op {name!r}")
        return lambda *more, **attrs: self.block.op(name, self, *more, **attrs)

    def __getitem__(self, index: int) -> Tensor:
        if not isinstance(self.operand, Value):
            raise Violation("TupleIndexOutOfRange", "only a value has elements")
        element = Element(self.operand, index)
        operand_type(element)
        return Tensor(self.block, element)

    def __iter__(self) -> Iterator[Tensor]:
        t = self.type
        if not isinstance(t, TupleType):
            raise Violation("TupleIndexOutOfRange", f"{t} is no tuple")
        return (self[i] for i in range(len(t.elements)))

    def _with(self, name: str, other: Tensor | Number, swapped: bool = False) -> Tensor:
        pair = (self, other if isinstance(other, Tensor) else self.block.full(other, like=self))
        return self.block.op(name, *(reversed(pair) if swapped else pair))

    def __neg__(self) -> Tensor:
        return self.block.op("neg", self)

    def __add__(self, other: Tensor | Number) -> Tensor:
        return self._with("add", other)

    def __radd__(self, other: Number) -> Tensor:
        return self._with("add", other, swapped=True)

    def __sub__(self, other: Tensor | Number) -> Tensor:
        return self._with("sub", other)

    def __rsub__(self, other: Number) -> Tensor:
        return self._with("sub", other, swapped=True)

    def __mul__(self, other: Tensor | Number) -> Tensor:
        return self._with("mul", other)

    def __rmul__(self, other: Number) -> Tensor:
        return self._with("mul", other, swapped=True)

    def __truediv__(self, other: Tensor | Number) -> Tensor:
        return self._with("div", other)

    def __rtruediv__(self, other: Number) -> Tensor:
        return self._with("div", other, swapped=True)

    def __lt__(self, other: Tensor | Number) -> Tensor:
        return self._with("compare_lt", other)

    def __le__(self, other: Tensor | Number) -> Tensor:
        return self._with("compare_le", other)

    def __gt__(self, other: Tensor | Number) -> Tensor:
        return self._with("compare_gt", other)

    def __ge__(self, other: Tensor | Number) -> Tensor:
        return self._with("compare_ge", other)

    def __matmul__(self, other: Tensor) -> Tensor:
        """The product of matrices; equal leading axes are batch axes."""
        batch = tuple(range(self.rank - 2))
        return self.block.op("dot_general", self, other, batch, batch, (self.rank - 1,), (other.rank - 2,))


class Block:
    """A function or region under construction. Every op is a method: `block.iota([4], "si32", 0)`."""

    def __init__(self, graph: Graph, region: Region) -> None:
        self.graph = graph
        self.region = region
        self.builder = Builder(DIALECT, region)

    def __getattr__(self, name: str) -> Callable[..., Tensor]:
        if f"ptir.{name}" not in OPS:
            raise AttributeError(f"PTIR has no op {name!r}")
        return lambda *arguments, **attrs: self.op(name, *arguments, **attrs)

    def op(self, name: str, *arguments: Any, regions: Sequence[Region] = (), **attrs: Any) -> Tensor:
        """Append an op. `types=[…]` declares the result type, which a custom call of an unknown target needs; an extent that
        the rule leaves open becomes a new symbol.

        Raises Violation when it is not well typed.
        """
        defn = OPS[f"ptir.{name}"]
        groups = [self._group(g.kind, x) for g, x in zip(defn.groups, arguments, strict=False)]
        rest = arguments[len(defn.groups) :]
        require(len(rest) <= len(defn.attrs), "UnknownAttribute", f"{name} has {len(defn.attrs)} attributes, got {len(rest)}")
        attrs |= {a.name: x for a, x in zip(defn.attrs, rest, strict=False)}
        types = attrs.pop("types", None)
        given = {k: attribute(defn, k, x, groups) for k, x in attrs.items()}
        value = self.builder.op(name, *groups, regions=regions, types=types, **given)
        value.type = self.graph.settled(value.type)
        return Tensor(self, value)

    def _group(self, kind: str, x: Any) -> Any:
        return [self._own(each) for each in x] if kind == MANY else self._own(x)

    def _own(self, x: Tensor) -> Operand:
        if not isinstance(x, Tensor):
            raise TypeError(f"an operand is a Tensor, not {x!r}")
        require(x.block is self, "UndefinedValue", "a region sees its parameters only: pass the value in")
        return x.operand

    def constant(self, values: Any, dtype: str | DType | None = None) -> Tensor:
        """A constant of the elements of `values` (an array, a number or nested lists), of the array's dtype unless one is given.

        Raises Violation("InvalidLiteral") when an integer dtype has not all of them.
        """
        array = np.asarray(values)
        wanted = dtype_named(dtype) if dtype is not None else dtype_of(array)
        cast = arrays.cast(array, dtype_of(array), wanted)
        exact = not wanted.is_integer or bool(np.all(arrays.widen(cast) == array))
        require(exact, "InvalidLiteral", f"{wanted} has not all of these values")
        return self.op("constant", value=arrays.to_literal(cast, tensor(wanted, array.shape)))

    def full(self, value: Number, like: Tensor) -> Tensor:
        """A tensor of the type of `like`, all of it `value`: an inline literal, broadcast. Raises Violation("InvalidLiteral")."""
        t = like.tensor_type
        scalar = natural(value, t.dtype)
        require(scalars.representable(scalar, t.dtype), "InvalidLiteral", f"{value} is no {t.dtype}")
        one = arrays.to_literal(scalars.element(scalar, t.dtype), tensor(t.dtype))
        return self.op("broadcast_to", Tensor(self, one), result_shape=t.shape)

    def cond(
        self, pred: Tensor, arguments: Sequence[Tensor], on_true: Callable[..., Any], on_false: Callable[..., Any]
    ) -> Tensor:
        """`on_true(*arguments)` if `pred` holds, else `on_false(*arguments)`, each built as a region."""
        types = [x.type for x in arguments]
        regions = [self.graph.region_of(f, types) for f in (on_true, on_false)]
        return self.op("cond", pred, list(arguments), regions=regions)

    def while_(self, carry: Sequence[Tensor], test: Build, body: Build) -> Tensor:
        """A loop: `test(*carry)` gives a flag and the carry, `body(*carry)` the next carry."""
        types = [x.type for x in carry]
        return self.op("while", list(carry), regions=[self.graph.region_of(f, types) for f in (test, body)])

    def scan(self, carry: Sequence[Tensor], inputs: Sequence[Tensor], body: Build) -> Tensor:
        """`body(*carry, *slices)` over the leading axis of the inputs gives the next carry, then outputs to stack."""
        slices = [x.tensor_type.with_shape(x.shape[1:]) for x in inputs]
        region = self.graph.region_of(body, [*(x.type for x in carry), *slices])
        counts = {"carry_count": len(carry), "scan_output_count": len(region.results) - len(carry)}
        return self.op("scan", [*carry, *inputs], regions=[region], **counts)


class Graph(Block):
    """A program of one function under construction, and its regions."""

    def __init__(self, name: str = "main") -> None:
        function = Function(name)
        super().__init__(self, function)
        self.program = Program(DIALECT, [function], entry=name)
        self.opened = 0

    def input(self, name: str, dtype: str | DType, shape: Sequence[Dim | str] = ()) -> Tensor:
        """A new parameter; a text in `shape` is a symbol."""
        return Tensor(self, self.builder.param(tensor(dtype_named(dtype), extents(shape)), name))

    def returns(self, *results: Tensor) -> Program:
        """The program, which returns `results`."""
        self.builder.results(*(self._own(x) for x in results))
        return self.program

    def settled(self, t: Type) -> Type:
        """`t` with new symbols `?open0`, `?open1`, … for its UNKNOWN extents."""
        if isinstance(t, TupleType):
            return tuple_of(map(self.settled, t.elements))
        if not isinstance(t, TensorType) or UNKNOWN not in t.shape:
            return t
        return t.with_shape(self._fresh() if d is UNKNOWN else d for d in t.shape)

    def _fresh(self) -> Sym:
        self.opened += 1
        return sym(f"open{self.opened - 1}")

    def region_of(self, build: Build, types: Sequence[Type]) -> Region:
        """A new region of the program with parameters of `types`, and the results that `build` makes of them."""
        region = Region(f"r{len(self.program.regions)}")
        self.program.regions.append(region)
        block = Block(self, region)
        returned = build(*(Tensor(block, block.builder.param(t)) for t in types))
        results = [returned] if isinstance(returned, Tensor) else list(returned)
        block.builder.results(*(block._own(x) for x in results))
        return region


def dtype_named(dtype: str | DType) -> DType:
    """A dtype by its name in PTIR. Raises Violation("DTypeNotSupported")."""
    if isinstance(dtype, DType):
        return dtype
    if dtype not in DTYPES:
        raise Violation("DTypeNotSupported", f"there is no dtype {dtype}")
    return DTYPES[dtype]


def extents(shape: Sequence[Dim | str]) -> Shape:
    """A shape; texts are symbols."""
    return tuple(sym(d.removeprefix("?")) if isinstance(d, str) else d for d in shape)


def natural(value: Number, dtype: DType) -> scalars.Scalar:
    """A Python number as a scalar for `dtype`, of the kind natural to it where that loses nothing."""
    kind = scalars.natural_kind(dtype)
    if kind == scalars.FLOAT and not isinstance(value, complex):
        return scalars.Scalar(kind, float(value))
    if kind == scalars.COMPLEX:
        return scalars.Scalar(kind, complex(value))
    said = {bool: scalars.I1, int: kind if value >= 0 else scalars.SIGNED} if not isinstance(value, complex) else {}
    return scalars.Scalar(said.get(type(value), scalars.COMPLEX if isinstance(value, complex) else scalars.FLOAT), value)


def attribute(defn: OpDef, name: str, x: Any, groups: Sequence[Any]) -> Any:
    """An attribute as the declaration wants it, from what is handy in Python."""
    attr: Attr | None = next((a for a in defn.attrs if a.name == name), None)
    if attr is None:
        return x  # `fill` says that it is unknown
    if attr.kind.startswith("DType"):
        return x if x is None else dtype_named(x)
    if attr.kind in ("Shape", "NewShape"):
        return extents(x)
    if attr.kind == "Scalar" and not isinstance(x, scalars.Scalar):
        t = operand_type(groups[0])
        return natural(x, t.dtype) if isinstance(t, TensorType) else x
    if attr.kind == "Attrs" and isinstance(x, dict):
        return tuple(sorted((key, custom_attribute(value)) for key, value in x.items()))
    return tuples(x)


def custom_attribute(value: Any) -> tuple[str, Any]:
    """An attribute of a custom call with its kind; an empty list is an I64Array."""
    if isinstance(value, (list, tuple)):
        return _CUSTOM_KINDS[type(value[0])] + "Array" if value else "I64Array", tuple(value)
    return _CUSTOM_KINDS[type(value)], value


def tuples(x: Any) -> Any:
    """Lists, nested ones too, as tuples."""
    return tuple(map(tuples, x)) if isinstance(x, (list, tuple)) else x
