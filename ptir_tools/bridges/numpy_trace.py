"""Functions on NumPy arrays as programs. The function is called once with values that record what NumPy does with them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.dtypes import F16, F32, I1
from ptir_tools.core.lazy import np
from ptir_tools.core.typed import Any
from ptir_tools.core.verify import verify
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.builder.build import Block, Graph, Tensor
from ptir_tools.dialects.ptir.composites.rounding import sqrt
from ptir_tools.dialects.ptir.ops.numerics import dtype_of

Axes = int | Sequence[int] | None

# Universal functions of NumPy, and the ops that compute them on operands of one dtype and shape.
_OPS = {
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
    return sqrt(x.cast(F32)).cast(F16) if x.dtype is F16 else sqrt(x)


def _floor_divide(x: Tensor, y: Tensor) -> Tensor:
    """The quotient rounded down; of floats by 0 the quotient."""
    if x.dtype.is_float:
        whole = (x - x.op("mod", x, y)) / y
        return y.compare_eq(0).select(x / y, whole.op("round_even", whole))
    apart = x.op("rem", x, y).compare_ne(0).bitwise_and((x < 0).bitwise_xor(y < 0))
    return x / y - apart.cast(x.dtype)


def _right_shift(x: Tensor, y: Tensor) -> Tensor:
    return x.op("shift_right_arithmetic" if x.dtype.is_signed else "shift_right_logical", x, y)


def _truth(x: Tensor) -> Tensor:
    return x if x.dtype is I1 else x.compare_ne(0)


# Others, as formulas of the operands.
_FORMULAS: dict[str, Callable[..., Tensor]] = {
    "sqrt": _root,
    "square": lambda x: x * x,
    "positive": lambda x: x,
    "isnan": lambda x: x.op("compare_ne", x, x),
    "floor_divide": _floor_divide,
    "right_shift": _right_shift,
    "logical_and": lambda x, y: _truth(x).bitwise_and(_truth(y)),
    "logical_or": lambda x, y: _truth(x).bitwise_or(_truth(y)),
    "logical_xor": lambda x, y: _truth(x).bitwise_xor(_truth(y)),
    "logical_not": lambda x: _truth(x).bitwise_not(),
}


def trace(function: Callable[..., object], *examples: object) -> Program:
    """The program of a function of NumPy for arguments like `examples`: arrays or numbers. Inputs have the names of the
    parameters. Arrays that the function makes are constants; a branch of Python is decided once, while it is traced.

    Raises UsageError for what is not recorded, and TypeError for a branch on the value of an argument.
    """
    graph = Graph(getattr(function, "__name__", "main").strip("<>").replace("lambda", "main"))
    given = [np.asarray(x) for x in examples]
    names = _names(function, len(given))
    inputs = [Traced(graph.input(n, dtype_of(x), x.shape)) for n, x in zip(names, given, strict=True)]
    program = graph.returns(*(of_value(x, graph).tensor for x in results_of(function(*inputs))))
    program.format = program.dialect.formats[0].name
    diagnostics = Diagnostics(program.source)
    verify(program, diagnostics, Options())
    diagnostics.raise_if_errors()
    return program


def _kind(x: object) -> np.dtype | type:
    """What decides the dtype of a result: a dtype, or the type of a number of Python, which is weak."""
    if isinstance(x, (int, float, complex)) and not isinstance(x, (bool, np.generic)):
        return type(x)
    kind: np.dtype = x.dtype if isinstance(x, Traced) else np.asarray(x).dtype
    return kind


def _of_dtype(x: object, dtype: np.dtype, block: Block) -> Traced:
    return astype(x, dtype) if isinstance(x, Traced) else Traced(block.constant(np.asarray(x, dtype)))


def _names(function: Callable[..., object], count: int) -> list[str]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    fixed = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [*fixed[:count], *(f"arg{i}" for i in range(len(fixed), count))]


def results_of(made: object) -> tuple[object, ...]:
    """What a function gave, one value or several."""
    return tuple(made) if isinstance(made, (tuple, list)) else (made,)


def of_value(x: object, block: Block) -> Traced:
    """`x`, or a constant of it in `block`."""
    return x if isinstance(x, Traced) else Traced(block.constant(x))


class Traced(np.lib.mixins.NDArrayOperatorsMixin):
    """An array whose elements are not known: operators and functions of NumPy on it become ops."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

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
        raise TypeError("the elements of a traced array are unknown: this function of NumPy is not recorded")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *operands: object, **named: object) -> Traced:
        if ufunc is np.matmul and method == "__call__":
            return matmul(*operands)
        known = ufunc.__name__ in _OPS or ufunc.__name__ in _FORMULAS
        if method != "__call__" or named or not known:
            raise UsageError(f"np.{ufunc.__name__}{'' if method == '__call__' else f'.{method}'} is not recorded here")
        resolved = ufunc.resolve_dtypes((*map(_kind, operands), *[None] * ufunc.nout))
        pairs = zip(operands, resolved, strict=False)
        values = [_of_dtype(x, t, self.tensor.block) for x, t in pairs]
        shape = np.broadcast_shapes(*(x.shape for x in values))
        tensors = [broadcast_to(x, shape).tensor for x in values]
        name = ufunc.__name__
        result = _FORMULAS[name](*tensors) if name in _FORMULAS else tensors[0].op(_OPS[name], *tensors)
        return astype(Traced(result), resolved[-1])

    def __array_function__(
        self, function: Callable[..., object], _: object, operands: Sequence[Any], named: dict[str, Any]
    ) -> object:
        recorded = _FUNCTIONS.get(function.__name__)
        if recorded is None:
            name = f"{function.__module__}.{function.__name__}".replace("numpy", "np")
            raise UsageError(f"{name} is not recorded here")
        return recorded(*operands, **named)

    def __getitem__(self, index: object) -> Traced:
        return _indexed(self, index if isinstance(index, tuple) else (index,))

    def astype(self, dtype: Any) -> Traced:
        """The elements in another dtype."""
        return astype(self, np.dtype(dtype))

    def reshape(self, *shape: Any) -> Traced:
        """The elements in another shape."""
        return reshape(self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> Traced:
        """The axes in another order."""
        return transpose(self, axes[0] if len(axes) == 1 else axes or None)

    def sum(self, axis: Axes = None, keepdims: bool = False) -> Traced:
        """The sum along axes."""
        return _sum(self, axis, keepdims=keepdims)

    def mean(self, axis: Axes = None, keepdims: bool = False) -> Traced:
        """The mean along axes."""
        return mean(self, axis, keepdims=keepdims)

    def max(self, axis: Axes = None, keepdims: bool = False) -> Traced:
        """The largest along axes."""
        return _reduced("reduce_max", self, axis, keepdims)

    def min(self, axis: Axes = None, keepdims: bool = False) -> Traced:
        """The smallest along axes."""
        return _reduced("reduce_min", self, axis, keepdims)


def astype(x: Traced, dtype: np.dtype) -> Traced:
    """`x` in a dtype of NumPy."""
    return x if x.dtype == dtype else Traced(x.tensor.op("cast", x.tensor, dtype=dtype_of(np.zeros((), dtype))))


def broadcast_to(x: Traced, shape: int | Sequence[int]) -> Traced:
    """np.broadcast_to."""
    wanted = (shape,) if isinstance(shape, int) else tuple(shape)
    return x if x.shape == wanted else Traced(x.tensor.broadcast_to(wanted))


def reshape(x: Traced, shape: int | Sequence[int]) -> Traced:
    """np.reshape, in the order of C."""
    return Traced(x.tensor.reshape([shape] if isinstance(shape, int) else list(shape)))


def transpose(x: Traced, axes: Sequence[int] | None = None) -> Traced:
    """np.transpose."""
    order = list(reversed(range(x.ndim))) if axes is None else [a % x.ndim for a in axes]
    return x if order == list(range(x.ndim)) else Traced(x.tensor.transpose(order))


def swapaxes(x: Traced, first: int, second: int) -> Traced:
    """np.swapaxes."""
    axes = list(range(x.ndim))
    axes[first], axes[second] = axes[second], axes[first]
    return transpose(x, axes)


def _axes(x: Traced, axis: Axes) -> list[int]:
    return list(range(x.ndim)) if axis is None else [axis % x.ndim] if isinstance(axis, int) else [a % x.ndim for a in axis]


def _reduced(name: str, x: Traced, axis: Axes, keepdims: bool = False) -> Traced:
    return Traced(x.tensor.op(name, x.tensor, axes=_axes(x, axis), keepdims=keepdims))


def _sum(x: Traced, axis: Axes = None, keepdims: bool = False) -> Traced:
    return _reduced("reduce_sum", astype(x, np.sum(np.zeros(1, x.dtype)).dtype), axis, keepdims)


def _prod(x: Traced, axis: Axes = None, keepdims: bool = False) -> Traced:
    return _reduced("reduce_prod", astype(x, np.prod(np.zeros(1, x.dtype)).dtype), axis, keepdims)


def mean(x: Traced, axis: Axes = None, keepdims: bool = False) -> Traced:
    """np.mean."""
    wide = astype(x, np.mean(np.zeros(1, x.dtype)).dtype)
    count = np.prod([x.shape[a] for a in _axes(x, axis)], dtype=np.int64)
    result: Traced = _reduced("reduce_sum", wide, axis, keepdims) / np.asarray(count, wide.dtype)
    return result


def var(x: Traced, axis: Axes = None, keepdims: bool = False) -> Traced:
    """np.var. Raises UsageError for complex numbers."""
    if x.dtype.kind == "c":
        raise UsageError("np.var of complex numbers is not recorded here")
    far = x - mean(x, axis, keepdims=True)
    return mean(far * far, axis, keepdims)


def _truths(name: str) -> Callable[..., Traced]:
    return lambda x, axis=None, keepdims=False: _reduced(name, astype(x, np.dtype(np.bool_)), axis, keepdims)


def _place(name: str) -> Callable[..., Traced]:
    def call(x: Traced, axis: int | None = None) -> Traced:
        flat = x if axis is not None else reshape(x, -1)
        return astype(Traced(flat.tensor.op(name, flat.tensor, axis=(axis or 0) % flat.ndim)), np.dtype(np.int64))

    return call


def traced_in(*values: object) -> Block | None:
    """The block of the first value that is traced; None if none is."""
    return next((x.tensor.block for x in values if isinstance(x, Traced)), None)


def _block(*values: object) -> Block:
    block = traced_in(*values)
    assert block is not None  # NumPy calls these functions for a traced value
    return block


def concatenate(parts: Sequence[object], axis: int = 0) -> Traced:
    """np.concatenate, of arrays of one dtype after promotion."""
    block = _block(*parts)
    traced = [of_value(x, block) for x in parts]
    dtype = np.result_type(*(x.dtype for x in traced))
    return Traced(block.op("concat", [astype(x, dtype).tensor for x in traced], axis=axis % traced[0].ndim))


def stack(parts: Sequence[Traced], axis: int = 0) -> Traced:
    """np.stack."""
    return concatenate([expand_dims(x, axis) for x in parts], axis)


def expand_dims(x: Traced, axis: int) -> Traced:
    """np.expand_dims."""
    at = axis % (x.ndim + 1)
    return reshape(x, (*x.shape[:at], 1, *x.shape[at:]))


def squeeze(x: Traced, axis: Axes = None) -> Traced:
    """np.squeeze."""
    dropped = [a for a, n in enumerate(x.shape) if n == 1] if axis is None else _axes(x, axis)
    return reshape(x, tuple(n for a, n in enumerate(x.shape) if a not in dropped))


def where(test: object, x: object, y: object) -> Traced:
    """np.where of three arrays."""
    block = _block(test, x, y)
    dtype = np.result_type(*(v.dtype if isinstance(v, Traced) else v for v in (x, y)))  # type: ignore[arg-type]
    sides = [_of_dtype(v, dtype, block) for v in (x, y)]
    flag = _of_dtype(test, np.dtype(np.bool_), block)
    shape = np.broadcast_shapes(flag.shape, *(v.shape for v in sides))
    p, a, b = (broadcast_to(v, shape).tensor for v in (flag, *sides))
    return Traced(p.select(a, b))


def clip(x: Any, low: Any = None, high: Any = None) -> Any:
    """np.clip."""
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def matmul(x: Any, y: Any) -> Traced:
    """np.matmul, with batch axes broadcast."""
    block = _block(x, y)
    a, b = of_value(x, block), of_value(y, block)
    dtype = np.result_type(a.dtype, b.dtype)
    a, b = astype(a, dtype), astype(b, dtype)
    row, column = a.ndim == 1, b.ndim == 1
    a, b = reshape(a, (1, -1)) if row else a, reshape(b, (-1, 1)) if column else b
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = (broadcast_to(v, (*batch, *v.shape[-2:])) for v in (a, b))
    result = Traced(a.tensor @ b.tensor)
    result = reshape(result, (*result.shape[:-2], result.shape[-1])) if row else result
    return reshape(result, result.shape[:-1]) if column else result


def dot(x: Any, y: Any) -> Traced:
    """np.dot of at most two axes on the right. Raises UsageError for more, which np.matmul multiplies otherwise."""
    if np.ndim(x) == 0 or np.ndim(y) == 0:
        result: Traced = x * y
        return result
    if np.ndim(y) > 2:
        raise UsageError("np.dot of a stack of matrices is not recorded here; np.matmul multiplies stacks")
    return matmul(x, y)


def einsum(formula: str, *operands: Any) -> Traced:
    """np.einsum without ellipses and diagonals: products over all letters, summed over those that the result lacks."""
    inputs, _, output = formula.replace(" ", "").partition("->")
    terms = inputs.split(",")
    letters = "".join(dict.fromkeys(inputs.replace(",", "")))
    if "->" not in formula:
        output = "".join(sorted(c for c in letters if inputs.count(c) == 1))
    if "." in formula or any(len(set(t)) < len(t) for t in terms):
        raise UsageError(f"np.einsum of `{formula}` is not recorded here")
    if len(terms) == 2:
        contracted = _contraction(terms[0], terms[1], output, operands[0], operands[1])
        if contracted is not None:
            return contracted
    order = output + "".join(c for c in letters if c not in output)
    product = None
    for term, x in zip(terms, operands, strict=True):
        placed = np.transpose(x, sorted(range(len(term)), key=lambda i: order.index(term[i])))
        wide = np.reshape(placed, tuple(x.shape[term.index(c)] if c in term else 1 for c in order))
        product = wide if product is None else product * wide
    assert isinstance(product, Traced)
    summed = tuple(range(len(output), len(order)))
    return _reduced("reduce_sum", product, summed) if summed else product


def _contraction(a: str, b: str, output: str, x: Any, y: Any) -> Traced | None:
    """The einsum `a,b->output` as one product; None if it is no contraction, or a letter of one side alone is summed."""
    shared = [c for c in a if c in b]
    batch, summed = [c for c in shared if c in output], [c for c in shared if c not in output]
    alone = [c for c in a + b if c not in shared]
    block = _block(x, y)
    first, second = of_value(x, block), of_value(y, block)
    dtype = np.result_type(first.dtype, second.dtype)
    if not summed or not set(alone) <= set(output) or dtype.kind == "b":
        return None
    product = astype(first, dtype).tensor.dot_general(
        astype(second, dtype).tensor,
        batch_lhs=[a.index(c) for c in batch],
        batch_rhs=[b.index(c) for c in batch],
        contract_lhs=[a.index(c) for c in summed],
        contract_rhs=[b.index(c) for c in summed],
    )
    return transpose(Traced(product), [[*batch, *alone].index(c) for c in output])


def _indexed(x: Traced, index: tuple[object, ...]) -> Traced:
    """Basic indexing, and one array of integers along the first axis."""
    if len(index) == 1 and isinstance(index[0], (Traced, np.ndarray, list)):
        at = index[0] if isinstance(index[0], Traced) else Traced(x.tensor.block.constant(np.asarray(index[0])))
        if at.dtype.kind not in "iu":
            raise UsageError("an array is indexed by integers here, or chosen from with np.where")
        positive = where(at < 0, at + x.shape[0], at)
        return Traced(x.tensor.take(astype(positive, np.dtype(np.int32)).tensor))
    try:
        return Traced(x.tensor[index])
    except TypeError:
        raise UsageError("an array is indexed by integers, slices, None and … here") from None
    except Violation as violation:
        raise IndexError(violation.message) from None


def take(x: Traced, indices: object, axis: int | None = None) -> Traced:
    """np.take; an index may be negative, and one that is out of range is an error of the run."""
    flat, at = (reshape(x, -1), 0) if axis is None else (x, axis % x.ndim)
    if at == 0:
        return flat[np.asarray(indices) if isinstance(indices, (int, list, tuple)) else indices]
    order = [at, *(a for a in range(x.ndim) if a != at)]
    count = np.ndim(indices)  # type: ignore[arg-type]
    moved = take(transpose(x, order), indices, 0)
    return transpose(moved, [*range(count, count + at), *range(count), *range(count + at, moved.ndim)])


def norm(x: Traced, ord: object = None, axis: Axes = None, keepdims: bool = False) -> Traced:
    """np.linalg.norm of the second order, of vectors or of all elements. Raises UsageError for other orders."""
    vectors = isinstance(axis, int) or x.ndim == 1
    if ord not in (None, *([2] if vectors else []), *(["fro"] if x.ndim == 2 and not vectors else [])) or x.dtype.kind == "c":
        raise UsageError(f"np.linalg.norm of order {ord} of {x!r} is not recorded here")
    wide = x if x.dtype.kind == "f" else astype(x, np.dtype(np.float64))
    return Traced(_root(_sum(wide * wide, axis, keepdims).tensor))


def outer(x: Any, y: Any) -> Any:
    """np.outer."""
    return np.reshape(x, (-1, 1)) * np.reshape(y, (1, -1))


def _running(name: str) -> Callable[..., Traced]:
    def call(x: Traced, axis: int | None = None) -> Traced:
        flat = x if axis is not None else reshape(x, -1)
        wide = astype(flat, np.cumsum(np.zeros(1, x.dtype)).dtype)
        return Traced(wide.tensor.op(name, wide.tensor, axis=(axis or 0) % flat.ndim))

    return call


def sort(x: Traced, axis: int | None = -1) -> Traced:
    """np.sort."""
    flat = x if axis is not None else reshape(x, -1)
    return Traced(flat.tensor.block.op("sort", [flat.tensor], axis=(-1 if axis is None else axis) % flat.ndim))


def _triangle(kept: Callable[..., Array]) -> Callable[..., Traced]:
    return lambda x, k=0: where(kept(np.ones(x.shape[-2:], np.bool_), k), x, np.zeros((), x.dtype))


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sum": _sum, "prod": _prod, "mean": mean, "var": var,
    "std": lambda x, axis=None, keepdims=False: np.sqrt(var(x, axis, keepdims)),
    "max": lambda x, axis=None, keepdims=False: _reduced("reduce_max", x, axis, keepdims),
    "min": lambda x, axis=None, keepdims=False: _reduced("reduce_min", x, axis, keepdims),
    "any": _truths("reduce_or"), "all": _truths("reduce_and"), "argmax": _place("argmax"), "argmin": _place("argmin"),
    "reshape": reshape, "transpose": transpose, "swapaxes": swapaxes, "expand_dims": expand_dims, "squeeze": squeeze,
    "broadcast_to": broadcast_to, "concatenate": concatenate, "stack": stack, "where": where, "clip": clip, "dot": dot,
    "einsum": einsum, "zeros_like": lambda x: np.zeros(x.shape, x.dtype), "ones_like": lambda x: np.ones(x.shape, x.dtype),
    "take": take, "norm": norm, "outer": outer, "cumsum": _running("cumsum"), "cumprod": _running("cumprod"), "sort": sort,
    "tril": _triangle(lambda x, k: np.tril(x, k)), "triu": _triangle(lambda x, k: np.triu(x, k)),
    "full_like": lambda x, value: np.full(x.shape, value, x.dtype), "ndim": lambda x: x.ndim, "shape": lambda x: x.shape,
}  # fmt: skip
_FUNCTIONS |= {"amax": _FUNCTIONS["max"], "amin": _FUNCTIONS["min"]}
