"""Ops and blocks of PTIR as nodes of ONNX, and movement of elements that folds with what was moved before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import prod

from ptir_tools.bridges.onnx.computed import COMPUTED
from ptir_tools.bridges.onnx.graph import Body, Extent, Graph, Out, Steps, needed, refused, rename
from ptir_tools.bridges.onnx.ops.shape import bordered
from ptir_tools.bridges.onnx.protocols import Attribute
from ptir_tools.core.arrays import Array
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dtypes import I1, SI64
from ptir_tools.core.expressions import product, to_dim
from ptir_tools.core.ir import Element, Literal, Op, Operand, Region, Value
from ptir_tools.core.lazy import lazy, np
from ptir_tools.core.records import replace
from ptir_tools.core.typed import TYPE_CHECKING, TypeAlias
from ptir_tools.core.types import Dim, Nested, Shape, TensorType, TupleType, flatten, leaves, nest
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.ops.shape import keeps_row_major, relabeled

if TYPE_CHECKING:
    import onnx
else:
    onnx = lazy("onnx")

# The passes that find what leaves as one operator; others may be put in the middle.
READY = "recognize{{convolutions=true}},raise-strides,{}cse,recognize"
_REDUCTIONS = {"none": 11, "add": 16, "mul": 16, "max": 18, "min": 18}  # the operator set that first has them
END = (1 << 63) - 1  # a bound of Slice: the end of the axis

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


class Emitter(Graph):
    """Appends nodes by the idioms and lowerings of ops. `op` is the current PTIR op. With `as_onnx` the result may
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
        super().__init__(opset)
        self.lowerings, self.idioms, self.groups, self.diagnostics = lowerings, idioms, groups, diagnostics
        self.lossy, self.as_onnx = lossy, as_onnx
        self.wanted: dict[Value, str] = {}  # names of the values of the outermost block
        self.reads: Counter[Value] = Counter()  # the number of uses of each value, uses as block results included
        self.values: dict[Value, Tree | None] = {}  # None: the op was refused
        self.parts: dict[Value, Callable[[], Out | None]] = {}  # how an operator of several outputs makes a value
        self.op: Op | None = None

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

    # Movement

    def _folded(self, x: Out, array: Array) -> Out:
        y = Out(self.fresh(x.name), x.dtype, array.shape, self.main, array)
        self.constants[y.name] = y
        return y

    def nan_is_zero(self, y: Out, x: Out) -> Out:
        """Integers `y` converted from floats `x`, with 0 where `x` is NaN, which ONNX leaves open."""
        return y if self.as_onnx else self("Where", self("IsNaN", x), self.scalar(0, y), y, shape=y.shape)

    def reshape(self, x: Out, shape: Sequence[Extent]) -> Out:
        """`x` in another shape; an extent may be a product."""
        flat = tuple(to_dim(product(d)) if isinstance(d, tuple) else d for d in shape)
        if flat == x.shape and not any(isinstance(d, tuple) for d in shape):
            return x
        static = all(isinstance(d, int) for d in flat)
        x = self.whole(x)
        if x.array is not None and static:
            return self._folded(x, np.reshape(x.array, flat))
        if x.stored is not None and static and (same := _axis_after(x.stored[1], x.shape, flat)) is not None:
            q, axis, dequantized = x.stored
            return dequantized(self.reshape(q, flat), None if axis is None else same)
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
        if x.stored is not None:
            q, axis, dequantized = x.stored
            return dequantized(self.transpose(q, perm), None if axis is None else perm.index(axis))
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


def _axis_after(axis: int | None, before: Shape, after: Shape) -> int | None:
    """The axis of a reshaped constant that `axis` was; 0 where it has none, None where it is no longer one axis."""
    if axis is None:
        return 0
    leading = [prod(d for d in after[:a] if isinstance(d, int)) for a in range(len(after))]
    first = prod(d for d in before[:axis] if isinstance(d, int))
    return next((a for a, n in enumerate(leading) if n == first and after[a] == before[axis]), None)
