"""Arrays that record what NumPy does with them as ops of a block."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from inspect import signature

from ptir_tools.bridges.numbers import conjugate, square_root
from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.dtypes import F16, F32, I1, SI16, SI32, SI64
from ptir_tools.core.lazy import np
from ptir_tools.core.spelling import near_names
from ptir_tools.core.typed import TYPE_CHECKING, NoReturn, Protocol, TypeAlias, TypeVar, cast
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.builder.build import Block, Tensor
from ptir_tools.dialects.ptir.ops.numerics import dtype_of

Axes = int | Sequence[int] | None
Dtype: TypeAlias = "str | type | np.dtype | None"  # what NumPy takes; None is the one that it chooses
F = TypeVar("F", bound=Callable[..., object])

# Universal functions of NumPy, and the ops that compute them on operands of one dtype and shape.
OPS = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "negative": "neg", "absolute": "abs", "fabs": "abs",
    "exp": "exp", "expm1": "expm1", "log": "log", "log1p": "log1p", "reciprocal": "reciprocal", "power": "pow", "cbrt": "cbrt",
    "sin": "sin", "cos": "cos", "tan": "tan", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2",
    "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh",
    "floor": "floor", "ceil": "ceil", "rint": "round_even", "sign": "sign", "maximum": "maximum", "minimum": "minimum",
    "remainder": "mod", "fmod": "rem", "isfinite": "is_finite", "invert": "bitwise_not",
    "less": "compare_lt", "less_equal": "compare_le", "greater": "compare_gt", "greater_equal": "compare_ge",
    "equal": "compare_eq", "not_equal": "compare_ne", "bitwise_and": "bitwise_and", "bitwise_or": "bitwise_or",
    "bitwise_xor": "bitwise_xor", "left_shift": "shift_left",
}  # fmt: skip


def _root(x: Tensor) -> Tensor:
    """The square root, of f16 rounded once."""
    return square_root(x.cast(F32)).cast(F16) if x.dtype is F16 else square_root(x)


def _floor_divide(x: Tensor, y: Tensor) -> Tensor:
    """The quotient rounded down; of floats by 0 the quotient."""
    if x.dtype.is_float:
        whole = (x - x.op("mod", x, y)) / y
        return y.compare_eq(0).select(x / y, whole.op("round_even", whole))
    apart = x.op("rem", x, y).compare_ne(0).bitwise_and((x < 0).bitwise_xor(y < 0))
    return x / y - apart.cast(x.dtype)


def _right_shift(x: Tensor, y: Tensor) -> Tensor:
    return x.op("shift_right_arithmetic" if x.dtype.is_signed else "shift_right_logical", x, y)


def _nan(x: Tensor) -> Tensor:
    return x.compare_ne(x)


def _negative(x: Tensor) -> Tensor:
    """Whether the sign bit is set."""
    if not x.dtype.is_float:
        return x < 0
    return x.op("bitcast", x, dtype={F16: SI16, F32: SI32}.get(x.dtype, SI64)) < 0


def _copied_sign(x: Tensor, y: Tensor) -> Tensor:
    size = _negative(x).select(-x, x)
    return _negative(y).select(-size, size)


def _whole(x: Tensor) -> Tensor:
    """The elements without their fractions, with their signs."""
    return (x < 0).select(x.ceil(), x.floor()) if x.dtype.is_float else x


def _parts(x: Tensor) -> tuple[Tensor, Tensor]:
    whole = _whole(x)
    return _copied_sign((x - whole).is_finite().select(x - whole, _nan(x).select(x, 0.0)), x), whole


def _hypot(x: Tensor, y: Tensor) -> Tensor:
    """The root of the sum of squares, computed from the larger one so that no square overflows."""
    a, b = x.abs(), y.abs()
    high, low = a.maximum(b), a.minimum(b)
    ratio = low / high.compare_eq(0).select(1, high)
    endless = a.compare_eq(math.inf).bitwise_or(b.compare_eq(math.inf))
    return endless.select(math.inf, high * _root(ratio * ratio + 1))


def _log_of_sum(x: Tensor, y: Tensor, *, base: float) -> Tensor:
    """log(base^x + base^y)."""
    near = (-(x - y).abs() * math.log(base)).exp().log1p() * (1 / math.log(base))
    high = x.maximum(y)
    return x.compare_eq(y).select(x + math.log(2, base), high.compare_eq(math.inf).select(high, high + near))


def _truth(x: Tensor) -> Tensor:
    return x if x.dtype is I1 else x.compare_ne(0)


# Others, as formulas of the operands.
FORMULAS: dict[str, Callable[..., Tensor | tuple[Tensor, ...]]] = {
    "sqrt": _root,
    "square": lambda x: x * x,
    "positive": lambda x: x,
    "isnan": _nan,
    "isinf": lambda x: x.abs().compare_eq(math.inf) if x.dtype.is_float else x.compare_ne(x),
    "signbit": _negative,
    "copysign": _copied_sign,
    "trunc": _whole,
    "modf": _parts,
    "divmod": lambda x, y: (_floor_divide(x, y), x.op("mod", x, y)),
    "fmax": lambda x, y: _nan(x).select(y, _nan(y).select(x, x.maximum(y))),
    "fmin": lambda x, y: _nan(x).select(y, _nan(y).select(x, x.minimum(y))),
    "hypot": _hypot,
    "heaviside": lambda x, y: _nan(x).select(x, x.compare_eq(0).select(y, (x > 0).cast(x.dtype))),
    "exp2": lambda x: x.block.full(2, x).pow(x),
    "log2": lambda x: x.log() * (1 / math.log(2)),
    "log10": lambda x: x.log() * (1 / math.log(10)),
    "logaddexp": lambda x, y: _log_of_sum(x, y, base=math.e),
    "logaddexp2": lambda x, y: _log_of_sum(x, y, base=2),
    "float_power": lambda x, y: x.pow(y),
    "conjugate": conjugate,
    "deg2rad": lambda x: x * (math.pi / 180),
    "radians": lambda x: x * (math.pi / 180),
    "rad2deg": lambda x: x * (180 / math.pi),
    "degrees": lambda x: x * (180 / math.pi),
    "bitwise_count": lambda x: x.abs().popcount() if x.dtype.is_signed else x.popcount(),
    "floor_divide": _floor_divide,
    "right_shift": _right_shift,
    "logical_and": lambda x, y: _truth(x).bitwise_and(_truth(y)),
    "logical_or": lambda x, y: _truth(x).bitwise_or(_truth(y)),
    "logical_xor": lambda x, y: _truth(x).bitwise_xor(_truth(y)),
    "logical_not": lambda x: _truth(x).bitwise_not(),
}


def _kind(x: object) -> np.dtype | type:
    """What decides the dtype of a result: a dtype, or the type of a number of Python, which is weak."""
    if isinstance(x, (int, float, complex)) and not isinstance(x, (bool, np.generic)):
        return type(x)
    kind: np.dtype = x.dtype if isinstance(x, Traced) else np.asarray(x).dtype
    return kind


def of_dtype(x: object, dtype: np.dtype, block: Block) -> Traced:
    """`x`, or a constant of it, in a dtype of NumPy."""
    return astype(x, dtype) if isinstance(x, Traced) else Traced(block.constant(np.asarray(x, dtype)))


def results_of(made: object) -> tuple[object, ...]:
    """What a function gave, one value or several."""
    return tuple(made) if isinstance(made, (tuple, list)) else (made,)


def of_value(x: object, block: Block) -> Traced:
    """`x`, or a constant of it in `block`."""
    return x if isinstance(x, Traced) else Traced(block.constant(x))


def refused(name: str, reason: str | None = None, instead: str | None = None) -> UsageError:
    """The error for a function of NumPy, or an argument of one, that is not recorded."""
    return UsageError(f"{name} is not recorded here{f': {reason}' if reason else ''}", instead)


if TYPE_CHECKING:

    class _Operators(np.lib.mixins.NDArrayOperatorsMixin):
        """NumPy's operators, which give traced arrays here."""

        def _traced(self, other: object, /) -> Traced: ...

        def __neg__(self) -> Traced: ...

        def __invert__(self) -> Traced: ...

        __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __pow__ = __rpow__ = _traced
        __mod__ = __rmod__ = __and__ = __rand__ = __or__ = __ror__ = __lt__ = __le__ = __gt__ = __ge__ = _traced

    class Functions(Protocol):
        """The functions of NumPy, which give traced arrays for traced ones."""

        def __getattr__(self, name: str, /) -> Callable[..., Traced]: ...

        def shape(self, a: object) -> tuple[int, ...]: ...

        def ndim(self, a: object) -> int: ...

        def size(self, a: object) -> int: ...

else:
    _Operators = np.lib.mixins.NDArrayOperatorsMixin

traced = cast("Functions", np)


class Traced(_Operators):
    """An array whose elements are not known: operators and functions of NumPy on it become ops.

    A view has the array `parent` of which it is, and `write`, what the parent becomes when the view does. `index` is what the
    parent was indexed by. A view is not read any more after another change of the array in which it ends, `root`.
    """

    __slots__ = ("changes", "index", "parent", "recorded", "root", "seen", "write")

    def __init__(self, tensor: Tensor) -> None:
        self.recorded = tensor
        self.parent: Traced | None = None
        self.root, self.changes, self.seen = self, 0, 0
        self.write: Callable[[Traced], Traced] | None = None
        self.index: object = None

    @property
    def tensor(self) -> Tensor:
        """Its value. Raises UsageError for a view of an array that has changed since."""
        if self.root.changes != self.seen:
            raise UsageError("this view is of an array that was changed in place after it was taken: take it after the change")
        return self.recorded

    def view(self, tensor: Tensor, write: Callable[[Traced], Traced] | None, index: object = None) -> Traced:
        """The value `tensor`, which NumPy may keep in the memory of this array."""
        made = Traced(tensor)
        made.parent, made.root, made.seen = self, self.root, self.root.changes
        made.write, made.index = write, index
        return made

    def becomes(self, value: Traced) -> None:
        """Change it in place. Raises UsageError for a view that has elements more than once."""
        if self.parent is not None:
            if self.write is None:
                raise UsageError("an array that was broadcast is changed in place", "make a new one: y = y + 1")
            self.parent.becomes(self.write(value))
        else:
            self.changes += 1
        self.recorded, self.seen = value.tensor, self.root.changes

    @property
    def shape(self) -> tuple[int, ...]:
        """Its extents."""
        return self.tensor.tensor_type.static_shape

    @property
    def dtype(self) -> np.dtype:
        """Its dtype in NumPy."""
        return arrays.numpy_dtype(self.tensor.dtype)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.tensor.tensor_type.count

    @property
    def T(self) -> Traced:
        """The axes in reverse order."""
        return transpose(self)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<traced {self.tensor.type}>"

    def __bool__(self) -> bool:
        raise TypeError("the truth of a traced array is unknown: choose with np.where")

    def __array__(self, *_: object, **__: object) -> Array:
        raise UsageError(
            "np.array and np.asarray of a traced array, and functions that begin with them, are not recorded here",
            "leave them out, join arrays with np.stack, and assign to np.zeros_like(x), not to np.zeros(shape)",
        )

    def __float__(self) -> float:
        raise TypeError("the elements of a traced array are unknown: it is no number of Python")

    __int__ = __index__ = __complex__ = __float__

    def __getattr__(self, name: str) -> object:
        if name.startswith("_") or not hasattr(np.ndarray, name):
            raise AttributeError(f"an array has no attribute {name!r}")
        raise refused(f"the attribute `{name}` of an array", *UNKNOWN.get(name, ()))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *operands: object, **named: object) -> object:
        name = f"np.{ufunc.__name__}{'' if method == '__call__' else f'.{method}'}"
        (out,) = cast("tuple[object]", named.pop("out", (None,)))
        dtype = cast("Dtype", named.pop("dtype", None)) if method == "__call__" else None
        if method != "__call__":
            recorded = REDUCED.get((ufunc.__name__, method))
            if recorded is None or out is not None:
                raise refused(name)
            return _called(name, recorded, operands, named)
        if named or (out is not None and not isinstance(out, Traced)):
            raise refused(
                f"`{next(iter(named), 'out')}` of {name}", None, "np.where chooses elements" if named else "use its result"
            )
        if ufunc.signature is not None:
            result = _called(name, FUNCTIONS.get(ufunc.__name__) or _none(name, ufunc.__name__), operands, {})
        else:
            result = _universal(name, ufunc, operands, None if dtype is None else np.dtype(dtype), self.tensor.block)
        return result if out is None else _into(name, out, result)

    def __array_function__(
        self, function: Callable[..., object], _: object, operands: Sequence[object], named: dict[str, object]
    ) -> object:
        where = function.__module__.removeprefix("numpy").lstrip(".")
        name = f"{where}.{function.__name__}" if where in ("linalg", "fft") else function.__name__
        result = _called(f"np.{name}", FUNCTIONS.get(name) or _none(f"np.{name}", name), operands, named)
        return Traced(result.tensor) if isinstance(result, Traced) and name not in VIEWS else result

    def __getitem__(self, index: object) -> Traced:
        return indexed(self, index)

    def __setitem__(self, index: object, value: object) -> None:
        if isinstance(value, Traced) and value.parent is self and value.index is index is not None:
            return  # what `x[index] += 1` assigns is there already
        self.becomes(assigned(self, index if isinstance(index, tuple) else (index,), value))

    def astype(self, dtype: Dtype) -> Traced:
        """The elements in another dtype."""
        return Traced(astype(self, np.dtype(dtype)).tensor)

    def reshape(self, *shape: int | Sequence[int]) -> Traced:
        """The elements in another shape."""
        return reshape(self, _listed(shape))

    def transpose(self, *axes: int | Sequence[int] | None) -> Traced:
        """The axes in another order."""
        return transpose(self, _listed(axes) or None)


def _listed(given: Sequence[int | Sequence[int] | None]) -> list[int]:
    """Integers that are arguments each, or the only argument as a list."""
    return [n for x in given if x is not None for n in ((x,) if isinstance(x, int) else np.reshape(x, -1).tolist())]


def _universal(name: str, ufunc: np.ufunc, operands: Sequence[object], dtype: np.dtype | None, block: Block) -> object:
    """The result of a universal function. Raises UsageError for one that is not recorded."""
    called = ufunc.__name__
    if called not in OPS and called not in FORMULAS:
        raise _unrecorded(name, called)
    kinds = (*map(_kind, operands), *[None] * ufunc.nout)
    asked = (*[None] * ufunc.nin, *[dtype] * ufunc.nout)
    resolved = ufunc.resolve_dtypes(kinds) if dtype is None else ufunc.resolve_dtypes(kinds, signature=asked)
    values = [of_dtype(x, t, block) for x, t in zip(operands, resolved, strict=False)]
    shape = np.broadcast_shapes(*(x.shape for x in values))
    tensors = [broadcast_to(x, shape).tensor for x in values]
    results = FORMULAS[called](*tensors) if called in FORMULAS else tensors[0].op(OPS[called], *tensors)
    if isinstance(results, Tensor):
        return Traced(astype(Traced(results), resolved[-1]).tensor)
    return tuple(astype(Traced(x), t) for x, t in zip(results, resolved[ufunc.nin :], strict=True))


def _into(name: str, out: Traced, result: object) -> Traced:
    """`out`, changed to a result."""
    assert isinstance(result, Traced)
    if result.shape != out.shape or not np.can_cast(result.dtype, out.dtype, "same_kind"):
        there = f"{out.dtype}[{', '.join(map(str, out.shape))}]"
        raise UsageError(f"{name}: the result is {result!r}, which does not fit in place of {there}")
    out.becomes(astype(result, out.dtype))
    return out


FUNCTIONS: dict[str, Callable[..., object]] = {}  # what is recorded, by its name below `np.`
VIEWS: set[str] = set()  # those of them whose result may be a view of the operand
REDUCED: dict[tuple[str, str], Callable[..., object]] = {}  # methods of universal functions
UNKNOWN: dict[str, tuple[str, str]] = {}  # why functions and attributes are not recorded, and what to write instead


def records(*names: str, view: bool = False) -> Callable[[F], F]:
    """Declare the function that records functions of NumPy. Its parameters have the names that they have there."""

    def register(function: F) -> F:
        FUNCTIONS.update(dict.fromkeys(names, function))
        VIEWS.update(names if view else ())
        return function

    return register


def _unrecorded(name: str, short: str) -> UsageError:
    if (why := UNKNOWN.get(short)) is not None:
        return refused(name, *why)
    similar = near_names(short, [*FUNCTIONS, *OPS, *FORMULAS])
    listed = "docs/builder.md lists the functions that are"
    return refused(name, None, f"did you mean np.{similar[0]}? {listed}" if similar else listed)


def _none(name: str, short: str) -> NoReturn:
    raise _unrecorded(name, short)


def _called(name: str, function: Callable[..., object], operands: Sequence[object], named: dict[str, object]) -> object:
    """The result of `function`. Raises UsageError for arguments that it does not have."""
    given = {k: x for k, x in named.items() if x is not np._NoValue}
    try:
        signature(function).bind(*operands, **given)
    except TypeError as error:
        known = signature(function).parameters
        unknown = next((k for k in given if k not in known), None)
        raise (refused(f"`{unknown}` of {name}") if unknown else UsageError(f"{name}: {error}")) from None
    return function(*operands, **given)


def astype(x: Traced, dtype: np.dtype) -> Traced:
    """`x` in a dtype of NumPy."""
    return x if x.dtype == dtype else Traced(x.tensor.op("cast", x.tensor, dtype=dtype_of(np.zeros((), dtype))))


def broadcast_to(x: Traced, shape: int | Sequence[int]) -> Traced:
    """np.broadcast_to."""
    wanted = (shape,) if isinstance(shape, int) else tuple(shape)
    return x if x.shape == wanted else x.view(x.tensor.broadcast_to(wanted), None)


def reshape(x: Traced, shape: int | Sequence[int]) -> Traced:
    """np.reshape, in the order of C."""
    made = x.tensor.reshape([shape] if isinstance(shape, int) else [int(n) for n in shape])
    return x.view(made, lambda v: Traced(v.tensor.reshape(x.shape)))


def transpose(x: Traced, axes: Sequence[int] | None = None) -> Traced:
    """np.transpose."""
    order = list(reversed(range(x.ndim))) if axes is None else [a % x.ndim for a in axes]
    if order == list(range(x.ndim)):
        return x
    return x.view(x.tensor.transpose(order), lambda v: Traced(v.tensor.transpose([order.index(i) for i in range(x.ndim)])))


def traced_in(*values: object) -> Block | None:
    """The block of the first value that is traced; None if none is."""
    return next((x.tensor.block for x in values if isinstance(x, Traced)), None)


def block_of(*values: object) -> Block:
    """The block of the first value that is traced."""
    block = traced_in(*values)
    assert block is not None  # NumPy calls these functions for a traced value
    return block


def matmul(x: object, y: object) -> Traced:
    """np.matmul, with batch axes broadcast."""
    block = block_of(x, y)
    a, b = of_value(x, block), of_value(y, block)
    dtype = np.result_type(a.dtype, b.dtype)
    a, b = astype(a, dtype), astype(b, dtype)
    row, column = a.ndim == 1, b.ndim == 1
    a, b = reshape(a, (1, -1)) if row else a, reshape(b, (-1, 1)) if column else b
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = (broadcast_to(v, (*batch, *v.shape[-2:])) for v in (a, b))
    result = Traced(a.tensor @ b.tensor)
    result = reshape(result, (*result.shape[:-2], result.shape[-1])) if row else result
    return Traced((reshape(result, result.shape[:-1]) if column else result).tensor)


def indexed(x: Traced, given: object) -> Traced:
    """`x[given]`, by NumPy's basic indexing and by arrays of integers. Raises UsageError and IndexError."""
    index = given if isinstance(given, tuple) else (given,)
    if not any(isinstance(i, (Traced, np.ndarray, list, bool, np.bool_)) for i in index):
        try:
            part = x.tensor[index]
        except TypeError as error:
            raise UsageError(str(error)) from None
        except Violation as violation:
            raise IndexError(violation.message) from None
        scalar = len(index) == x.ndim and all(hasattr(i, "__index__") for i in index)
        return Traced(part) if scalar else x.view(part, lambda v: assigned(x, index, v), given)
    places: list[object] = []
    for i in index:
        array = i if isinstance(i, Traced) or i is None or i is Ellipsis or isinstance(i, slice) else np.asarray(i)
        if isinstance(array, Traced) and array.dtype == np.bool_:
            why = "how many elements it gives depends on values"
            raise refused("an array indexed by a traced mask", why, "choose with np.where; x[mask] = value is recorded")
        masked = isinstance(array, np.ndarray) and array.dtype == np.bool_
        places += np.nonzero(array) if masked else [array]  # type: ignore[arg-type]
    return _gathered(x, places)


def _gathered(x: Traced, index: list[object]) -> Traced:
    """The elements of `x` at arrays of integers along some axes, and slices of the others."""
    given = sum(1 for i in index if i is not None and i is not Ellipsis)
    if given > x.ndim:
        raise IndexError(f"{given} indices for {x.ndim} axes")
    at = next((n for n, i in enumerate(index) if i is Ellipsis), len(index))
    index[at : at + 1] = [slice(None)] * (x.ndim - given)
    wide = reshape(x, [n for i, n in _extents(x, index)])
    axes = [a for a, i in enumerate(index) if isinstance(i, (Traced, np.ndarray))]
    wide = Traced(wide.tensor[tuple(i if isinstance(i, slice) else slice(None) for i in index)])
    block, others = wide.tensor.block, [a for a in range(wide.ndim) if a not in axes]
    flat: Array | Traced | int = 0
    outside: Traced | bool = False
    for a in axes:
        n, i = wide.shape[a], index[a]
        i = i.astype(np.int64) if isinstance(i, Traced) else _inside(np.asarray(i), n, a)
        if isinstance(i, Traced):
            i = traced.where(i < 0, i + n, i)
            outside = outside | (i < 0) | (i >= n)
        flat = flat * n + i
    flat = traced.where(outside, -1, flat) if isinstance(outside, Traced) else flat  # an error of the run
    rest = [wide.shape[a] for a in others]
    rows = reshape(transpose(wide, [*axes, *others]), [math.prod(wide.shape[a] for a in axes), *rest])
    chosen = Traced(rows.tensor.take(of_value(flat, block).astype(np.int64).tensor))
    first = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
    count = chosen.ndim - len(rest)
    return transpose(chosen, [*range(count, count + first), *range(count), *range(count + first, chosen.ndim)])


def _extents(x: Traced, index: list[object]) -> list[tuple[object, int]]:
    """The extents of `x` with an axis of extent 1 for each None of `index`, which becomes a slice."""
    extents = iter(x.shape)
    found = [(i, 1 if i is None else next(extents)) for i in index]
    index[:] = [slice(None) if i is None else i for i in index]
    return found


def _inside(index: Array, n: int, axis: int) -> Array:
    if index.size and index.dtype.kind not in "iu":
        raise IndexError("an array is indexed by integers, slices, None, ... and arrays of integers or truth values")
    if index.size and (index.min() < -n or index.max() >= n):
        raise IndexError(f"an index is outside of axis {axis}, which has the extent {n}")
    return np.where(index < 0, index + n, index).astype(np.int64)


def assigned(x: Traced, index: tuple[object, ...], value: object) -> Traced:
    """`x` with the elements at `index` replaced. Raises UsageError and IndexError."""
    block = x.tensor.block
    new = of_dtype(value, x.dtype, block)
    if len(index) == 1 and isinstance(index[0], Traced) and index[0].dtype == np.bool_:
        if new.ndim:
            raise refused("x[mask] = an array", "which element goes where depends on values", "choose with np.where")
        mask = index[0].reshape(*index[0].shape, *[1] * (x.ndim - index[0].ndim))
        where = broadcast_to(mask, x.shape).tensor
        return Traced(where.select(broadcast_to(new, x.shape).tensor, x.tensor))
    numbers = np.arange(x.size).reshape(x.shape)
    if any(isinstance(i, Traced) for i in index):
        places = indexed(Traced(block.constant(numbers)), index)
    else:
        places = Traced(block.constant(np.asarray(numbers[index])))  # type: ignore[index]
    flat = [reshape(v, -1).tensor for v in (x, places, broadcast_to(new, places.shape))]
    return reshape(Traced(flat[0].op("scatter_reduce", *flat, axis=0, reduce="replace")), x.shape)
