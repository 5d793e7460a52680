"""GroupQueryAttention of `com.microsoft`, as exported language models use it."""

from __future__ import annotations

import math

from ptir_tools.bridges.extents import Extent, dim
from ptir_tools.bridges.onnx.ops.attention import allowed, appended, heads_of, merge_heads, places, rotated, weighted
from ptir_tools.bridges.onnx.ops.normalize import scaled_rms
from ptir_tools.bridges.onnx.ops.shape import cut
from ptir_tools.bridges.onnx.table import DOMAIN, Node, back, fixed, handles, refused, wide
from ptir_tools.core.dtypes import SI64
from ptir_tools.core.lazy import np
from ptir_tools.core.types import Dim
from ptir_tools.dialects.ptir.builder.build import Tensor


@handles(
    "GroupQueryAttention", domain=DOMAIN, causal=1, k_quant_type="NONE", v_quant_type="NONE", local_window_size=-1,
    smooth_softmax=-1,
)  # fmt: skip
def group_query_attention(node: Node) -> list[Tensor | None]:
    """GroupQueryAttention: causal attention of heads that share keys and values. New keys and values are appended in each row
    after its own length."""
    heads, groups = node.attr("num_heads"), node.attr("kv_num_heads")
    for name in ("kv_cache_bit_width", "sliding_window_cache"):
        if node.attr(name, 0):
            raise refused(f"GroupQueryAttention with `{name}`")
    if (given := next((i for i in (12, 13, 16) if node.datum(i) is not None), None)) is not None:
        raise refused(f"GroupQueryAttention with operand {given}")
    if not node.attr("causal") and node.has(3):
        raise refused("GroupQueryAttention that is not causal, with earlier keys")
    x = node[0]
    parts = [x]
    if node.datum(1) is None:
        size = fixed(x.shape[2]) // (heads + 2 * groups)
        parts = [cut(x, 2, 0, heads * size), *(cut(x, 2, (heads + i * groups) * size, groups * size) for i in (0, 1))]
    else:
        parts += [node[1], node[2]]
    q, k, v = (heads_of(part, n) for part, n in zip(parts, (heads, groups, groups), strict=True))
    common = node.attr("qk_norm_epsilon", 1e-6)
    epsilons = [node.attr(f"{which}_norm_epsilon", common) for which in "qk"]
    if node.datum(14) is not None:
        q, k = (scaled_rms(y, node[i], e, [3]) for y, i, e in zip((q, k), (14, 15), epsilons, strict=True))
    (b, _, s, d), past = q.shape, [node.get(i) for i in (3, 4)]
    held = past[0].shape[2] if past[0] is not None else 0
    counts = node.scope.importer.counted(node.datum(6))
    total = node.dims(6)[0] if counts is None else counts[0]
    t = dim(total) if isinstance(total, Extent) or not isinstance(held, int) else max(total, held)
    lengths = node[5].reshape([b]).cast(SI64)
    before = lengths + 1 - node.scope.measured(s)
    if isinstance(total, Extent) or not isinstance(s, int) or s == total:  # the first positions begin at 0, also in shorter rows
        first = node.op("compare_eq", *(node.scope.measured(n) for n in (s, total)))
        before = first.select(0, before)
    if node.attr("do_rotary", 0):
        at = node[9].cast(SI64) if node.datum(9) is not None else before.reshape([b, 1]) + places(node, (b, s), 1)
        cos, sin = (wide(node[i]).take(at).reshape([b, 1, s, node[i].shape[1]]) for i in (7, 8))
        q, k = (rotated(y, cos, sin, bool(node.attr("rotary_interleaved", 0))) for y in (q, k))
    present = [_update_cache(node, old, new, before, t) for old, new in zip(past, (k, v), strict=True)]
    shape = (b, 1, s, t)
    seen = before.reshape([b, 1, 1, 1]) + places(node, shape, 2)
    column = places(node, shape, 3)
    flag = column.compare_le(seen) if node.attr("causal") else column < (lengths + 1).reshape([b, 1, 1, 1]).broadcast_to(shape)
    if (window := node.attr("local_window_size")) >= 0:
        flag = flag.bitwise_and(column.compare_ge(seen - (window - 1)))
    biases = [allowed(flag, -math.inf)]
    if node.datum(10) is not None:
        biases.insert(0, wide(node[10]))
    sink = None
    if node.datum(11) is not None:
        sink = wide(node[11]).reshape([1, heads, 1, 1])
    elif node.attr("smooth_softmax") > 0:
        sink = node.constant(np.zeros((1, heads, 1, 1), np.float32))
    scale = node.attr("scale", 0.0) or 1 / math.sqrt(fixed(d))
    y = weighted(wide(q), wide(present[0]), wide(present[1]), biases, scale, node.attr("softcap", 0.0), sink)
    shown = y.scores if node.attr("qk_output", 0) == 1 else y.shares
    return [back(merge_heads(y.values), x), *present, back(shown, x) if node.attr("qk_output", 0) else None]


def _update_cache(node: Node, past: Tensor | None, new: Tensor, before: Tensor, t: Dim) -> Tensor:
    """The cache after this step, [B, heads, T, D]: in each row the first `before` old elements, then the new ones, then zeros."""
    b, heads, s, d = new.shape
    source = appended(past, new)
    old = past.shape[2] if past is not None else 0
    shape = (b, t)
    column, start = places(node, shape, 1), before.reshape([b, 1])
    fresh = column - start
    size, gone = (node.scope.measured(n) for n in (s, old))
    held = column.minimum((gone - 1).maximum(0))
    added = gone + fresh.maximum(0).minimum(size - 1)
    at = (column < start).select(held, added)
    whole = (b, heads, t, d)
    result = source.gather(at.reshape([b, 1, t, 1]).broadcast_to(whole), axis=2)
    return (fresh < size).reshape([b, 1, t, 1]).select(result, 0.0)
