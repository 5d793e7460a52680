"""Constant folding while a model is read: mostly of shapes, which may have symbols."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from traceback import walk_tb

from ptir_tools.bridges.extents import Extent, Unknown, as_dims, least, settled
from ptir_tools.bridges.onnx.table import Node, dtype_of
from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import F32, F64, I1, SI32, SI64, DType
from ptir_tools.core.extremes import MAXIMUM, MINIMUM, Extreme
from ptir_tools.core.lazy import lazy, np
from ptir_tools.core.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx
    from onnx import reference
else:
    onnx = lazy("onnx")
    reference = lazy("onnx.reference")

_MOST = 1 << 16  # elements of a folded result
_REFUSALS = (ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, ValueError)  # of NumPy and ONNX
Found = Array | list[Array] | None
Fold = Callable[..., Found]


class Unfolded(Exception):
    """The operands are not those of a correct node: its handler says what is wrong."""


def called(function: Callable[..., object], *args: object, **named: object) -> Array:
    """The array that a function of NumPy gives. Raises Unfolded."""
    array: Array = asked(function, *args, **named)
    return array


def asked(function: Callable[..., Any], *args: object, **named: object) -> Any:
    """The result of a function of NumPy or ONNX. Raises Unfolded where the library refuses the operands. What the code of this
    toolkit raises when the library calls it is passed on."""
    try:
        return function(*args, **named)
    except _REFUSALS as error:
        if any(
            frame.f_globals.get("__name__", "").startswith("ptir_tools.") for frame, _ in list(walk_tb(error.__traceback__))[1:]
        ):
            raise
        raise Unfolded from None


def wanted(holds: object) -> None:
    """Raise Unfolded unless the condition holds."""
    if not holds:
        raise Unfolded


def _scalar(x: Array) -> Any:
    """The only element of an array."""
    wanted(x.size == 1)
    return x.reshape(())[()]


def fold(node: Node, operands: Sequence[Array]) -> list[Array | None] | None:
    """The outputs of a node with constant operands, or None when it is not folded."""
    if (entry := FOLDS.get(node.name)) is None:
        return None
    try:
        if _result_size(node, operands) > _MOST:
            return None
        with np.errstate(all="ignore"):
            result = entry(node, *operands)
    except (Unfolded, Unknown):
        return None
    node.idle(*range(len(operands)))
    if result is None or node.ignored():
        return None
    return [None if x is None else settled(np.asarray(x)) for x in (result if isinstance(result, list) else [result])]


def _result_size(node: Node, operands: Sequence[Array]) -> float:
    """An upper bound on the elements of the result, without computing it. Raises Unfolded, Unknown."""
    if node.name == "ConstantOfShape" or node.name == "Expand":
        filled = np.prod(np.maximum(np.asarray(_integers(operands[-1]) or 0, np.float64), 1))
        return float(filled) * max(operands[0].size, 1)
    if node.name == "Range":
        start, limit, delta = (float(_scalar(x)) for x in operands)
        wanted(delta and isfinite(count := (limit - start) / delta))
        return abs(count)
    if node.name == "Tile":
        return operands[0].size * float(np.prod(np.maximum(operands[1].astype(np.float64), 0)))
    if node.name == "Pad":
        grown = np.abs(np.asarray(operands[1] if len(operands) > 1 else node.attr("pads") or 0, np.float64)).sum()
        return float(np.prod([n + grown for n in operands[0].shape]))
    if node.name == "OneHot":
        return operands[0].size * abs(float(_scalar(operands[1])))
    if node.name in ("Gather", "GatherND"):
        axis = node.attr("axis") if node.name == "Gather" else 0
        wanted(-operands[0].ndim <= axis < operands[0].ndim)
        return float(operands[0].size / max(operands[0].shape[axis], 1) * operands[1].size)
    if len(operands) > 1 and node.name not in ("Concat", "Split", "Slice", "Reshape"):
        shapes = [x.shape for x in operands]
        rank = max(map(len, shapes))
        extents = [max((s[i - rank] for s in shapes if len(s) >= rank - i), default=1) for i in range(rank)]
        return float(np.prod(extents, dtype=np.float64))
    return 0


def _same(ufunc: Callable[..., Array]) -> Fold:
    def apply(node: Node, *xs: Array) -> Array:
        symbolic = any(x.dtype == object for x in xs)
        out = called(ufunc, *(x.astype(object) if symbolic else x for x in xs))
        return np.asarray(out) if symbolic else np.asarray(out).astype(xs[0].dtype)

    return apply


def _reducing(extreme: Extreme) -> Callable[..., Array]:
    """The function that gives the extreme of arrays that broadcast together."""
    return lambda *xs: extreme.reduce(asked(np.broadcast_arrays, *xs))


def _flags(ufunc: Callable[..., Array]) -> Fold:
    return lambda node, *xs: np.asarray(called(ufunc, *xs)).astype(np.bool_)


def _equal(_: Node, x: Array, y: Array) -> Array | None:
    """An extent is never negative; other comparisons of one are not folded."""
    pairs = called(np.broadcast, x, y)
    out = np.empty(pairs.shape, np.bool_)
    for i, (a, b) in enumerate(pairs):
        symbolic = isinstance(a, Extent) or isinstance(b, Extent)
        if symbolic and a != b and not any(not isinstance(v, Extent) and v < 0 for v in (a, b)):
            return None
        out.flat[i] = bool(a == b)
    return out


def _div(_: Node, x: Array, y: Array) -> Array | None:
    if x.dtype == object or y.dtype == object:
        if any(not isinstance(n, Extent) and n < 1 for n in y.flat) or any(least(n) < 0 for n in x.flat):
            return None  # the quotient is rounded toward zero
        whole: Array = called(np.floor_divide, x.astype(object), y.astype(object))
        return whole
    if x.dtype.kind not in "iu":
        quotient: Array = called(np.divide, x, y)
        return quotient.astype(x.dtype)
    if (y == 0).any():
        return None
    whole = called(np.multiply, np.sign(x), np.sign(y)) * (np.abs(x) // np.abs(y))
    return whole.astype(x.dtype)


def _mod(node: Node, x: Array, y: Array) -> Array | None:
    if node.attr("fmod"):
        return None
    if x.dtype == object or y.dtype == object:
        if any(not isinstance(n, Extent) and n < 1 for n in y.flat):
            return None
        rest: Array = called(np.mod, x.astype(object), y.astype(object))
        return rest
    return None if (y == 0).any() else called(np.mod, x, y).astype(x.dtype)


def cast(x: Array, target: DType) -> Array | None:
    """A constant array in another dtype; None when it is not folded."""
    if x.dtype == object:
        return x if target is SI64 else None
    if target not in (F32, F64, SI32, SI64, I1) or (x.dtype.kind not in "iubf" and x.dtype.name != "bfloat16"):
        return None
    if x.dtype.kind in "fV" and target.is_integer and not (np.abs(x) < 2.0**31).all():
        return None
    return x.astype(arrays.numpy_dtype(target))


def _cumsum(node: Node, x: Array, axis: Array) -> Array | None:
    if x.dtype.kind not in "iu" or node.attr("exclusive"):
        return None
    a = int(_scalar(axis))
    wanted(-x.ndim <= a < x.ndim)
    turned = np.flip(x, a) if node.attr("reverse") else x
    total = np.cumsum(turned, a, dtype=x.dtype)
    return np.flip(total, a) if node.attr("reverse") else total


def _gather_elements(node: Node, x: Array, at: Array) -> Array:
    a = node.attr("axis")
    wanted(x.ndim == at.ndim and -x.ndim <= a < x.ndim)
    a %= x.ndim
    return called(np.take_along_axis, x[tuple(slice(None if i == a else n) for i, n in enumerate(at.shape))], at, a)


def _slice(
    node: Node,
    x: Array,
    starts: Array | None = None,
    ends: Array | None = None,
    axes: Array | None = None,
    steps: Array | None = None,
) -> Array | None:
    if starts is None or ends is None:
        starts, ends, axes = node.given("starts"), node.given("ends"), node.given("axes")
        if starts is None or ends is None:
            return None
    wanted(all(np.ndim(v) == 1 for v in (starts, ends, axes, steps) if v is not None))
    places = range(len(starts)) if axes is None else axes
    index = [slice(None)] * x.ndim
    strides = [1] * len(starts) if steps is None else steps
    wanted(len(starts) == len(ends) == len(places) == len(strides) and all(-x.ndim <= a < x.ndim for a in places))
    for k, a in enumerate(places):
        start, end, step = int(starts[k]), int(ends[k]), int(strides[k])
        wanted(step)
        n = x.shape[a]
        first = max(start + n, 0) if start < 0 else start
        last = end + n if end < 0 else end
        index[a] = slice(first, None if step < 0 and last < 0 else max(last, 0), step)
    return x[tuple(index)]


def _axes(node: Node, axes: Array | None) -> tuple[int, ...] | None:
    """The axes of an operand, or, where it is absent, of the attribute."""
    given = node.attr("axes") if axes is None else axes
    wanted(given is None or np.ndim(given) == 1)
    return None if given is None else tuple(int(a) for a in given)


def _integers(shape: Array) -> list[int] | None:
    """The extents of a shape that has no expressions."""
    dims = [d for d in as_dims(shape) if isinstance(d, int)]
    return dims if len(dims) == shape.size else None


def _reshape(node: Node, x: Array, shape: Array | None = None) -> Array | None:
    if shape is None:
        shape = np.array(node.given("shape", []), np.int64)
    if (dims := _integers(shape)) is None:
        return None
    copies = not node.attr("allowzero")
    wanted(all(d or not copies or i < x.ndim for i, d in enumerate(dims)))
    return called(x.reshape, [x.shape[i] if d == 0 and copies else d for i, d in enumerate(dims)])


def _reduced(ufunc: Callable[..., Array]) -> Fold:
    def apply(node: Node, x: Array, axes: Array | None = None) -> Array:
        given = _axes(node, axes)
        if not given and node.attr("noop_with_empty_axes"):
            return x
        wanted(x.size and len({a + x.ndim * (a < 0) for a in given or ()} & set(range(x.ndim))) == len(given or ()))
        out = called(ufunc, x, axis=given or None, keepdims=node.attr("keepdims") == 1)
        return np.asarray(out).astype(x.dtype)

    return apply


def _filled(node: Node, shape: Array) -> Array | None:
    dims = _integers(shape)
    wanted(dims is None or min(dims, default=0) >= 0)
    if dims is None or int(np.prod(dims, dtype=np.float64)) > 1 << 12:
        return None
    value = node.attr("value")
    one = np.zeros(1, np.float32) if value is None else node.scope.importer.stored.array(value)
    return np.full(dims, _scalar(one))


def _range(_: Node, start: Array, limit: Array, delta: Array) -> Array | None:
    count = max(int(np.ceil((float(_scalar(limit)) - float(_scalar(start))) / float(_scalar(delta)))), 0)
    result: Array = start.reshape(()) + np.arange(count).astype(start.dtype) * delta.reshape(())
    return result.astype(start.dtype)


def _split(node: Node, x: Array, sizes: Array | None = None) -> list[Array]:
    a, given = node.attr("axis", 0), node.given("split")
    wanted(-x.ndim <= a < x.ndim)
    if given:
        sizes = np.array(given)
    elif sizes is None:
        count = node.attr("num_outputs") or node.outputs
        each = -(-x.shape[a] // count)
        sizes = np.array([max(min(each, x.shape[a] - i * each), 0) for i in range(count)])
    return list(np.split(x, np.cumsum(sizes)[:-1].astype(np.int64), axis=a))


def _expand(_: Node, x: Array, shape: Array) -> Array | None:
    if (dims := _integers(shape)) is None:
        return None
    return called(np.broadcast_to, x, called(np.broadcast_shapes, x.shape, tuple(dims)))


# Operators on integers and flags, as shapes and indices need them; ONNX's reference computes them.
_REFERENCE = (
    "ArgMax", "ArgMin", "Compress", "GatherND", "NonZero", "OneHot", "Pad", "ScatterElements",
    "ScatterND", "Sign", "Tile", "TopK", "Trilu", "Unique",
)  # fmt: skip


def _by_reference(node: Node, *xs: Array) -> list[Array] | None:
    """The outputs by ONNX's reference evaluator: of integers, flags, and selections of other constants."""
    if any(x.dtype == object for x in xs):
        return None
    first = xs[0].dtype.kind
    if first not in "iub" and not (node.name in ("NonZero", "Unique", "Compress") and first == "f"):
        return None
    given = {f"x{i}": x for i, x in enumerate(xs)}
    names = [f"y{k}" for k in range(node.outputs)]
    result = onnx.helper.make_node(node.name, list(given), names, **node.attributes())
    infos = [
        onnx.helper.make_tensor_value_info(name, asked(onnx.helper.np_dtype_to_tensor_dtype, x.dtype), x.shape)
        for name, x in given.items()
    ]
    graph = onnx.helper.make_graph([result], "one", infos, [onnx.helper.make_tensor_value_info(name, 7, None) for name in names])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", node.opset)])
    return list(asked(asked(reference.ReferenceEvaluator, model).run, None, given))


FOLDS: dict[str, Fold] = {
    **dict.fromkeys(_REFERENCE, _by_reference),
    "Add": _same(np.add), "Sub": _same(np.subtract), "Mul": _same(np.multiply), "Div": _div, "Mod": _mod,
    "Neg": _same(np.negative), "Abs": _same(np.abs), "Min": _same(_reducing(MINIMUM)),
    "Max": _same(_reducing(MAXIMUM)), "Floor": _same(np.floor), "Ceil": _same(np.ceil),
    "Sqrt": _same(np.sqrt), "Relu": _same(lambda x: MAXIMUM(x, x.dtype.type(0))),
    "Identity": lambda node, x: x, "And": _flags(np.logical_and), "Or": _flags(np.logical_or),
    "Not": _flags(np.logical_not), "Xor": _flags(np.logical_xor), "Equal": _equal, "Less": _flags(np.less),
    "LessOrEqual": _flags(np.less_equal), "Greater": _flags(np.greater), "GreaterOrEqual": _flags(np.greater_equal),
    "GatherElements": _gather_elements, "Slice": _slice, "Reshape": _reshape,
    "ReduceSum": _reduced(np.sum), "ReduceProd": _reduced(np.prod),
    "ReduceMax": _reduced(MAXIMUM.reduce), "ReduceMin": _reduced(MINIMUM.reduce),
    "ConstantOfShape": _filled, "Range": _range, "Split": _split, "Expand": _expand,
    "CumSum": _cumsum,
    "Pow": lambda node, x, y: (_same(np.power) if x.dtype.kind == "f" else _by_reference)(node, x, y),  # of integers as ONNX does
    "Cast": lambda node, x: cast(x, dtype_of(node.attr("to"), "to")),
    "Gather": lambda node, x, at: called(np.take, x, at.astype(np.int64), axis=node.attr("axis")) if x.ndim else None,
    "Unsqueeze": lambda node, x, axes=None: called(np.expand_dims, x, _axes(node, axes) or ()),
    "Squeeze": lambda node, x, axes=None: called(np.squeeze, x, _axes(node, axes)),
    "Concat": lambda node, *xs: called(np.concatenate, xs, axis=node.attr("axis", 1)),
    "Where": lambda node, which, x, y: called(np.where, which, x, y),
    "Transpose": lambda node, x: called(np.transpose, x, node.attr("perm")),
}  # fmt: skip
