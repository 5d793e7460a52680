"""The methods of a builder's values and blocks, for editors and type checkers.

Generated from the op declarations: `pytest tests/test_ptir_build.py --bless` writes it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from ptir_tools.core.dtypes import DType
from ptir_tools.core.opdef import OpDef
from ptir_tools.core.types import Dim, Type
from ptir_tools.dialects.ptir.builder.attributes import Number
from ptir_tools.dialects.ptir.builder.build import Tensor

def methods() -> tuple[list[OpDef], list[OpDef]]: ...
def positional(defn: OpDef) -> int: ...

class TensorMethods:
    """Every op whose first operand is one tensor, as a method of that tensor."""

    def abs(self) -> Tensor:
        """The magnitude of each element. The lowest integer wraps to itself."""

    def add(self, y: Tensor | Number) -> Tensor:
        """The sum of the elements. Integers wrap."""

    def argmax(self, axis: int, *, keepdims: bool = ..., output_dtype: str | DType = ...) -> Tensor:
        """The smallest index of a largest element along `axis`; a NaN counts as larger than all."""

    def broadcast_to(self, result_shape: Iterable[Dim | str]) -> Tensor:
        """Repeat `x` along new leading axes and along its axes of extent 1, to `result_shape`."""

    def cast(self, dtype: str | DType) -> Tensor:
        """Each element as `dtype`."""

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

    def dequantize(
        self,
        *,
        axis: int | None = ...,
        output_dtype: str | DType | None = ...,
        scales: Iterable[float] = ...,
        zero_points: Iterable[int] = ...,
    ) -> Tensor:
        """An integer tensor as floats of `output_dtype` (f32)."""

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
        """The window of `sizes` at `start`, moved into `x` where it would leave it."""

    def dynamic_update_slice(self, update: Tensor, start: Tensor, sizes: Iterable[int]) -> Tensor:
        """`x` with the window of `sizes` at `start` replaced by `update`; starts as in `dynamic_slice`."""

    def erf(self) -> Tensor:
        """The Gauss error function."""

    def exp(self) -> Tensor:
        """e to the power of each element."""

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

    def gather(self, indices: Tensor, axis: int) -> Tensor:
        """At each position of `indices`, the element of `x` there with its index along `axis` replaced."""

    def layer_norm(self, gamma: Tensor, beta: Tensor, epsilon: float, *, feature_axis: int = ...) -> Tensor:
        """`(x - mean) / sqrt(variance + epsilon) * gamma + beta` along `feature_axis`, with the biased variance."""

    def log(self) -> Tensor:
        """The natural logarithm: -inf at zero, NaN for negative reals."""

    def maximum(self, y: Tensor | Number) -> Tensor:
        """The larger of the elements; NaN when either is NaN."""

    def minimum(self, y: Tensor | Number) -> Tensor:
        """The smaller of the elements; NaN when either is NaN."""

    def mul(self, y: Tensor | Number) -> Tensor:
        """The product of the elements. Integers wrap."""

    def neg(self) -> Tensor:
        """Negate each element. The lowest integer wraps to itself."""

    def pad(self, low: Iterable[int], high: Iterable[int], *, interior: Iterable[int] = ..., pad_value: Number = ...) -> Tensor:
        """`x` with `low` and `high` elements of `pad_value` before and after, `interior` between neighbors."""

    def quantize(
        self,
        output_dtype: str | DType,
        *,
        axis: int | None = ...,
        scales: Iterable[float] = ...,
        zero_points: Iterable[int] = ...,
    ) -> Tensor:
        """A float tensor as `output_dtype`."""

    def reciprocal(self) -> Tensor:
        """One divided by each element."""

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
        """The same elements in the same (row-major) order under another shape."""

    def rsqrt(self) -> Tensor:
        """One divided by the square root: infinity at zero (of its sign), NaN for negative reals."""

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
        """`x` with windows of `updates` added at indexed places, numbered as in XLA."""

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

    def slice(self, starts: Iterable[int], sizes: Iterable[int]) -> Tensor:
        """The window of `sizes` elements from `starts`, with unit stride."""

    def stop_gradient(self) -> Tensor:
        """`x` itself: a barrier for automatic differentiation, which no default pass drops."""

    def sub(self, y: Tensor | Number) -> Tensor:
        """The difference of the elements. Integers wrap."""

    def take(self, indices: Tensor) -> Tensor:
        """The rows `x[i]` for each element `i` of `indices` (an embedding)."""

    def tanh(self) -> Tensor:
        """The hyperbolic tangent."""

    def tile(self, repeats: Iterable[int]) -> Tensor:
        """`x` repeated as a whole `repeats[i]` times along each axis `i`."""

    def top_k(self, k: int, *, axis: int = ..., largest: bool = ..., indices_dtype: str | DType = ...) -> Tensor:
        """The `k` largest (or smallest) elements along `axis`, best first, and their indices."""

    def transpose(self, perm: Iterable[int]) -> Tensor:
        """Reorder axes: axis `i` of the result is axis `perm[i]` of `x`."""

class BlockMethods:
    """Every op without regions: its operands, then its attributes."""

    def abs(self, x: Tensor) -> Tensor:
        """The magnitude of each element. The lowest integer wraps to itself."""

    def add(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        """The sum of the elements. Integers wrap."""

    def argmax(self, x: Tensor, axis: int, *, keepdims: bool = ..., output_dtype: str | DType = ...) -> Tensor:
        """The smallest index of a largest element along `axis`; a NaN counts as larger than all."""

    def broadcast_to(self, x: Tensor, result_shape: Iterable[Dim | str]) -> Tensor:
        """Repeat `x` along new leading axes and along its axes of extent 1, to `result_shape`."""

    def cast(self, x: Tensor, dtype: str | DType) -> Tensor:
        """Each element as `dtype`."""

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

    def concat(self, xs: Sequence[Tensor], axis: int) -> Tensor:
        """The tensors one after the other along `axis`."""

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
        """The window of `sizes` at `start`, moved into `x` where it would leave it."""

    def dynamic_update_slice(self, x: Tensor, update: Tensor, start: Tensor, sizes: Iterable[int]) -> Tensor:
        """`x` with the window of `sizes` at `start` replaced by `update`; starts as in `dynamic_slice`."""

    def erf(self, x: Tensor) -> Tensor:
        """The Gauss error function."""

    def exp(self, x: Tensor) -> Tensor:
        """e to the power of each element."""

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

    def gather(self, x: Tensor, indices: Tensor, axis: int) -> Tensor:
        """At each position of `indices`, the element of `x` there with its index along `axis` replaced."""

    def iota(self, shape: Iterable[Dim | str], dtype: str | DType, axis: int) -> Tensor:
        """Elements that count 0, 1, 2, … along `axis` and repeat along the others."""

    def layer_norm(self, x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float, *, feature_axis: int = ...) -> Tensor:
        """`(x - mean) / sqrt(variance + epsilon) * gamma + beta` along `feature_axis`, with the biased variance."""

    def log(self, x: Tensor) -> Tensor:
        """The natural logarithm: -inf at zero, NaN for negative reals."""

    def maximum(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        """The larger of the elements; NaN when either is NaN."""

    def minimum(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        """The smaller of the elements; NaN when either is NaN."""

    def mul(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        """The product of the elements. Integers wrap."""

    def neg(self, x: Tensor) -> Tensor:
        """Negate each element. The lowest integer wraps to itself."""

    def pad(
        self, x: Tensor, low: Iterable[int], high: Iterable[int], *, interior: Iterable[int] = ..., pad_value: Number = ...
    ) -> Tensor:
        """`x` with `low` and `high` elements of `pad_value` before and after, `interior` between neighbors."""

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

    def reciprocal(self, x: Tensor) -> Tensor:
        """One divided by each element."""

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
        """The same elements in the same (row-major) order under another shape."""

    def rng_normal(self, shape: Iterable[Dim | str], dtype: str | DType, *, stream: int | None = ...) -> Tensor:
        """Independent numbers of the standard normal distribution."""

    def rng_uniform(self, shape: Iterable[Dim | str], dtype: str | DType, *, stream: int | None = ...) -> Tensor:
        """Independent numbers, uniform in [0, 1)."""

    def rsqrt(self, x: Tensor) -> Tensor:
        """One divided by the square root: infinity at zero (of its sign), NaN for negative reals."""

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
        """`x` with windows of `updates` added at indexed places, numbered as in XLA."""

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

    def slice(self, x: Tensor, starts: Iterable[int], sizes: Iterable[int]) -> Tensor:
        """The window of `sizes` elements from `starts`, with unit stride."""

    def stop_gradient(self, x: Tensor) -> Tensor:
        """`x` itself: a barrier for automatic differentiation, which no default pass drops."""

    def sub(self, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        """The difference of the elements. Integers wrap."""

    def take(self, x: Tensor, indices: Tensor) -> Tensor:
        """The rows `x[i]` for each element `i` of `indices` (an embedding)."""

    def tanh(self, x: Tensor) -> Tensor:
        """The hyperbolic tangent."""

    def tile(self, x: Tensor, repeats: Iterable[int]) -> Tensor:
        """`x` repeated as a whole `repeats[i]` times along each axis `i`."""

    def top_k(self, x: Tensor, k: int, *, axis: int = ..., largest: bool = ..., indices_dtype: str | DType = ...) -> Tensor:
        """The `k` largest (or smallest) elements along `axis`, best first, and their indices."""

    def transpose(self, x: Tensor, perm: Iterable[int]) -> Tensor:
        """Reorder axes: axis `i` of the result is axis `perm[i]` of `x`."""
