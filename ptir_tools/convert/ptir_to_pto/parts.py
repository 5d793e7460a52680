"""What rules of the preparation build with: memory, subviews, and scalars outside of kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ptir_tools.convert.naming import spelled
from ptir_tools.convert.ptir_to_pto.axes import AffineExpr, Extent, Subview
from ptir_tools.convert.ptir_to_pto.kernel import COUNT
from ptir_tools.convert.ptir_to_pto.operands import (
    INDICES,
    dtype_of,
    integer,
    integer_of,
    raveled,
    scaled,
    tensor_of,
    unraveled,
)
from ptir_tools.convert.ptir_to_pto.outline import Outline, Write
from ptir_tools.core import arrays
from ptir_tools.core.builder import Builder
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import I1, DType
from ptir_tools.core.ir import Element, Function, Literal, Op, Operand, Value, operand_type
from ptir_tools.core.typed import Any
from ptir_tools.core.types import Shape, TensorType, TupleType, Type, sym, tensor
from ptir_tools.dialects.ptir.ops import scalars as numbers
from ptir_tools.rewrite.constants import element_of, literal_of

ARITHMETIC = ("add", "sub", "mul", "minimum", "maximum")
COMPARISONS = {"compare_lt": "lt", "compare_le": "le", "compare_gt": "gt", "compare_ge": "ge", "compare_ne": "ne"}


class Parts:
    """The function that is built, and the parts of which rules make it."""

    def __init__(self, program: Program) -> None:
        self.top = Function(program.main.name, loc=program.main.loc)
        self.b = Builder(program.dialect, self.top, spelled)
        self.outline = Outline(self.top)
        self.values: dict[Value, Operand] = {}
        self.elements: dict[tuple[Value, int], Operand] = {}  # of tuples

    def extent(self, n: Extent, dtype: DType) -> Operand:
        """An extent as a scalar."""
        if isinstance(n, int):
            return integer(n, dtype)
        known = self.outline.extents
        result = next((v for v, s in known.items() if s == n and dtype_of(v) is dtype), None)
        if result is None:
            known[result := Value(tensor(dtype, ()), self.b.name(n.name))] = n
            self.outline.scalars.add(result)
        return result

    def length(self, n: Operand) -> Extent:
        """A scalar as an extent."""
        if (known := integer_of(n)) is not None:
            return known
        assert isinstance(n, Value)
        result = sym(self.b.name(n.name))
        self.outline.lengths[result] = n
        return result

    def place(self, at: Operand) -> AffineExpr:
        """A scalar as an index along a dimension."""
        if (known := integer_of(at)) is not None:
            return AffineExpr((), known)
        assert isinstance(at, Value)
        return AffineExpr((), 0, ((at, 1),))

    def memory(self, t: Type, name: str) -> Value:
        """New memory that copies write to."""
        return Value(t, self.b.name(name))

    def held(self, t: Type, name: str) -> Value:
        """Memory for a value; of a tuple, for each of its elements."""
        whole = self.memory(t, name)
        for i, element in enumerate(t.elements if isinstance(t, TupleType) else ()):
            self.elements[whole, i] = self.held(element, name)
        return whole

    def leaves(self, x: Operand) -> list[Operand]:
        """The leaves of a value: itself, or those of a tuple."""
        t = operand_type(x)
        if not isinstance(t, TupleType) or not isinstance(x, Value) or x in self.outline.lost:
            return [x]
        parts = [part for i in range(len(t.elements)) if (part := self.elements.get((x, i))) is not None]
        return [x] if len(parts) < len(t.elements) else [leaf for part in parts for leaf in self.leaves(part)]

    def write(self, memory: Value, x: Operand, first: Sequence[AffineExpr] = (), steps: Sequence[int] = ()) -> None:
        """Copy `x` into a part of memory."""
        t = tensor_of(x)
        if 0 in t.shape:
            return
        if isinstance(x, Literal):
            x = self.b.op("broadcast_to", Literal(tensor(t.dtype, ()), element_of(x)), result_shape=t.shape)
        result = self.b.op("stop_gradient", x, name=memory.name)
        self.outline.writes[result] = Write(memory, tuple(first) or (AffineExpr(),) * t.rank, tuple(steps) or (1,) * t.rank)

    def copied(self, x: Operand, name: str) -> Value:
        """A copy of `x` in its own memory."""
        memory = self.memory(tensor_of(x), name)
        self.write(memory, x)
        return memory

    def seen(self, short: str, subview: Subview, x: Operand, *operands: Operand, shape: Shape, **attrs: Any) -> Value:
        """A subview of `x`, as an op of the kind `short`."""
        result = self.b.op(short, x, *operands, types=[tensor_of(x).with_shape(shape)], **attrs)
        assert result.op is not None
        result.op.operands = (x,)
        self.outline.subviews[result.op] = subview
        return result

    def element(self, x: numbers.Scalar, dtype: DType) -> bytes:
        """The bytes of a number in `dtype`."""
        return arrays.pack(numbers.element(x, dtype).reshape(1), dtype)

    def fill(self, t: TensorType, data: bytes) -> Literal:
        """A splat literal."""
        return Literal(t, data, True)

    def number(self, x: Operand, at: int = 0) -> Operand | None:
        """Element `at` of an operand as a scalar; None where only a kernel computes it."""
        while isinstance(x, Value) and x.op is None and x in self.values:
            x = self.values[x]
        if isinstance(x, Element):
            entry = self.elements.get((x.value, x.index))
            return None if entry is None else self.number(entry, at)
        if (literal := literal_of(x)) is not None:
            size = literal.type.dtype.size
            if literal.data is None or (literal.type.dtype.bits < 8 and literal.type.dtype is not I1):
                return None
            at = 0 if literal.splat else at * size
            return Literal(tensor(literal.type.dtype, ()), literal.data[at : at + size])
        if not isinstance(x, Value) or not isinstance(x.type, TensorType) or not x.type.is_static:
            return None
        if x in self.outline.scalars:
            return x
        return None if x.op is None else self._computed(x.op, x.type, at)

    def _computed(self, op: Op, t: TensorType, at: int) -> Operand | None:
        short, shape = op.defn.short, t.static_shape
        where = unraveled(at, shape)
        if (subview := self.outline.subviews.get(op)) is not None:
            return self._seen(op.operands[0], subview, where)
        if short in ("reshape", "stop_gradient"):
            return self.number(op.operands[0], at)
        if short == COUNT:
            return integer(where[op.attr("axis")], t.dtype)
        inputs = [i for x in op.operands if isinstance(i := operand_type(x), TensorType) and i.is_static]
        if len(inputs) < len(op.operands):
            return None
        first = inputs[0].static_shape if inputs else ()
        if short == "broadcast_to":
            inner = [0 if n == 1 else i for i, n in zip(where[len(where) - len(first) :], first, strict=True)]
            return self.number(op.operands[0], raveled(inner, first))
        if short == "transpose":
            place = dict(zip(op.attr("perm"), where, strict=True))
            return self.number(op.operands[0], raveled([place[d] for d in range(len(first))], first))
        if short == "slice":
            starts = op.attr("starts")
            return self.number(op.operands[0], raveled([i + s for i, s in zip(where, starts, strict=True)], first))
        if short == "concat":
            axis = op.attr("axis") % t.rank
            for x, i in zip(op.operands, inputs, strict=True):
                n = i.static_shape
                if where[axis] < n[axis]:
                    return self.number(x, raveled(where, n))
                where[axis] -= n[axis]
        own = (t.dtype in INDICES and short in ARITHMETIC) or short in COMPARISONS or short == "compare_eq"
        cast = short == "cast" and t.dtype in INDICES
        if not (own or cast) or any(i.dtype not in INDICES for i in inputs):
            return None
        if cast and t.dtype.bits < inputs[0].dtype.bits:
            return None
        given = [scalar for x in op.operands if (scalar := self.number(x, at)) is not None]
        if len(given) < len(op.operands):
            return None
        return self.arithmetic(short, *given, **({"dtype": t.dtype} if cast else {}))

    def _seen(self, x: Operand, subview: Subview, where: Sequence[int]) -> Operand | None:
        """An element of a subview."""
        t = tensor_of(x)
        inside = {pair: i for group, at in zip(subview.groups, where, strict=True) for pair, i in _digits(subview, group, at)}
        index_map = [
            AffineExpr((), s.start + sum(k * inside.get((d, i), 0) for i, (_, k) in enumerate(cut)), s.shifts)
            for d, (s, cut) in enumerate(zip(subview.first, subview.cuts, strict=True))
        ]
        if not any(s.shifts for s in index_map):
            return self.number(x, raveled([s.start for s in index_map], t.static_shape))
        if not isinstance(x, Value) or x.op is None or x.op.defn.short != COUNT:
            return None
        expr = index_map[x.op.attr("axis")]
        result: Operand = integer(expr.start, t.dtype)
        for v, k in expr.shifts:
            if dtype_of(v) is not t.dtype:
                return None
            result = self.arithmetic("add", self.arithmetic("mul", v, integer(k, t.dtype)), result)
        return result

    def arithmetic(self, short: str, *operands: Operand, **attrs: Any) -> Operand:
        """An op on scalars."""
        known = [integer_of(x) for x in operands]
        t = operand_type(operands[0])
        assert isinstance(t, TensorType)
        folds: dict[str, Callable[..., int]] = {
            "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "minimum": min, "maximum": max,
            "div": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
        }  # fmt: skip
        if None not in known and short in folds and t.dtype.min <= (n := folds[short](*known)) <= t.dtype.max:
            return integer(n, t.dtype)
        if short == "mul" and 1 in known:
            return operands[known.index(1) ^ 1]
        if short == "add" and 0 in known:
            return operands[known.index(0) ^ 1]
        result = self.b.op(short, *operands, **attrs)
        self.outline.scalars.add(result)
        return result

    def part(
        self, x: Operand, first: Sequence[AffineExpr], sizes: Sequence[Extent], name: str, steps: Sequence[int] = ()
    ) -> Operand:
        """The slice of `x` of extents `sizes` from `first` on; every `steps`-th element, if given."""
        if isinstance(x, Literal):
            return self.fill(x.type.with_shape(tuple(sizes)), element_of(x) or b"")
        rank = len(sizes)
        cuts = tuple((cut,) for cut in zip(sizes, steps or [1] * rank, strict=True))
        subview = Subview(tuple(first), cuts, tuple(((d, 0),) for d in range(rank)))
        starts = tuple(s.start for s in first)
        return self.seen("slice", subview, x, shape=tuple(sizes), starts=starts, sizes=tuple(sizes), name=name)

    def padded(
        self,
        x: Operand,
        low: Sequence[int],
        high: Sequence[int],
        interior: Sequence[int],
        fill: bytes,
        name: str,
        shape: Shape | None = None,
    ) -> Operand:
        """`x` padded and dilated with `fill`; `shape` is the declared result shape, if any."""
        if not any((*low, *high, *interior)):
            return x
        t = tensor_of(x)
        if shape is None:
            extents = zip(low, t.shape, high, interior, strict=True)
            shape = tuple(scaled(n, i + 1, a + b - i) if isinstance(n, int) or a or b or i else n for a, n, b, i in extents)
        to = t.with_shape(shape)
        memory = self.memory(to, name)
        self.write(memory, self.fill(to, fill))
        self.write(memory, x, [AffineExpr((), a) for a in low], [i + 1 for i in interior])
        return memory

    def cast(self, x: Operand, dtype: DType, name: str = "") -> Value:
        """`x` converted to other elements."""
        if dtype_of(x) is dtype and isinstance(x, Value):
            return x
        return self.b.op("cast", x, dtype=dtype, name=name)

    def transposed(self, x: Operand, perm: list[int]) -> Operand:
        return x if perm == sorted(perm) else self.b.op("transpose", x, perm=tuple(perm))


def _digits(subview: Subview, group: Sequence[tuple[int, int]], at: int) -> Iterator[tuple[tuple[int, int], int]]:
    """The digits of index `at` of a subview's dimension in the extents that it is a product of."""
    extents = [subview.cuts[d][i][0] for d, i in group]
    return zip(group, unraveled(at, extents), strict=True)  # type: ignore[arg-type]
