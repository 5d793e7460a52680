"""Quantized values: an op dequantizes its operands, computes, and quantizes its result."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.bridges.stablehlo.table import Handler, Site, Tensor
from ptir_tools.bridges.stablehlo.types import Kind, Quantized, refused
from ptir_tools.core.dtypes import F64, DType
from ptir_tools.core.lazy import np
from ptir_tools.core.records import dataclass
from ptir_tools.core.types import TensorType

CONTRACTIONS = ("stablehlo.dot_general", "stablehlo.convolution", "stablehlo.dot", "stablehlo.reduce")  # whose sums are exact


@dataclass(slots=True)
class Value:
    """A quantized tensor: its integers and its quantized type."""

    storage: Tensor
    type: Quantized


def _laid(site: Site, numbers: Sequence[float], q: Quantized, dtype: DType) -> Tensor:
    """A number per tensor, or per index of an axis, broadcast to the shape of the tensor."""
    shape = q.storage.shape
    if q.axis is None:
        return site.full(numbers[0], q.storage.with_dtype(dtype))
    return site.broadcast(site.constant(np.asarray(numbers, np.float64), dtype), shape, [q.axis])


def dequantize(site: Site, x: Value, dtype: DType) -> Tensor:
    """The numbers: `(q - zero_point) * scale`."""
    q = x.storage.cast(dtype) - _laid(site, x.type.zero_points, x.type, dtype)
    return q * _laid(site, x.type.scales, x.type, dtype)


def quantize(site: Site, x: Tensor, q: Quantized) -> Value:
    """The nearest steps of numbers, ties to even, within the range of the storage."""
    dtype = x.dtype
    scaled = x / _laid(site, q.scales, q, dtype) + _laid(site, q.zero_points, q, dtype)
    low, high = (site.full(bound, scaled.tensor_type) for bound in (q.low, q.high))
    return Value(scaled.clamp(low, high).round_even().cast(q.storage.dtype), q)


def perform(site: Site, handler: Handler, operands: Sequence[object], types: Sequence[Kind]) -> list[object]:
    """The results of an op with quantized operands or results of the declared `types`. Raises Violation."""
    name = site.name
    if name == "stablehlo.constant":
        (q,) = types
        assert isinstance(q, Quantized)
        return [Value(site.op("constant", value=site.literal("value", q.storage)), q)]
    if name == "stablehlo.bitcast_convert":
        (x,), (t,) = operands, types
        (storage,) = site.each([x.storage if isinstance(x, Value) else x])
        storage_type = t.storage if isinstance(t, Quantized) else t
        if storage.type is not storage_type:
            raise refused("bits of quantized values as another dtype")
        return [Value(storage, t) if isinstance(t, Quantized) else storage]
    dtype = F64 if name in CONTRACTIONS else None
    numbers = [dequantize(site, x, dtype or x.type.expressed) if isinstance(x, Value) else x for x in operands]
    if name in ("stablehlo.uniform_quantize", "stablehlo.uniform_dequantize"):
        result: object = numbers
    else:
        site.scope.expressed = dtype
        try:
            result = handler(site, *numbers)
        finally:
            site.scope.expressed = None
    results = list(result) if isinstance(result, (list, tuple)) else [result]
    outputs: list[object] = []
    for x, t in zip(results, types, strict=True):
        if isinstance(t, Quantized):
            outputs += [quantize(site, y, t) for y in site.each([x])]
        elif isinstance(x, Tensor) and isinstance(t, TensorType) and x.dtype is not t.dtype:
            outputs.append(x.cast(t.dtype))
        else:
            outputs.append(x)
    return outputs
