"""PTIR from Python: values with methods for the ops, checked at the call.

    g = Graph()
    x = g.input("x", "f32", ("N", 4))
    e = (x - x.reduce_max([-1], keepdims=True).broadcast_like(x)).exp()
    program = g.returns(e / e.reduce_sum([-1], keepdims=True).broadcast_like(e))

Every op of `ptir ops` is a method of its first operand, and of `Graph` and `Block`. Its arguments are the operands, then the
attributes; those with a default are given by name. Lists are accepted as tuples, and names as dtypes and symbols. In an
elementwise op, a Python number becomes a tensor of the other operand's type. Nothing else is broadcast or promoted. A broken rule
raises Violation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from math import prod
from operator import index as as_integer

from ptir_tools.core import arrays
from ptir_tools.core.builder import Builder
from ptir_tools.core.cpython import caller
from ptir_tools.core.declare import OPS
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import I1, DType
from ptir_tools.core.ir import (
    ELEMENTWISE,
    MANY,
    Argument,
    Attribute,
    Element,
    Function,
    OpDef,
    Operand,
    Region,
    Value,
    operand_type,
)
from ptir_tools.core.lazy import np, regex
from ptir_tools.core.typed import cast
from ptir_tools.core.types import UNKNOWN, Dim, Shape, Sym, TensorType, TupleType, Type, sym, tensor, tuple_of
from ptir_tools.core.violations import Violation, require
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.dialects.ptir.builder.attributes import attribute, dtype_named, extents, natural, plain
from ptir_tools.dialects.ptir.builder.methods import BlockMethods, TensorMethods, positional
from ptir_tools.dialects.ptir.builder.places import Caller, Places
from ptir_tools.dialects.ptir.ops import scalars, typerules
from ptir_tools.dialects.ptir.ops.numerics import dtype_of
from ptir_tools.dialects.ptir.text.spelling import NAME
from ptir_tools.rewrite.expression import Expression, Number

_NAME = regex(NAME)
Build = Callable[..., "Tensor | Sequence[Tensor]"]  # from the values of a region's parameters to its result or results


class Tensor(TensorMethods, Expression):
    """A value of a block under construction: a tensor, or a tuple whose elements are `t[0]`, `t[1]`, …"""

    __slots__ = ("block", "operand")

    def __init__(self, block: Block, operand: Operand) -> None:
        self.block = block
        self.operand = operand

    def op(self, name: str, *operands: object, **attrs: Attribute) -> Tensor:
        """The result of the op `name`, in the block of this value."""
        return self.block.op(name, *operands, **attrs)

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
        return self.broadcast_to(other.shape)

    def taken(self, indices: Tensor, axis: int) -> Tensor:
        """The elements at `indices`, a vector, along `axis`."""
        if axis == 0:
            return self.take(indices)
        order = [axis, *(i for i in range(self.rank) if i != axis)]
        return self.transpose(order).take(indices).transpose([order.index(i) for i in range(self.rank)])

    def named(self, name: str) -> Tensor:
        """Itself, with its value renamed to `name` (made unique). Raises ValueError for an illegal name."""
        if isinstance(self.operand, Value):
            self.operand.name = self.block.builder.name(spelled(name))
        return self

    def sqrt(self) -> Tensor:
        """The square root of each element, of 0 and infinity itself."""
        return self.rsqrt().reciprocal()

    def mean(self, axes: Sequence[int] | None = None, *, keepdims: bool = False) -> Tensor:
        """The mean of floats along axes, by default all. Raises Violation."""
        require(self.dtype.is_float, "DTypeNotSupported", f"mean is for floats, not {self.dtype}")
        along = range(self.rank) if axes is None else axes
        total = self.reduce_sum(along, keepdims=keepdims)
        extents = [self.shape[a] for a in along]
        if all(isinstance(d, int) for d in extents):
            return total / prod(d for d in extents if isinstance(d, int))
        return total / self.block.full(1, self).reduce_sum(along, keepdims=keepdims)

    @property
    def T(self) -> Tensor:
        """The axes in reverse order."""
        return self.transpose(range(self.rank)[::-1])

    def __pow__(self, other: Tensor | Number) -> Tensor:
        return self.pow(other)

    def __getitem__(self, index: object) -> Tensor:
        """An element of a tuple; of a tensor, what NumPy's basic indexing gives: by integers, slices, None and `...`."""
        if isinstance(self.type, TensorType):
            return self._indexed(index if isinstance(index, tuple) else (index,))
        if not isinstance(self.operand, Value):
            raise Violation("TupleIndexOutOfRange", "only a value has elements")
        element = Element(self.operand, as_integer(cast("int", index)))
        operand_type(element)
        return Tensor(self.block, element)

    def _indexed(self, index: tuple[object, ...]) -> Tensor:
        """Some elements of a tensor. Raises Violation for an index that is out of range, or is for no axis."""
        given = sum(1 for i in index if i is not None and i is not Ellipsis)
        require(given <= self.rank, "OperandRankMismatch", f"{given} indices for {self.rank} axes")
        filled = [j for i in index for j in ([slice(None)] * (self.rank - given) if i is Ellipsis else [i])]
        filled += [slice(None)] * (self.rank - sum(1 for i in filled if i is not None))
        result, shape, axis = self, list[Dim](), 0
        for i in filled:
            if i is None:
                shape.append(1)
                continue
            result, extents = result._cut(axis, i)
            shape += extents
            axis += 1
        return result if tuple(shape) == result.shape else result.reshape(shape)

    def _cut(self, axis: int, i: object) -> tuple[Tensor, list[Dim]]:
        """The part of an axis at `i`, and the extents that stay of it."""
        extent = self.shape[axis]
        if i == slice(None):
            return self, [extent]
        if isinstance(i, bool) or not (isinstance(i, slice) or hasattr(i, "__index__")):
            raise TypeError(f"a tensor is indexed by integers, slices, None and ..., not by {i!r}")
        if not isinstance(extent, int):
            raise Violation("DynamicDimensionMismatch", f"axis {axis} has the extent {extent}, which no index can cut")
        if isinstance(i, slice):
            places = range(extent)[i]
        else:
            at = as_integer(cast("int", i))
            message = f"{at} is no index of axis {axis} of {self.type}"
            require(-extent <= at < extent, "InvalidAttributeValue", message)
            places = range(at % extent, at % extent + 1)
        kept: list[Dim] = [len(places)] if isinstance(i, slice) else []
        if places == range(extent):
            return self, kept
        if places.step == 1 and self.tensor_type.is_static:
            starts, sizes = [0] * self.rank, list(self.shape)
            starts[axis], sizes[axis] = places.start, len(places)
            return self.op("slice", self, starts=starts, sizes=sizes), kept
        return self.taken(self.block.constant(np.array(places, np.int32)), axis), kept

    def __iter__(self) -> Iterator[Tensor]:
        t = self.type
        if not isinstance(t, TupleType):
            raise Violation("TupleIndexOutOfRange", f"{t} is not a tuple")
        return (self[i] for i in range(len(t.elements)))

    def __repr__(self) -> str:
        return f"<{self.operand!r}>"

    def __matmul__(self, other: Tensor) -> Tensor:
        """The product of the last two axes. The other axes are batch axes of both, or of the left side alone next to a matrix.

        Raises Violation("OperandRankMismatch") for other ranks.
        """
        m, n = self.rank, other.rank
        require(m >= 2 and n in (2, m), "OperandRankMismatch", f"@ takes two ranks alike or a matrix on the right: {m} and {n}")
        batch = range(n - 2)
        return self.dot_general(other, batch_lhs=batch, batch_rhs=batch, contract_lhs=[m - 1], contract_rhs=[n - 2])


class Block(BlockMethods):
    """A function or region under construction. Every op is a method: `block.iota([4], "si32", 0)`."""

    def __init__(self, graph: Graph, region: Region) -> None:
        self.graph = graph
        self.region = region
        self.builder = Builder(DIALECT, region)

    def op(
        self, name: str, *arguments: object, regions: Sequence[Region] = (), types: Sequence[Type] | None = None, **named: object
    ) -> Tensor:
        """Build the op called `name`. `types` declares the result type, which a custom call of an unknown target needs. An
        extent that the type rule leaves open becomes a new symbol.

        Raises Violation when the op is not well typed; it is not built then.
        """
        if (defn := OPS.get(f"{DIALECT.name}.{name}")) is None:
            raise Violation("UnknownOp", f"there is no op `{name}`")
        with self.whole():
            operands, rest = self._operands(defn, arguments, named)
            message = f"{name} takes {positional(defn)} attributes by position, got {len(rest)}"
            require(len(rest) <= positional(defn), "UnknownAttribute", message, help="give the others by name")
            named |= {a.name: x for a, x in zip(defn.attrs, rest, strict=False)}
            known = {a.name: a for a in defn.attrs}
            given: dict[str, Attribute] = {k: attribute(known[k], x, operands) if k in known else x for k, x in named.items()}
            return Tensor(self, self.built(defn, operands, given, regions, types))

    def built(
        self,
        defn: OpDef,
        operands: Sequence[Argument],
        attrs: Mapping[str, Attribute],
        regions: Sequence[Region],
        types: Sequence[Type] | None,
    ) -> Value:
        """The result of a new op at the end of the block."""
        self.builder.loc = self.graph.caller.place(caller(1))
        value = self.builder.op(defn.short, *operands, regions=regions, types=types, **attrs)
        if defn.check is not None and value.op is not None:
            defn.check(value.op)
        value.type = self.graph.settled(value.type)
        return value

    def whole(self) -> AbstractContextManager[None]:
        """A context: after an error in it, none of its ops is appended."""
        return self._undone()

    @contextmanager
    def _undone(self) -> Iterator[None]:
        ops, regions = len(self.region.body), len(self.graph.program.regions)
        try:
            yield
        except BaseException:
            del self.region.body[ops:], self.graph.program.regions[regions:]
            raise

    def _operands(
        self, defn: OpDef, arguments: Sequence[object], named: dict[str, object]
    ) -> tuple[list[Argument], Sequence[object]]:
        """One entry per operand group, by position or (removed from `named`) by name; and the other arguments."""
        groups = list(arguments[: len(defn.groups)])
        groups += [named.pop(g.name) for g in defn.groups[len(groups) :] if g.name in named]
        if ELEMENTWISE in defn.traits and any(isinstance(x, Tensor) for x in groups):
            fitted = iter(tensors := self.fitted([x for x in groups if isinstance(x, Tensor)]))
            groups = [next(fitted) if isinstance(x, Tensor) else x for x in groups]
            groups = [self.full(n, tensors[-1]) if isinstance(n := plain(x), Number) else x for x in groups]
        found: list[Argument] = []
        for group, x in zip(defn.groups, groups, strict=False):
            found.append([*map(self._own, cast("Iterable[object]", x))] if group.kind == MANY else self._own(x))
        return found, arguments[len(defn.groups) :]

    def fitted(self, operands: list[Tensor]) -> list[Tensor]:
        """The operands of an elementwise op in one shape: as they are, unless the graph broadcasts. Raises Violation."""
        return self.graph.fitted(operands)

    def _own(self, x: object) -> Operand:
        if not isinstance(x, Tensor):
            raise TypeError(f"an operand is a Tensor, not {x!r}")
        if x.block is not self:
            there = "a region sees its parameters only: pass the value in"
            raise Violation("UndefinedValue", there if x.block.graph is self.graph else "the value belongs to another Graph")
        return x.operand

    def constant(self, values: object, dtype: str | DType | None = None) -> Tensor:
        """A constant of the elements of `values` (an array, a number or nested lists), of the array's dtype by default.

        Raises Violation("InvalidLiteral") when an integer dtype has not all of them.
        """
        try:
            array = np.asarray(values)
            source = dtype_of(array)
        except (ValueError, KeyError, TypeError):
            raise Violation("InvalidLiteral", f"{values!r} is not an array of a dtype of PTIR") from None
        wanted = dtype_named(dtype) if dtype is not None else source
        cast = arrays.cast(array, source, wanted)
        exact = not wanted.is_integer or bool(np.all(arrays.widen(cast) == array))
        require(exact, "InvalidLiteral", f"{wanted} has not all of these values")
        return self.op("constant", value=arrays.to_literal(cast, tensor(wanted, array.shape)))

    def full(self, value: Number, like: Tensor) -> Tensor:
        """A tensor of the type of `like`, all elements `value`: an inline literal, broadcast. Raises
        Violation("InvalidLiteral")."""
        return self.filled(value, like.tensor_type)

    def filled(self, value: Number, t: TensorType) -> Tensor:
        """A tensor of type `t`, all elements `value`. Raises like `full`."""
        scalar = natural(value, t.dtype)
        fits = scalars.representable(scalar, t.dtype) and not (isinstance(value, bool) and t.dtype is not I1)
        require(fits, "InvalidLiteral", f"{value} does not fit {t.dtype}")
        one = arrays.to_literal(scalars.element(scalar, t.dtype), tensor(t.dtype))
        return self.op("broadcast_to", Tensor(self, one), result_shape=t.shape) if t.rank else self.op("constant", value=one)

    def cond(self, pred: Tensor, arguments: Sequence[Tensor], on_true: Build, on_false: Build) -> Tensor:
        """`on_true(*arguments)` if `pred` holds, else `on_false(*arguments)`, each built as a region."""
        types = [x.type for x in arguments]
        with self.whole():
            regions = [self.graph.region_of(f, types) for f in (on_true, on_false)]
            return self.op("cond", pred, list(arguments), regions=regions)

    def while_(self, carry: Sequence[Tensor], test: Build, body: Build) -> Tensor:
        """A loop: `test(*carry)` gives a flag and the carry, `body(*carry)` the next carry."""
        types = [x.type for x in carry]
        with self.whole():
            return self.op("while", list(carry), regions=[self.graph.region_of(f, types) for f in (test, body)])

    def scan(self, carry: Sequence[Tensor], inputs: Sequence[Tensor], body: Build) -> Tensor:
        """`body(*carry, *slices)` over the leading axis of the inputs gives the next carry, then outputs to stack."""
        slices = [x.tensor_type.with_shape(x.shape[1:]) for x in inputs]
        with self.whole():
            region = self.graph.region_of(body, [*(x.type for x in carry), *slices])
            outputs = len(region.results) - len(carry)
            return self.op("scan", [*carry, *inputs], len(carry), outputs, regions=[region])


class Graph(Block):
    """A program of one function under construction, and its regions. Errors have their places in `file`, by default the
    caller's."""

    def __init__(self, name: str = "main", file: str | None = None) -> None:
        function = Function(name)
        super().__init__(self, function)
        own = Caller(caller(1).f_code.co_filename if file is None else file)
        self.caller: Places = own
        self.program = Program(DIALECT, [function], entry=name, source=own.source)
        self.opened = 0

    def input(self, name: str, dtype: str | DType, shape: Sequence[Dim | str] = ()) -> Tensor:
        """A new parameter; a text in `shape` is a symbol.

        Raises Violation: "DTypeNotSupported", "NegativeDimension"; ValueError for what is not a name.
        """
        checked = typerules.extents(extents(shape), "shape")
        return Tensor(self, self.builder.param(tensor(dtype_named(dtype), checked), spelled(name)))

    def fitted(self, operands: list[Tensor]) -> list[Tensor]:
        """The operands as they are; a graph that is read from another format may broadcast them."""
        return operands

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
        params = zip(types, _parameter_names(build, len(types)), strict=True)
        returned = build(*(Tensor(block, block.builder.param(t, name)) for t, name in params))
        results = [returned] if isinstance(returned, Tensor) else returned
        if not isinstance(results, (list, tuple)):
            raise TypeError(f"the function of a region gives a Tensor or several, not {returned!r}")
        block.builder.results(*(block._own(x) for x in results))
        return region


def spelled(name: str) -> str:
    """`name`. Raises ValueError when it is no name of PTIR text."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a name of a value")
    return name


def _parameter_names(build: Build, count: int) -> Sequence[str]:
    """The names of the parameters of `build`, when it has `count` named ones; else none."""
    code = getattr(getattr(build, "__wrapped__", build), "__code__", None)
    named = code is not None and code.co_argcount == count
    return code.co_varnames[:count] if code is not None and named else [""] * count
