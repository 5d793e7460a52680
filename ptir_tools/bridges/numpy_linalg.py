"""NumPy's linear algebra on traced arrays: products, and factorizations as loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce

from ptir_tools.bridges.linalg.einsum import einsum as of_letters
from ptir_tools.bridges.linalg.einsum import equation
from ptir_tools.bridges.linalg.factors import exchanged_factors, factored, orthogonal, reflections, solved
from ptir_tools.bridges.linalg.fourier import mirrored, refusal, transformed
from ptir_tools.bridges.linalg.jacobi import singular_vectors, symmetric_vectors
from ptir_tools.bridges.linalg.matrices import adjoint, each_matrix, triangle
from ptir_tools.bridges.linalg.schur import schur
from ptir_tools.bridges.numpy_array import (
    FUNCTIONS,
    VIEWS,
    Axes,
    Traced,
    astype,
    block_of,
    matmul,
    of_value,
    records,
    refused,
    reshape,
    traced,
)
from ptir_tools.bridges.numpy_functions import axes_of, diagonal, expand_dims, moveaxis, real, roll, squeeze, swapaxes
from ptir_tools.core.lazy import np
from ptir_tools.core.typed import TypeAlias
from ptir_tools.dialects.ptir.builder.build import Tensor

Order: TypeAlias = "float | str"  # of a norm


def _matrix(name: str, a: Traced, square: bool = True) -> Traced:
    """`a` in the dtype in which NumPy computes. Raises as NumPy does for what is no stack of matrices."""
    if a.ndim < 2 or (square and a.shape[-1] != a.shape[-2]):
        raise np.linalg.LinAlgError(
            f"np.linalg.{name} takes {'square ' if square else ''}matrices, not an array of shape {a.shape}"
        )
    if a.dtype.kind in "iub":
        return astype(a, np.dtype(np.float64))
    if a.dtype == np.float16:
        raise TypeError("array type float16 is unsupported in linalg")
    if not a.size:
        raise refused(f"np.linalg.{name} of an empty array")
    return a


def _each(one: Callable[..., list[Tensor]], *operands: Traced) -> list[Traced]:
    """`one`, a function of matrices, for each matrix of stacks."""
    return [Traced(x) for x in each_matrix([x.tensor for x in operands], one, [2] * len(operands))]


# ---- Products


@records("dot")
def dot(a: Traced, b: Traced) -> Traced:
    """np.dot of at most two axes on the right. Raises UsageError for more, which np.matmul multiplies otherwise."""
    if traced.ndim(a) == 0 or traced.ndim(b) == 0:
        return a * b
    if traced.ndim(b) > 2:
        raise refused("np.dot of a stack of matrices", None, "np.matmul multiplies stacks")
    return matmul(a, b)


@records("vdot")
def vdot(a: Traced, b: Traced) -> Traced:
    """np.vdot."""
    return matmul(traced.conjugate(traced.ravel(a)), traced.ravel(b))


@records("inner")
def inner(a: Traced, b: Traced) -> Traced:
    """np.inner."""
    return a * b if traced.ndim(a) == 0 or traced.ndim(b) == 0 else tensordot(a, b, ([-1], [-1]))


@records("outer", "linalg.outer")
def outer(a: Traced, b: Traced) -> Traced:
    """np.outer."""
    return traced.reshape(a, (-1, 1)) * traced.reshape(b, (1, -1))


@records("tensordot", "linalg.tensordot")
def tensordot(a: Traced, b: Traced, axes: int | Sequence[Axes] = 2) -> Traced:
    """np.tensordot: one product."""
    block = block_of(a, b)
    x, y = of_value(a, block), of_value(b, block)
    if isinstance(axes, int):
        axes = [range(x.ndim - axes, x.ndim), range(axes)]
    left, right = (axes_of(v, i) for v, i in zip((x, y), axes, strict=True))
    dtype = np.result_type(x.dtype, y.dtype)
    x, y = astype(x, dtype), astype(y, dtype)
    return Traced(x.tensor.dot_general(y.tensor, contract_lhs=left, contract_rhs=right))


@records("vecdot", "linalg.vecdot")
def vecdot(x1: Traced, x2: Traced, /, *, axis: int = -1) -> Traced:
    """np.vecdot."""
    return traced.sum(traced.conjugate(x1) * x2, axis=axis, dtype=np.result_type(*(v.dtype for v in (x1, x2))))


FUNCTIONS |= {
    "linalg.matmul": matmul,
    "matvec": lambda x1, x2, /: matmul(x1, traced.expand_dims(x2, -1))[..., 0],
    "vecmat": lambda x1, x2, /: matmul(traced.conjugate(traced.expand_dims(x1, -2)), x2)[..., 0, :],
    "linalg.diagonal": lambda x, /, *, offset=0: diagonal(x, offset, -2, -1),
    "linalg.trace": lambda x, /, *, offset=0: traced.sum(diagonal(x, offset, -2, -1), axis=-1),
    "linalg.multi_dot": lambda arrays: reduce(matmul, arrays),
}
VIEWS |= {"linalg.diagonal"}


@records("cross")
def cross(a: Traced, b: Traced, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Traced:
    """np.cross of vectors of three elements."""
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = traced.moveaxis(a, axisa, 0), traced.moveaxis(b, axisb, 0)
    if len(x) != 3 or len(y) != 3:
        raise refused("np.cross of vectors without three elements")
    turns = ((1, 2), (2, 0), (0, 1))
    return traced.stack([x[i] * y[j] - x[j] * y[i] for i, j in turns], axis=axisc)


FUNCTIONS["linalg.cross"] = lambda x1, x2, /, *, axis=-1: cross(x1, x2, axis=axis)


@records("kron")
def kron(a: Traced, b: Traced) -> Traced:
    """np.kron."""
    rank = max(traced.ndim(a), traced.ndim(b))
    m, n = ((1,) * (rank - traced.ndim(v)) + traced.shape(v) for v in (a, b))
    x = traced.reshape(a, [k for i in m for k in (i, 1)])
    y = traced.reshape(b, [k for i in n for k in (1, i)])
    return traced.reshape(x * y, [i * j for i, j in zip(m, n, strict=True)])


@records("linalg.matrix_power")
def matrix_power(a: Traced, n: int) -> Traced:
    """np.linalg.matrix_power."""
    if n == 0:
        return traced.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape) + traced.zeros_like(a)
    square = inv(a) if n < 0 else a
    powers = []  # those of two in the exponent
    for bit in reversed(bin(abs(n))[2:]):
        if bit == "1":
            powers.append(square)
        square = matmul(square, square)
    return reduce(matmul, powers)


@records("einsum")
def einsum(subscripts: str, /, *operands: Traced, optimize: object = False) -> Traced:
    """np.einsum: products of two operands after each other, each one product of matrices if it can be."""
    block = block_of(*operands)
    values = [of_value(x, block) for x in operands]
    dtype = np.result_type(*(x.dtype for x in values))
    exact = np.dtype(np.int64) if dtype.kind == "b" else dtype  # any of flags is a sum that is not 0
    read = equation(subscripts, [x.shape for x in values])
    made = Traced(of_letters(read, [astype(x, exact).tensor for x in values], Tensor.broadcast_to))
    return made != 0 if dtype.kind == "b" else made


# ---- Systems and factorizations. A singular matrix gives infinities and NaN where NumPy raises.


@records("linalg.solve")
def solve(a: object, b: object) -> Traced:
    """np.linalg.solve, by elimination with exchanges of rows."""
    block = block_of(a, b)
    matrix, right = _matrix("solve", of_value(a, block)), of_value(b, block)
    column = right.ndim == 1
    right = reshape(right, (-1, 1)) if column else right
    dtype = np.result_type(matrix.dtype, right.dtype)
    batch = np.broadcast_shapes(matrix.shape[:-2], right.shape[:-2])
    matrix, right = (astype(traced.broadcast_to(v, (*batch, *v.shape[-2:])), dtype) for v in (matrix, right))
    n, m = matrix.shape[-1], right.shape[-1]

    def one(x: Tensor, y: Tensor) -> list[Tensor]:
        made = exchanged_factors(x.block.concat([x, y], axis=1))[0]
        upper, rest = made.slice([0, 0], [n, n]), made.slice([0, n], [n, m])
        return [solved(upper, rest, left=True, lower=False, unit=False, turned=False, conj=False)]

    (result,) = _each(one, matrix, right)
    return reshape(result, result.shape[:-1]) if column else result


@records("linalg.inv")
def inv(a: Traced) -> Traced:
    """np.linalg.inv."""
    matrix = _matrix("inv", a)
    return solve(matrix, np.eye(matrix.shape[-1], dtype=matrix.dtype))


def _eliminated(a: Traced) -> tuple[Traced, Traced]:
    """The diagonal after elimination, and the sign of the exchanges of rows."""
    factors, pivots = _each(exchanged_factors, a)
    moved = traced.not_equal(pivots, np.arange(1, a.shape[-1] + 1))
    return diagonal(factors, 0, -2, -1), traced.where(traced.sum(moved, axis=-1) % 2 == 1, -1, 1)


@records("linalg.det")
def det(a: Traced) -> Traced:
    """np.linalg.det."""
    matrix = _matrix("det", a)
    found, sign = _eliminated(matrix)
    return traced.prod(found, axis=-1) * sign.astype(matrix.dtype)


@records("linalg.slogdet")
def slogdet(a: Traced) -> tuple[Traced, Traced]:
    """np.linalg.slogdet, as a pair."""
    matrix = _matrix("slogdet", a)
    found, sign = _eliminated(matrix)
    size = traced.abs(found)
    units = found / traced.where(size == 0, np.ones((), size.dtype), size).astype(matrix.dtype)
    return traced.prod(units, axis=-1) * sign.astype(matrix.dtype), traced.sum(traced.log(size), axis=-1)


@records("linalg.cholesky")
def cholesky(a: Traced, /, *, upper: bool = False) -> Traced:
    """np.linalg.cholesky; NaN for a matrix that is not positive definite."""
    lower = Traced(factored(_matrix("cholesky", a).tensor, lower=True))
    return traced.conjugate(swapaxes(lower, -1, -2)) if upper else lower


@records("linalg.qr")
def qr(a: Traced, mode: str = "reduced") -> Traced | tuple[Traced, ...]:
    """np.linalg.qr: as a pair, or the triangle alone."""
    matrix = _matrix("qr", a, square=False)
    if mode not in ("reduced", "complete", "r"):
        raise refused(f"np.linalg.qr in the mode {mode!r}")
    m, n = matrix.shape[-2:]
    count = m if mode == "complete" else min(m, n)

    def one(x: Tensor) -> list[Tensor]:
        parts, taus = reflections(x)
        upper = triangle(parts.reshape([1, m, n]), lower=False).reshape([m, n]).slice([0, 0], [count, n])
        if mode == "r":
            return [upper]
        square = parts.slice([0, 0], [m, min(n, count)]).pad([0, 0], [0, max(count - n, 0)])
        return [orthogonal(square, taus), upper]

    made = _each(one, matrix)
    return made[0] if mode == "r" else tuple(made)


@records("linalg.svd")
def svd(
    a: Traced, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False
) -> tuple[Traced, Traced, Traced] | Traced:
    """np.linalg.svd, as a tuple of three."""
    return _svd(a, full_matrices) if compute_uv else svdvals(a)


def _svd(a: Traced, full_matrices: bool) -> tuple[Traced, Traced, Traced]:
    matrix = _matrix("svd", a, square=False)
    turned = matrix.shape[-2] < matrix.shape[-1]
    given = Traced(adjoint(matrix.tensor, conj=True)) if turned else matrix
    values, left, right = _each(lambda x: singular_vectors(x, full_matrices), given)
    if turned:
        left, right = (Traced(adjoint(x.tensor, conj=True)) for x in (right, left))
    return left, values, right


@records("linalg.svdvals")
def svdvals(x: Traced, /) -> Traced:
    """np.linalg.svdvals."""
    return _svd(x, full_matrices=False)[1]


@records("linalg.eigh")
def eigh(a: Traced, UPLO: str = "L") -> tuple[Traced, Traced]:
    """np.linalg.eigh, as a pair."""
    vectors, values = _each(lambda x: symmetric_vectors(x, UPLO.upper() == "L"), _matrix("eigh", a))
    return values, vectors


@records("linalg.eigvalsh")
def eigvalsh(a: Traced, UPLO: str = "L") -> Traced:
    """np.linalg.eigvalsh."""
    return eigh(a, UPLO)[0]


@records("linalg.eigvals")
def eigvals(a: Traced) -> Traced:
    """np.linalg.eigvals of complex matrices, in any order."""
    if a.dtype.kind != "c":
        why = "whether the eigenvalues are complex depends on values"
        raise refused(
            "np.linalg.eigvals of real matrices", why, "np.linalg.eigvals(a.astype(complex)), or eigvalsh of a symmetric matrix"
        )
    (form,) = _each(lambda x: [schur(x)[0]], _matrix("eigvals", a))
    return diagonal(form, 0, -2, -1)


@records("linalg.pinv")
def pinv(a: Traced, rcond: object = None, hermitian: bool = False, *, rtol: object = None) -> Traced:
    """np.linalg.pinv."""
    u, s, vt = _svd(a, full_matrices=False)
    ratio = 1e-15 if rcond is None and rtol is None else rtol if rcond is None else rcond
    small = s <= np.asarray(ratio, s.dtype) * traced.max(s, axis=-1, keepdims=True)
    inverse = traced.where(small, np.zeros((), s.dtype), 1 / traced.where(small, np.ones((), s.dtype), s))
    turned, back = (traced.conjugate(swapaxes(x, -1, -2)) for x in (vt, u))
    return matmul(turned, expand_dims(inverse.astype(u.dtype), -1) * back)


@records("linalg.matrix_rank")
def matrix_rank(A: Traced, tol: object = None, hermitian: bool = False, *, rtol: object = None) -> Traced:
    """np.linalg.matrix_rank."""
    s = svdvals(A)
    if tol is None:
        ratio = max(A.shape[-2:]) * np.finfo(s.dtype).eps if rtol is None else rtol
        tol = traced.max(s, axis=-1, keepdims=True) * np.asarray(ratio, s.dtype)
    return traced.count_nonzero(s > tol, axis=-1)


@records("linalg.cond")
def cond(x: Traced, p: Order | None = None) -> Traced:
    """np.linalg.cond."""
    if p in (None, 2, -2):
        s = svdvals(x)
        return s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    return norm(x, p, (-2, -1)) * norm(inv(x), p, (-2, -1))


@records("linalg.norm")
def norm(x: Traced, ord: Order | None = None, axis: Axes = None, keepdims: bool = False) -> Traced:
    """np.linalg.norm."""
    axes = axes_of(x, axis)
    wide = x if x.dtype.kind in "fc" else astype(x, np.dtype(np.float64))
    if ord is None and axis is None:
        return _vector_norm(wide, 2, axes, keepdims)
    if len(axes) == 1:
        return _vector_norm(wide, 2 if ord is None else ord, axes, keepdims)
    if len(axes) == 2:
        return _matrix_norm(wide, "fro" if ord is None else ord, axes, keepdims)
    raise ValueError("Improper number of dimensions to norm.")


@records("linalg.vector_norm")
def vector_norm(x: Traced, /, *, axis: Axes = None, keepdims: bool = False, ord: Order = 2) -> Traced:
    """np.linalg.vector_norm."""
    return _vector_norm(x if x.dtype.kind in "fc" else astype(x, np.dtype(np.float64)), ord, axes_of(x, axis), keepdims)


@records("linalg.matrix_norm")
def matrix_norm(x: Traced, /, *, keepdims: bool = False, ord: Order = "fro") -> Traced:
    """np.linalg.matrix_norm."""
    return norm(x, ord, (-2, -1), keepdims)


def _vector_norm(x: Traced, ord: Order, axes: list[int], keepdims: bool) -> Traced:
    along = tuple(axes)
    if isinstance(ord, str):
        raise ValueError(f"Invalid norm order '{ord}' for vectors")
    if ord == 2:
        square = traced.real(x * traced.conjugate(x)) if x.dtype.kind == "c" else x * x
        return traced.sqrt(traced.sum(square, along, keepdims=keepdims))
    size = traced.abs(x)
    if ord == 0:
        return traced.sum((x != 0).astype(size.dtype), along, keepdims=keepdims)
    if math.isinf(ord):
        return (traced.max if ord > 0 else traced.min)(size, axis=along, keepdims=keepdims)
    power = np.asarray(ord, size.dtype)
    total = traced.sum(size if ord == 1 else size**power, along, keepdims=keepdims)
    return total if ord == 1 else total ** (1 / power)


def _matrix_norm(x: Traced, ord: Order, axes: list[int], keepdims: bool) -> Traced:
    row, column = axes
    if ord in ("fro", "f"):
        return _vector_norm(x, 2, axes, keepdims)
    if ord in (1, -1, math.inf, -math.inf):
        summed, rest = (row, column) if abs(ord) == 1 else (column, row)
        best = traced.max if ord > 0 else traced.min
        sums = traced.sum(traced.abs(x), axis=summed, keepdims=True)
        found = best(sums, axis=rest, keepdims=True)
        return found if keepdims else squeeze(found, tuple(axes))
    if ord not in (2, -2, "nuc"):
        raise ValueError("Invalid norm order for matrices.")
    values = svdvals(moveaxis(x, (row, column), (-2, -1)))
    found = traced.sum(values, axis=-1) if ord == "nuc" else values[..., 0 if ord == 2 else -1]
    return reshape(found, [1 if i in axes else n for i, n in enumerate(x.shape)]) if keepdims else found


# ---- Spectra


def _spectrum(name: str) -> Callable[..., Traced]:
    inverse = name[0] == "i"

    def call(a: Traced, n: int | None = None, axis: int = -1, norm: str | None = None) -> Traced:
        (at,) = axes_of(a, axis)
        given = a.shape[at]
        length = n if n is not None else (given - 1) * 2 if name == "irfft" else given
        if given != (length // 2 + 1 if name == "irfft" else length):
            raise refused(f"np.fft.{name} of {length} elements of {given}")
        if reason := refusal(length):
            raise refused(f"np.fft.{name}", reason)
        kind = np.result_type(a.dtype, np.complex64)  # f32 of f16, as NumPy computes
        x = astype(a, kind).tensor
        x = transformed(mirrored(x, at, length) if name == "irfft" else x, at, inverse=inverse)
        if name == "rfft":
            x = x.slice([0] * x.rank, [length // 2 + 1 if i == at else d for i, d in enumerate(a.shape)])
        factor = _scale(norm, inverse, length) * (length if inverse else 1)
        result = Traced(x) if factor == 1 else Traced(x) * factor
        return real(result) if name == "irfft" else result

    return call


def _scale(norm: str | None, inverse: bool, n: int) -> float:
    if norm not in (None, "backward", "ortho", "forward"):
        raise ValueError(f'Invalid norm value {norm}; should be "backward", "ortho" or "forward".')
    if norm == "ortho":
        return 1 / math.sqrt(n)
    return 1 / n if inverse == (norm != "forward") else 1.0


for _name in ("fft", "ifft", "rfft", "irfft"):
    FUNCTIONS[f"fft.{_name}"] = _spectrum(_name)


def _along_axes(one: str, axes: Sequence[int] | None) -> Callable[..., Traced]:
    def call(a: Traced, s: None = None, axes: Sequence[int] | None = axes, norm: str | None = None) -> Traced:
        if s is not None:
            raise refused(f"`s` of np.fft.{one}n", None, "np.pad")
        for i in range(a.ndim) if axes is None else axes:
            a = _spectrum(one)(a, None, i, norm)
        return a

    return call


for _name in ("fft", "ifft"):
    FUNCTIONS |= {f"fft.{_name}2": _along_axes(_name, (-2, -1)), f"fft.{_name}n": _along_axes(_name, None)}
FUNCTIONS |= {
    "fft.fftshift": lambda x, axes=None: roll(x, [x.shape[i] // 2 for i in axes_of(x, axes)], axes_of(x, axes)),
    "fft.ifftshift": lambda x, axes=None: roll(x, [-(x.shape[i] // 2) for i in axes_of(x, axes)], axes_of(x, axes)),
}
