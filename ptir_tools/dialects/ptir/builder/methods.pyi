"""The methods of a builder's values and blocks, for editors and type checkers.

Generated from the op declarations: `pytest tests/ptir/test_build.py --bless` writes it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import OpDef
from ptir_tools.core.types import Dim, Type
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.rewrite.expression import Number

def methods() -> tuple[list[OpDef], list[OpDef]]: ...
def positional(defn: OpDef) -> int: ...

class TensorMethods:
    """Every op whose first operand is one tensor, as a method of that tensor."""

    def abs(self) -> Tensor:
        """The magnitude of each element. The lowest integer wraps to itself."""

    def acos(self) -> Tensor:
        """The angle in [0, pi] whose cosine is `x`; NaN for reals outside [-1, 1]. Extension."""

    def acosh(self) -> Tensor:
        """The nonnegative number whose hyperbolic cosine is `x`; NaN for reals less than 1. Extension."""

    def add(self, y: Tensor | Number) -> Tensor:
        """The sum of the elements. Integers wrap."""

    def argmax(self, axis: int, *, keepdims: bool = ..., output_dtype: str | DType = ...) -> Tensor:
        """The smallest index of a largest element along `axis`; a NaN counts as larger than all."""

    def argmin(self, axis: int, *, keepdims: bool = ..., output_dtype: str | DType = ...) -> Tensor:
        """The smallest index of a smallest element along `axis`; a NaN counts as smaller than all. Extension."""

    def asin(self) -> Tensor:
        """The angle in [-pi/2, pi/2] whose sine is `x`; NaN for reals outside [-1, 1]. Extension."""

    def asinh(self) -> Tensor:
        """The number whose hyperbolic sine is `x`. Extension."""

    def atan(self) -> Tensor:
        """The angle in [-pi/2, pi/2] whose tangent is `x`. Extension."""

    def atan2(self, x: Tensor | Number) -> Tensor:
        """The angle in [-pi, pi] from the positive x axis to the point (x, y); the sign of a zero counts. Extension."""

    def atanh(self) -> Tensor:
        """The number whose hyperbolic tangent is `x`; infinite at -1 and 1, NaN for reals outside [-1, 1]. Extension."""

    def bitcast(self, dtype: str | DType) -> Tensor:
        """The bits of `x` as `dtype`; of equal width, element by element. Extension."""

    def bitwise_and(self, y: Tensor | Number) -> Tensor:
        """The bits set in both operands; of i1, the logical and. Extension."""

    def bitwise_not(self) -> Tensor:
        """The complement of each bit; of i1, the logical not. Extension."""

    def bitwise_or(self, y: Tensor | Number) -> Tensor:
        """The bits set in either operand; of i1, the logical or. Extension."""

    def bitwise_xor(self, y: Tensor | Number) -> Tensor:
        """The bits set in exactly one operand; of i1, whether the operands differ. Extension."""

    def broadcast_to(self, result_shape: Iterable[Dim | str]) -> Tensor:
        """Repeat `x` along new leading axes and along its axes of extent 1, to `result_shape`."""

    def cast(self, dtype: str | DType) -> Tensor:
        """Each element as `dtype`."""

    def cbrt(self) -> Tensor:
        """The real cube root, also of negative numbers. Extension."""

    def ceil(self) -> Tensor:
        """The smallest integer that is not below `x`. Extension."""

    def clamp(self, lo: Tensor | Number, hi: Tensor | Number) -> Tensor:
        """`min(max(x, lo), hi)` of the elements; NaN when any of the three is NaN."""

    def compare_eq(self, y: Tensor | Number) -> Tensor:
        """Whether `x == y`, element by element; false when either is NaN, true for zeros of both signs."""

    def compare_ge(self, y: Tensor | Number) -> Tensor:
        """Whether `x >= y`, element by element; false when either is NaN."""

    def compare_gt(self, y: Tensor | Number) -> Tensor:
        """Whether `x > y`, element by element; false when either is NaN."""

    def compare_le(self, y: Tensor | Number) -> Tensor:
        """Whether `x <= y`, element by element; false when either is NaN."""

    def compare_lt(self, y: Tensor | Number) -> Tensor:
        """Whether `x < y`, element by element; false when either is NaN."""

    def compare_ne(self, y: Tensor | Number) -> Tensor:
        """Whether `x != y`, element by element; true when either is NaN."""

    def complex(self, im: Tensor | Number) -> Tensor:
        """The complex number of two parts: cf32 of f32, cf64 of f64. Extension."""

    def cos(self) -> Tensor:
        """The cosine of an angle in radians; NaN for an infinity. Extension."""

    def cosh(self) -> Tensor:
        """The hyperbolic cosine. Extension."""

    def count_leading_zeros(self) -> Tensor:
        """The number of bits above the highest set bit; the width for 0. Extension."""

    def cummax(self, axis: int, *, exclusive: bool = ..., reverse: bool = ...) -> Tensor:
        """The largest of all elements up to each, as in `cumsum`; NaN from the first NaN on. Extension."""

    def cummin(self, axis: int, *, exclusive: bool = ..., reverse: bool = ...) -> Tensor:
        """The smallest of all elements up to each, as in `cumsum`; NaN from the first NaN on. Extension."""

    def cumprod(self, axis: int, *, exclusive: bool = ..., reverse: bool = ...) -> Tensor:
        """The product of all elements up to each, as in `cumsum`. Extension."""

    def cumsum(self, axis: int, *, exclusive: bool = ..., reverse: bool = ...) -> Tensor:
        """The sum of all elements up to each, along `axis`. Extension."""

    def dequantize(
        self,
        *,
        axis: int | None = ...,
        output_dtype: str | DType | None = ...,
        scales: Iterable[float] = ...,
        zero_points: Iterable[int] = ...,
    ) -> Tensor:
        """An integer tensor as floats of `output_dtype` (f32)."""

    def digamma(self) -> Tensor:
        """The derivative of `lgamma`; NaN at 0 and negative integers. Extension."""

    def div(self, y: Tensor | Number) -> Tensor:
        """The quotient of the elements: floats by IEEE, integers toward zero."""

    def dot_general(
        self,
        rhs: Tensor,
        *,
        batch_lhs: Iterable[int] = ...,
        batch_rhs: Iterable[int] = ...,
        contract_lhs: Iterable[int],
        contract_rhs: Iterable[int],
        accum_dtype: str | DType | None = ...,
        out_dtype: str | DType | None = ...,
    ) -> Tensor:
        """The sum of products over the contracted axes, for each index of the batch axes."""

    def dynamic_slice(self, start: Tensor, sizes: Iterable[int]) -> Tensor:
        """The window of `sizes` at `start`. A start outside is clamped so that the window fits."""

    def dynamic_update_slice(self, update: Tensor, start: Tensor, sizes: Iterable[int]) -> Tensor:
        """`x` with the window of `sizes` at `start` replaced by `update`; starts as in `dynamic_slice`."""

    def erf(self) -> Tensor:
        """The Gauss error function."""

    def erf_inv(self) -> Tensor:
        """The number whose `erf` is `x`; infinite at -1 and 1, NaN outside [-1, 1]. Extension."""

    def exp(self) -> Tensor:
        """e to the power of each element."""

    def expm1(self) -> Tensor:
        """e to the power of `x`, minus 1, precise near 0. Extension."""

    def extract_patches(
        self,
        window: Iterable[int],
        *,
        strides: Iterable[int] = ...,
        dilation: Iterable[int] = ...,
        padding: Iterable[Iterable[int]] = ...,
        pad_value: Number = ...,
    ) -> Tensor:
        """Every placement of a window over `x: [N, spatial…, C]`, as [N, places…, prod(window) * C]."""

    def floor(self) -> Tensor:
        """The largest integer that is not above `x`. Extension."""

    def gather(self, indices: Tensor, axis: int) -> Tensor:
        """At each position of `indices`, the element of `x` at that position with its index along `axis` replaced."""

    def imag(self) -> Tensor:
        """The imaginary part. Extension."""

    def is_finite(self) -> Tensor:
        """Whether an element is neither infinite nor NaN. Extension."""

    def layer_norm(self, gamma: Tensor, beta: Tensor, epsilon: float, *, feature_axis: int = ...) -> Tensor:
        """`(x - mean) / sqrt(variance + epsilon) * gamma + beta` along `feature_axis`, with the biased variance."""

    def lgamma(self) -> Tensor:
        """The logarithm of the magnitude of the gamma function; infinite at 0 and negative integers. Extension."""

    def log(self) -> Tensor:
        """The natural logarithm: -inf at zero, NaN for negative reals."""

    def log1p(self) -> Tensor:
        """The natural logarithm of 1 + `x`, precise near 0: -inf at -1, NaN for reals less than -1. Extension."""

    def maximum(self, y: Tensor | Number) -> Tensor:
        """The larger of the elements, 0.0 of two zeros unless both are -0.0; NaN when either is NaN."""

    def minimum(self, y: Tensor | Number) -> Tensor:
        """The smaller of the elements, -0.0 of two zeros unless both are 0.0; NaN when either is NaN."""

    def mod(self, y: Tensor | Number) -> Tensor:
        """The remainder of `x` divided by `y`, rounded down: it has the sign of `y`, as Python's `%`. Extension."""

    def mul(self, y: Tensor | Number) -> Tensor:
        """The product of the elements. Integers wrap."""

    def neg(self) -> Tensor:
        """Negate each element. The lowest integer wraps to itself."""

    def nextafter(self, y: Tensor | Number) -> Tensor:
        """The number of the dtype next to `x` in the direction of `y`; `y` when they are equal, NaN when either is. Extension."""

    def pad(self, low: Iterable[int], high: Iterable[int], *, interior: Iterable[int] = ..., pad_value: Number = ...) -> Tensor:
        """`x` with `low` and `high` elements of `pad_value` before and after, `interior` between neighbors."""

    def popcount(self) -> Tensor:
        """The number of bits set in each element, in its own dtype. Extension."""

    def pow(self, y: Tensor | Number) -> Tensor:
        """`x` to the power of `y`: floats by IEEE `pow`, NaN for a negative base unless the exponent is an integer. Extension."""

    def quantize(
        self,
        output_dtype: str | DType,
        *,
        axis: int | None = ...,
        scales: Iterable[float] = ...,
        zero_points: Iterable[int] = ...,
    ) -> Tensor:
        """A float tensor as `output_dtype`."""

    def real(self) -> Tensor:
        """The real part. Extension."""

    def reciprocal(self) -> Tensor:
        """One divided by each element."""

    def reduce_and(self, axes: Iterable[int], *, keepdims: bool = ...) -> Tensor:
        """The bitwise and over `axes`; of i1, whether all are true. Over nothing, all bits are set. Extension."""

    def reduce_max(
        self,
        axes: Iterable[int],
        *,
        keepdims: bool = ...,
        accum_dtype: str | DType | None = ...,
        out_dtype: str | DType | None = ...,
    ) -> Tensor:
        """The largest element over `axes`; NaN when one is NaN; -inf or the lowest integer over nothing."""

    def reduce_min(
        self,
        axes: Iterable[int],
        *,
        keepdims: bool = ...,
        accum_dtype: str | DType | None = ...,
        out_dtype: str | DType | None = ...,
    ) -> Tensor:
        """The smallest element over `axes`; NaN when one is NaN; inf or the highest integer over nothing."""

    def reduce_or(self, axes: Iterable[int], *, keepdims: bool = ...) -> Tensor:
        """The bitwise or over `axes`; of i1, whether any is true. Over nothing, 0. Extension."""

    def reduce_precision(self, exponent_bits: int, mantissa_bits: int) -> Tensor:
        """`x` rounded, to nearest even, to a float of that many bits, in its own dtype. Extension."""

    def reduce_prod(
        self,
        axes: Iterable[int],
        *,
        keepdims: bool = ...,
        accum_dtype: str | DType | None = ...,
        out_dtype: str | DType | None = ...,
    ) -> Tensor:
        """The product over `axes`, 1 over nothing; `keepdims` leaves them with extent 1. Extension."""

    def reduce_sum(
        self,
        axes: Iterable[int],
        *,
        keepdims: bool = ...,
        accum_dtype: str | DType | None = ...,
        out_dtype: str | DType | None = ...,
    ) -> Tensor:
        """The sum over `axes`, 0 over nothing; `keepdims` leaves them with extent 1."""

    def reduce_window(
        self,
        window_dims: Iterable[int],
        strides: Iterable[int],
        padding: Iterable[Iterable[int]],
        base_dilation: Iterable[int],
        window_dilation: Iterable[int],
        *,
        reduce: Literal["sum", "max", "min"] = ...,
        accum_dtype: str | DType | None = ...,
    ) -> Tensor:
        """Sum, max or min over each placement of a window."""

    def reduce_xor(self, axes: Iterable[int], *, keepdims: bool = ...) -> Tensor:
        """The bitwise exclusive or over `axes`; of i1, whether an odd number is true. Over nothing, 0. Extension."""

    def rem(self, y: Tensor | Number) -> Tensor:
        """The remainder of `x` divided by `y`, truncated: it has the sign of `x`, as C's `%` and `fmod`. Extension."""

    def requantize(
        self,
        output_dtype: str | DType,
        *,
        axis: int | None = ...,
        scales: Iterable[float] = ...,
        zero_points: Iterable[int] = ...,
        output_scales: Iterable[float] = ...,
        output_zero_points: Iterable[int] = ...,
    ) -> Tensor:
        """An integer tensor as another integer dtype."""

    def reshape(self, new_shape: Iterable[Dim | str]) -> Tensor:
        """The same elements in the same (row-major) order in another shape."""

    def round_away(self) -> Tensor:
        """The nearest integer, ties away from 0. Extension."""

    def round_even(self) -> Tensor:
        """The nearest integer, ties to even. Extension."""

    def rsqrt(self) -> Tensor:
        """One divided by the square root: infinity at zero (of its sign), NaN for negative reals."""

    def scatter(
        self,
        indices: Tensor,
        updates: Tensor,
        *,
        update_window_dims: Iterable[int] = ...,
        inserted_window_dims: Iterable[int] = ...,
        scatter_dims_to_operand_dims: Iterable[int] = ...,
        index_vector_dim: int | None = ...,
        reduce: Literal["replace", "add", "mul", "max", "min", "and", "or", "xor"] = ...,
        drop: bool = ...,
    ) -> Tensor:
        """`x` with windows of `updates` combined into it at indexed places, numbered as by `scatter_add`. Extension."""

    def scatter_add(
        self,
        indices: Tensor,
        updates: Tensor,
        *,
        update_window_dims: Iterable[int] = ...,
        inserted_window_dims: Iterable[int] = ...,
        scatter_dims_to_operand_dims: Iterable[int] = ...,
        index_vector_dim: int | None = ...,
    ) -> Tensor:
        """`x` with windows of `updates` added at the indexed positions, with XLA's dimension numbers."""

    def scatter_reduce(
        self, indices: Tensor, updates: Tensor, axis: int, *, reduce: Literal["add", "max", "min", "replace"] = ...
    ) -> Tensor:
        """`x` with each update combined into the element at its position, its index along `axis` replaced."""

    def segment_reduce(
        self,
        ids: Tensor,
        *,
        kind: Literal["sum", "max"] = ...,
        num_segments: int,
        indices_are_sorted: bool = ...,
        unique: bool = ...,
        accum_dtype: str | DType | None = ...,
    ) -> Tensor:
        """Row s is the sum (or max) of the rows of `data` whose id is s; the identity when there is none."""

    def select(self, on_true: Tensor | Number, on_false: Tensor | Number) -> Tensor:
        """`on_true` where `pred` holds, else `on_false`."""

    def shift_left(self, y: Tensor | Number) -> Tensor:
        """`x` shifted left by `y`, zeros shifted in; 0 when `y`, read as unsigned, is at least the width. Extension."""

    def shift_right_arithmetic(self, y: Tensor | Number) -> Tensor:
        """`x` shifted right by `y`, the highest bit shifted in, also for unsigned dtypes. Extension."""

    def shift_right_logical(self, y: Tensor | Number) -> Tensor:
        """`x` shifted right by `y`, zeros shifted in; 0 when `y`, read as unsigned, is at least the width. Extension."""

    def sign(self) -> Tensor:
        """-1 for negative numbers, 1 for positive ones; zeros and NaN are unchanged. Extension."""

    def sin(self) -> Tensor:
        """The sine of an angle in radians; NaN for an infinity. Extension."""

    def sinh(self) -> Tensor:
        """The hyperbolic sine. Extension."""

    def slice(self, starts: Iterable[int], sizes: Iterable[int]) -> Tensor:
        """The window of `sizes` elements from `starts`, with unit stride."""

    def stop_gradient(self) -> Tensor:
        """`x` itself: a barrier for automatic differentiation, which no default pass drops."""

    def sub(self, y: Tensor | Number) -> Tensor:
        """The difference of the elements. Integers wrap."""

    def take(self, indices: Tensor) -> Tensor:
        """The rows `x[i]` for each element `i` of `indices` (an embedding)."""

    def tan(self) -> Tensor:
        """The tangent of an angle in radians; NaN for an infinity. Extension."""

    def tanh(self) -> Tensor:
        """The hyperbolic tangent."""

    def tile(self, repeats: Iterable[int]) -> Tensor:
        """`x` as a whole, repeated `repeats[i]` times along each axis `i`."""

    def top_k(self, k: int, *, axis: int = ..., largest: bool = ..., indices_dtype: str | DType = ...) -> Tensor:
        """The `k` largest (or smallest) elements along `axis`, best first, and their indices."""

    def transpose(self, perm: Iterable[int]) -> Tensor:
        """Reorder axes: axis `i` of the result is axis `perm[i]` of `x`."""

class BlockMethods:
    """Every op without regions: its operands, then its attributes."""

    def abs(self, x: Tensor) -> Tensor:
        """The magnitude of each element. The lowest integer wraps to itself."""

    def acos(self, x: Tensor) -> Tensor:
        """The angle in [0, pi] whose cosine is `x`; NaN for reals outside [-1, 1]. Extension."""

    def acosh(self, x: Tensor) -> Tensor:
        """The nonnegative number whose hyperbolic cosine is `x`; NaN for reals less than 1. Extension."""

    def add(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        """The sum of the elements. Integers wrap."""

    def argmax(self, x: Tensor, axis: int, *, keepdims: bool = ..., output_dtype: str | DType = ...) -> Tensor:
        """The smallest index of a largest element along `axis`; a NaN counts as larger than all."""

    def argmin(self, x: Tensor, axis: int, *, keepdims: bool = ..., output_dtype: str | DType = ...) -> Tensor:
        """The smallest index of a smallest element along `axis`; a NaN counts as smaller than all. Extension."""

    def asin(self, x: Tensor) -> Tensor:
        """The angle in [-pi/2, pi/2] whose sine is `x`; NaN for reals outside [-1, 1]. Extension."""

    def asinh(self, x: Tensor) -> Tensor:
        """The number whose hyperbolic sine is `x`. Extension."""

    def atan(self, x: Tensor) -> Tensor:
        """The angle in [-pi/2, pi/2] whose tangent is `x`. Extension."""

    def atan2(self, y: Tensor | Number, x: Tensor | Number) -> Tensor:
        """The angle in [-pi, pi] from the positive x axis to the point (x, y); the sign of a zero counts. Extension."""

    def atanh(self, x: Tensor) -> Tensor:
        """The number whose hyperbolic tangent is `x`; infinite at -1 and 1, NaN for reals outside [-1, 1]. Extension."""

    def bitcast(self, x: Tensor, dtype: str | DType) -> Tensor:
        """The bits of `x` as `dtype`; of equal width, element by element. Extension."""

    def bitwise_and(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        """The bits set in both operands; of i1, the logical and. Extension."""

    def bitwise_not(self, x: Tensor) -> Tensor:
        """The complement of each bit; of i1, the logical not. Extension."""

    def bitwise_or(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        """The bits set in either operand; of i1, the logical or. Extension."""

    def bitwise_xor(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        """The bits set in exactly one operand; of i1, whether the operands differ. Extension."""

    def broadcast_to(self, x: Tensor, result_shape: Iterable[Dim | str]) -> Tensor:
        """Repeat `x` along new leading axes and along its axes of extent 1, to `result_shape`."""

    def cast(self, x: Tensor, dtype: str | DType) -> Tensor:
        """Each element as `dtype`."""

    def cbrt(self, x: Tensor) -> Tensor:
        """The real cube root, also of negative numbers. Extension."""

    def ceil(self, x: Tensor) -> Tensor:
        """The smallest integer that is not below `x`. Extension."""

    def clamp(self, x: Tensor | Number, lo: Tensor | Number, hi: Tensor | Number) -> Tensor:
        """`min(max(x, lo), hi)` of the elements; NaN when any of the three is NaN."""

    def compare_eq(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        """Whether `x == y`, element by element; false when either is NaN, true for zeros of both signs."""

    def compare_ge(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        """Whether `x >= y`, element by element; false when either is NaN."""

    def compare_gt(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        """Whether `x > y`, element by element; false when either is NaN."""

    def compare_le(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        """Whether `x <= y`, element by element; false when either is NaN."""

    def compare_lt(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        """Whether `x < y`, element by element; false when either is NaN."""

    def compare_ne(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        """Whether `x != y`, element by element; true when either is NaN."""

    def complex(self, re: Tensor | Number, im: Tensor | Number) -> Tensor:
        """The complex number of two parts: cf32 of f32, cf64 of f64. Extension."""

    def concat(self, xs: Sequence[Tensor], axis: int) -> Tensor:
        """The tensors one after the other along `axis`."""

    def cos(self, x: Tensor) -> Tensor:
        """The cosine of an angle in radians; NaN for an infinity. Extension."""

    def cosh(self, x: Tensor) -> Tensor:
        """The hyperbolic cosine. Extension."""

    def count_leading_zeros(self, x: Tensor) -> Tensor:
        """The number of bits above the highest set bit; the width for 0. Extension."""

    def cummax(self, x: Tensor, axis: int, *, exclusive: bool = ..., reverse: bool = ...) -> Tensor:
        """The largest of all elements up to each, as in `cumsum`; NaN from the first NaN on. Extension."""

    def cummin(self, x: Tensor, axis: int, *, exclusive: bool = ..., reverse: bool = ...) -> Tensor:
        """The smallest of all elements up to each, as in `cumsum`; NaN from the first NaN on. Extension."""

    def cumprod(self, x: Tensor, axis: int, *, exclusive: bool = ..., reverse: bool = ...) -> Tensor:
        """The product of all elements up to each, as in `cumsum`. Extension."""

    def cumsum(self, x: Tensor, axis: int, *, exclusive: bool = ..., reverse: bool = ...) -> Tensor:
        """The sum of all elements up to each, along `axis`. Extension."""

    def custom_call(
        self, xs: Sequence[Tensor], target: str, *, attrs: Mapping[str, Any] = ..., types: Sequence[Type] | None = ...
    ) -> Tensor:
        """A fused kernel by name; the declared result type is authoritative."""

    def dequantize(
        self,
        x: Tensor,
        *,
        axis: int | None = ...,
        output_dtype: str | DType | None = ...,
        scales: Iterable[float] = ...,
        zero_points: Iterable[int] = ...,
    ) -> Tensor:
        """An integer tensor as floats of `output_dtype` (f32)."""

    def digamma(self, x: Tensor) -> Tensor:
        """The derivative of `lgamma`; NaN at 0 and negative integers. Extension."""

    def div(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        """The quotient of the elements: floats by IEEE, integers toward zero."""

    def dot_general(
        self,
        lhs: Tensor,
        rhs: Tensor,
        *,
        batch_lhs: Iterable[int] = ...,
        batch_rhs: Iterable[int] = ...,
        contract_lhs: Iterable[int],
        contract_rhs: Iterable[int],
        accum_dtype: str | DType | None = ...,
        out_dtype: str | DType | None = ...,
    ) -> Tensor:
        """The sum of products over the contracted axes, for each index of the batch axes."""

    def dynamic_slice(self, x: Tensor, start: Tensor, sizes: Iterable[int]) -> Tensor:
        """The window of `sizes` at `start`. A start outside is clamped so that the window fits."""

    def dynamic_update_slice(self, x: Tensor, update: Tensor, start: Tensor, sizes: Iterable[int]) -> Tensor:
        """`x` with the window of `sizes` at `start` replaced by `update`; starts as in `dynamic_slice`."""

    def erf(self, x: Tensor) -> Tensor:
        """The Gauss error function."""

    def erf_inv(self, x: Tensor) -> Tensor:
        """The number whose `erf` is `x`; infinite at -1 and 1, NaN outside [-1, 1]. Extension."""

    def exp(self, x: Tensor) -> Tensor:
        """e to the power of each element."""

    def expm1(self, x: Tensor) -> Tensor:
        """e to the power of `x`, minus 1, precise near 0. Extension."""

    def extract_patches(
        self,
        x: Tensor,
        window: Iterable[int],
        *,
        strides: Iterable[int] = ...,
        dilation: Iterable[int] = ...,
        padding: Iterable[Iterable[int]] = ...,
        pad_value: Number = ...,
    ) -> Tensor:
        """Every placement of a window over `x: [N, spatial…, C]`, as [N, places…, prod(window) * C]."""

    def floor(self, x: Tensor) -> Tensor:
        """The largest integer that is not above `x`. Extension."""

    def gather(self, x: Tensor, indices: Tensor, axis: int) -> Tensor:
        """At each position of `indices`, the element of `x` at that position with its index along `axis` replaced."""

    def imag(self, x: Tensor) -> Tensor:
        """The imaginary part. Extension."""

    def iota(self, shape: Iterable[Dim | str], dtype: str | DType, axis: int) -> Tensor:
        """Elements that count 0, 1, 2, … along `axis` and repeat along the others."""

    def is_finite(self, x: Tensor) -> Tensor:
        """Whether an element is neither infinite nor NaN. Extension."""

    def layer_norm(self, x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float, *, feature_axis: int = ...) -> Tensor:
        """`(x - mean) / sqrt(variance + epsilon) * gamma + beta` along `feature_axis`, with the biased variance."""

    def lgamma(self, x: Tensor) -> Tensor:
        """The logarithm of the magnitude of the gamma function; infinite at 0 and negative integers. Extension."""

    def log(self, x: Tensor) -> Tensor:
        """The natural logarithm: -inf at zero, NaN for negative reals."""

    def log1p(self, x: Tensor) -> Tensor:
        """The natural logarithm of 1 + `x`, precise near 0: -inf at -1, NaN for reals less than -1. Extension."""

    def maximum(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        """The larger of the elements, 0.0 of two zeros unless both are -0.0; NaN when either is NaN."""

    def minimum(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        """The smaller of the elements, -0.0 of two zeros unless both are 0.0; NaN when either is NaN."""

    def mod(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        """The remainder of `x` divided by `y`, rounded down: it has the sign of `y`, as Python's `%`. Extension."""

    def mul(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        """The product of the elements. Integers wrap."""

    def neg(self, x: Tensor) -> Tensor:
        """Negate each element. The lowest integer wraps to itself."""

    def nextafter(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        """The number of the dtype next to `x` in the direction of `y`; `y` when they are equal, NaN when either is. Extension."""

    def pad(
        self, x: Tensor, low: Iterable[int], high: Iterable[int], *, interior: Iterable[int] = ..., pad_value: Number = ...
    ) -> Tensor:
        """`x` with `low` and `high` elements of `pad_value` before and after, `interior` between neighbors."""

    def popcount(self, x: Tensor) -> Tensor:
        """The number of bits set in each element, in its own dtype. Extension."""

    def pow(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        """`x` to the power of `y`: floats by IEEE `pow`, NaN for a negative base unless the exponent is an integer. Extension."""

    def quantize(
        self,
        x: Tensor,
        output_dtype: str | DType,
        *,
        axis: int | None = ...,
        scales: Iterable[float] = ...,
        zero_points: Iterable[int] = ...,
    ) -> Tensor:
        """A float tensor as `output_dtype`."""

    def real(self, x: Tensor) -> Tensor:
        """The real part. Extension."""

    def reciprocal(self, x: Tensor) -> Tensor:
        """One divided by each element."""

    def reduce_and(self, x: Tensor, axes: Iterable[int], *, keepdims: bool = ...) -> Tensor:
        """The bitwise and over `axes`; of i1, whether all are true. Over nothing, all bits are set. Extension."""

    def reduce_max(
        self,
        x: Tensor,
        axes: Iterable[int],
        *,
        keepdims: bool = ...,
        accum_dtype: str | DType | None = ...,
        out_dtype: str | DType | None = ...,
    ) -> Tensor:
        """The largest element over `axes`; NaN when one is NaN; -inf or the lowest integer over nothing."""

    def reduce_min(
        self,
        x: Tensor,
        axes: Iterable[int],
        *,
        keepdims: bool = ...,
        accum_dtype: str | DType | None = ...,
        out_dtype: str | DType | None = ...,
    ) -> Tensor:
        """The smallest element over `axes`; NaN when one is NaN; inf or the highest integer over nothing."""

    def reduce_or(self, x: Tensor, axes: Iterable[int], *, keepdims: bool = ...) -> Tensor:
        """The bitwise or over `axes`; of i1, whether any is true. Over nothing, 0. Extension."""

    def reduce_precision(self, x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
        """`x` rounded, to nearest even, to a float of that many bits, in its own dtype. Extension."""

    def reduce_prod(
        self,
        x: Tensor,
        axes: Iterable[int],
        *,
        keepdims: bool = ...,
        accum_dtype: str | DType | None = ...,
        out_dtype: str | DType | None = ...,
    ) -> Tensor:
        """The product over `axes`, 1 over nothing; `keepdims` leaves them with extent 1. Extension."""

    def reduce_sum(
        self,
        x: Tensor,
        axes: Iterable[int],
        *,
        keepdims: bool = ...,
        accum_dtype: str | DType | None = ...,
        out_dtype: str | DType | None = ...,
    ) -> Tensor:
        """The sum over `axes`, 0 over nothing; `keepdims` leaves them with extent 1."""

    def reduce_window(
        self,
        x: Tensor,
        window_dims: Iterable[int],
        strides: Iterable[int],
        padding: Iterable[Iterable[int]],
        base_dilation: Iterable[int],
        window_dilation: Iterable[int],
        *,
        reduce: Literal["sum", "max", "min"] = ...,
        accum_dtype: str | DType | None = ...,
    ) -> Tensor:
        """Sum, max or min over each placement of a window."""

    def reduce_xor(self, x: Tensor, axes: Iterable[int], *, keepdims: bool = ...) -> Tensor:
        """The bitwise exclusive or over `axes`; of i1, whether an odd number is true. Over nothing, 0. Extension."""

    def rem(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        """The remainder of `x` divided by `y`, truncated: it has the sign of `x`, as C's `%` and `fmod`. Extension."""

    def requantize(
        self,
        x: Tensor,
        output_dtype: str | DType,
        *,
        axis: int | None = ...,
        scales: Iterable[float] = ...,
        zero_points: Iterable[int] = ...,
        output_scales: Iterable[float] = ...,
        output_zero_points: Iterable[int] = ...,
    ) -> Tensor:
        """An integer tensor as another integer dtype."""

    def reshape(self, x: Tensor, new_shape: Iterable[Dim | str]) -> Tensor:
        """The same elements in the same (row-major) order in another shape."""

    def rng_normal(self, shape: Iterable[Dim | str], dtype: str | DType, *, stream: int | None = ...) -> Tensor:
        """Independent numbers of the standard normal distribution."""

    def rng_uniform(self, shape: Iterable[Dim | str], dtype: str | DType, *, stream: int | None = ...) -> Tensor:
        """Independent numbers, uniform in [0, 1)."""

    def round_away(self, x: Tensor) -> Tensor:
        """The nearest integer, ties away from 0. Extension."""

    def round_even(self, x: Tensor) -> Tensor:
        """The nearest integer, ties to even. Extension."""

    def rsqrt(self, x: Tensor) -> Tensor:
        """One divided by the square root: infinity at zero (of its sign), NaN for negative reals."""

    def scatter(
        self,
        x: Tensor,
        indices: Tensor,
        updates: Tensor,
        *,
        update_window_dims: Iterable[int] = ...,
        inserted_window_dims: Iterable[int] = ...,
        scatter_dims_to_operand_dims: Iterable[int] = ...,
        index_vector_dim: int | None = ...,
        reduce: Literal["replace", "add", "mul", "max", "min", "and", "or", "xor"] = ...,
        drop: bool = ...,
    ) -> Tensor:
        """`x` with windows of `updates` combined into it at indexed places, numbered as by `scatter_add`. Extension."""

    def scatter_add(
        self,
        x: Tensor,
        indices: Tensor,
        updates: Tensor,
        *,
        update_window_dims: Iterable[int] = ...,
        inserted_window_dims: Iterable[int] = ...,
        scatter_dims_to_operand_dims: Iterable[int] = ...,
        index_vector_dim: int | None = ...,
    ) -> Tensor:
        """`x` with windows of `updates` added at the indexed positions, with XLA's dimension numbers."""

    def scatter_reduce(
        self, x: Tensor, indices: Tensor, updates: Tensor, axis: int, *, reduce: Literal["add", "max", "min", "replace"] = ...
    ) -> Tensor:
        """`x` with each update combined into the element at its position, its index along `axis` replaced."""

    def segment_reduce(
        self,
        data: Tensor,
        ids: Tensor,
        *,
        kind: Literal["sum", "max"] = ...,
        num_segments: int,
        indices_are_sorted: bool = ...,
        unique: bool = ...,
        accum_dtype: str | DType | None = ...,
    ) -> Tensor:
        """Row s is the sum (or max) of the rows of `data` whose id is s; the identity when there is none."""

    def select(self, pred: Tensor | Number, on_true: Tensor | Number, on_false: Tensor | Number) -> Tensor:
        """`on_true` where `pred` holds, else `on_false`."""

    def shift_left(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        """`x` shifted left by `y`, zeros shifted in; 0 when `y`, read as unsigned, is at least the width. Extension."""

    def shift_right_arithmetic(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        """`x` shifted right by `y`, the highest bit shifted in, also for unsigned dtypes. Extension."""

    def shift_right_logical(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        """`x` shifted right by `y`, zeros shifted in; 0 when `y`, read as unsigned, is at least the width. Extension."""

    def sign(self, x: Tensor) -> Tensor:
        """-1 for negative numbers, 1 for positive ones; zeros and NaN are unchanged. Extension."""

    def sin(self, x: Tensor) -> Tensor:
        """The sine of an angle in radians; NaN for an infinity. Extension."""

    def sinh(self, x: Tensor) -> Tensor:
        """The hyperbolic sine. Extension."""

    def slice(self, x: Tensor, starts: Iterable[int], sizes: Iterable[int]) -> Tensor:
        """The window of `sizes` elements from `starts`, with unit stride."""

    def sort(self, xs: Sequence[Tensor], *, axis: int = ..., keys: int = ..., descending: bool = ...) -> Tensor:
        """The operands, sorted along `axis` by the first `keys` of them. The order is stable. Extension."""

    def stop_gradient(self, x: Tensor) -> Tensor:
        """`x` itself: a barrier for automatic differentiation, which no default pass drops."""

    def sub(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        """The difference of the elements. Integers wrap."""

    def take(self, x: Tensor, indices: Tensor) -> Tensor:
        """The rows `x[i]` for each element `i` of `indices` (an embedding)."""

    def tan(self, x: Tensor) -> Tensor:
        """The tangent of an angle in radians; NaN for an infinity. Extension."""

    def tanh(self, x: Tensor) -> Tensor:
        """The hyperbolic tangent."""

    def tile(self, x: Tensor, repeats: Iterable[int]) -> Tensor:
        """`x` as a whole, repeated `repeats[i]` times along each axis `i`."""

    def top_k(self, x: Tensor, k: int, *, axis: int = ..., largest: bool = ..., indices_dtype: str | DType = ...) -> Tensor:
        """The `k` largest (or smallest) elements along `axis`, best first, and their indices."""

    def transpose(self, x: Tensor, perm: Iterable[int]) -> Tensor:
        """Reorder axes: axis `i` of the result is axis `perm[i]` of `x`."""
