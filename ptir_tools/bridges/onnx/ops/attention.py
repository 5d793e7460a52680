"""Attention and rotary embeddings of `com.microsoft`, as exported language models use them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ptir_tools.bridges.extents import Extent, dim, of
from ptir_tools.bridges.onnx.ops.elementwise import centered, scalar
from ptir_tools.bridges.onnx.ops.matrix import matmul
from ptir_tools.bridges.onnx.ops.normalize import rounded_norm
from ptir_tools.bridges.onnx.ops.shape import cut
from ptir_tools.bridges.onnx.table import DOMAIN, Node, back, fixed, handles, plus, refused, stretched, wide
from ptir_tools.core.dtypes import F32, SI32, SI64
from ptir_tools.core.lazy import np
from ptir_tools.core.types import Dim
from ptir_tools.dialects.ptir.builder.build import Tensor

LOWEST = -3.4028234663852886e38  # f32: the score of a masked element


def weighted(
    q: Tensor, k: Tensor, v: Tensor, biases: Sequence[Tensor], scale: float, softcap: float = 0.0, sink: Tensor | None = None
) -> Tensor:
    """Softmax of scores, times values; q is [B, heads, S, D], k and v are [B, groups, T, D]. Several heads share a group.
    `biases` are added to the scores, in order. `sink` is one more score per head; its value is zero."""
    (b, heads, s, _), (groups, t) = q.shape, k.shape[1:3]
    count = fixed(heads) // fixed(groups)
    rows = q.reshape([b, groups, count, s, q.shape[3]])
    scores = rows.dot_general(k, batch_lhs=[0, 1], batch_rhs=[0, 1], contract_lhs=[4], contract_rhs=[3]) * scale
    if softcap:
        scores = (scores / softcap).tanh() * softcap
    scores = scores.reshape([b, heads, s, t])
    for bias in biases:
        scores = plus(scores, bias)
    most = scores.reduce_max([3], keepdims=True)
    if sink is not None:
        sink = stretched(sink, most.shape)
        most = most.maximum(sink)
    powers = (scores - most).exp()
    total = powers.reduce_sum([3], keepdims=True)
    if sink is not None:
        total = total + (sink - most).exp()
    parts = (powers / total).reshape([b, groups, count, s, t])
    result = parts.dot_general(v, batch_lhs=[0, 1], batch_rhs=[0, 1], contract_lhs=[4], contract_rhs=[2])
    return result.reshape([b, heads, s, v.shape[3]])


def heads_of(x: Tensor, count: int) -> Tensor:
    """[B, S, heads * D] as [B, heads, S, D]."""
    b, s, width = x.shape
    return x.reshape([b, s, count, fixed(width) // count]).transpose([0, 2, 1, 3])


def merge_heads(x: Tensor) -> Tensor:
    """[B, heads, S, D] as [B, S, heads * D]."""
    b, heads, s, d = x.shape
    return x.transpose([0, 2, 1, 3]).reshape([b, s, fixed(heads) * fixed(d)])


def allowed(flag: Tensor, otherwise: float) -> Tensor:
    """0 where `flag` is true, else `otherwise`."""
    like = flag.cast(F32)
    return flag.select(flag.block.full(0.0, like), otherwise)


def places(node: Node, shape: Sequence[Dim], at: int) -> Tensor:
    """The position of each element along an axis."""
    return node.iota(shape, SI64, at)


def causal(node: Node, s: Dim, t: Dim) -> Tensor:
    """The causal mask [1, 1, S, T]: whether a query may attend to a key. The last query attends to all keys."""
    shape = (1, 1, s, t)
    return places(node, shape, 3) <= places(node, shape, 2) + node.scope.measured(of(t) - of(s)).reshape([1, 1, 1, 1])


def masked(node: Node, mask: Tensor, b: Dim, s: Dim, t: Dim, otherwise: float) -> Tensor:
    """The mask of keys as a term of the scores. The operand is a number of keys per row, or flags [B, T], [B, S, T] or [B, 1,
    M, M]."""
    if mask.rank == 1:
        if mask.shape[0] != b:
            raise refused(f"{node.name} with a mask of {mask.type}")
        return allowed(places(node, (b, 1, 1, t), 3) < mask.cast(SI64).reshape([b, 1, 1, 1]), otherwise)
    if mask.rank == 4:
        raise refused(f"{node.name} with a mask of {mask.type}")
    flags = mask.compare_ne(0)
    return allowed(flags.reshape([b, 1, 1, t] if mask.rank == 2 else [b, 1, s, t]), otherwise)


def appended(past: Tensor | None, new: Tensor) -> Tensor:
    """Keys or values, appended to those of earlier steps."""
    if past is None:
        return new
    whole = dim(of(past.shape[2]) + of(new.shape[2]))
    t = new.tensor_type.with_shape(whole if a == 2 else d for a, d in enumerate(new.shape))
    return new.block.op("concat", [past, new], axis=2, types=[t])


@handles("MultiHeadAttention", domain=DOMAIN)
def multi_head_attention(node: Node) -> list[Tensor | None]:
    """MultiHeadAttention: attention of projected queries, keys and values, with keys and values of earlier steps."""
    heads, x = node.attr("num_heads"), node[0]
    if node.datum(1) is None or node.datum(2) is None or x.rank != 3:
        raise refused("MultiHeadAttention of packed operands")
    parts = [y if y.rank == 4 else heads_of(y, heads) for y in (x, node[1], node[2])]
    if node.datum(3) is not None:
        at, bias = 0, node[3]
        for i, part in enumerate(parts):
            width = fixed(part.shape[1]) * fixed(part.shape[3])
            if i and node[1].rank == 4:
                break  # keys and values of rank 4 include their bias
            parts[i] = part + cut(bias, 0, at, width).reshape([1, part.shape[1], 1, part.shape[3]])
            at += width
    if any(node.datum(i) is not None for i in (8, 9)):
        raise refused("MultiHeadAttention with a cache that is written in place")
    if node.wants(3):
        raise refused("the scores of MultiHeadAttention")
    q, k, v = parts
    k, v = appended(node.get(6), k), appended(node.get(7), v)
    return [back(attended(node, q, k, v, 4, 5), x), k, v, None]


def attended(node: Node, q: Tensor, k: Tensor, v: Tensor, mask: int, bias: int | None) -> Tensor:
    """The attention of all heads, side by side; `mask` and `bias` are operand positions."""
    (b, _, s, d), t = q.shape, k.shape[2]
    given, added = node.get(mask), None if bias is None else node.get(bias)
    biases = [] if given is None else [masked(node, given, b, s, t, node.attr("mask_filter_value", -10000.0))]
    biases += [] if added is None else [wide(added)]
    biases += [allowed(causal(node, s, t), LOWEST)] if node.attr("unidirectional", 0) else []
    scale = node.attr("scale", 0.0) or 1 / math.sqrt(fixed(d))
    return merge_heads(weighted(wide(q), wide(k), wide(v), biases, scale))


@handles("Attention", domain=DOMAIN)
def attention(node: Node) -> list[Tensor | None]:
    """Attention: the projection of an input to queries, keys and values, then their attention."""
    x = node[0]
    y = plus(matmul(x, node[1]), node.get(2))
    if node.datum(6) is not None or node.attr("past_present_share_buffer", 0) or node.attr("do_rotary", 0):
        raise refused("Attention with a cache that is written in place, or with rotary positions")
    return projected(node, y, 3, 4, 5)


@handles("QAttention", domain=DOMAIN)
def quantized_attention(node: Node) -> list[Tensor | None]:
    """QAttention: attention with quantized input and weights."""
    if node.attr("past_present_share_buffer", 0) or node.attr("do_rotary", 0):
        raise refused("QAttention with a cache that is written in place, or with rotary positions")
    total = matmul(centered(node[0], node.get(6)), centered(node[1], node.get(7)))
    steps = node[3].reshape([]) * node[4]
    y = total.cast(F32) * scalar(steps)
    return projected(node, plus(y, node[2]), 5, 8, None)


def projected(node: Node, y: Tensor, mask: int, past: int, bias: int | None) -> list[Tensor | None]:
    """Attention of queries, keys and values that are side by side in `y`. The other arguments are operand positions."""
    heads, width = node.attr("num_heads"), y.shape[2]
    sizes = node.attr("qkv_hidden_sizes") or [fixed(width) // 3] * 3
    starts = [sum(sizes[:i]) for i in range(3)]
    q, k, v = (heads_of(cut(y, 2, at, n), heads) for at, n in zip(starts, sizes, strict=True))
    if node.datum(past) is not None:
        held = node[past]
        layers = [cut(held, 0, i, 1).reshape(held.shape[1:]) for i in (0, 1)]
        k, v = appended(layers[0], k), appended(layers[1], v)
    out = back(attended(node, q, k, v, mask, bias), y)
    if not node.wants(1):
        return [out, None]
    return [out, y.block.op("concat", [x.reshape([1, *x.shape]) for x in (k, v)], axis=0)]


@handles(
    "GroupQueryAttention", domain=DOMAIN, causal=1, k_quant_type="NONE", v_quant_type="NONE", local_window_size=-1,
    smooth_softmax=-1,
)  # fmt: skip
def group_query_attention(node: Node) -> list[Tensor | None]:
    """GroupQueryAttention: causal attention of heads that share keys and values. New keys and values are appended in each row
    after its own length."""
    heads, groups = node.attr("num_heads"), node.attr("kv_num_heads")
    for name in ("kv_cache_bit_width", "sliding_window_cache", "qk_output"):
        if node.attr(name, 0):
            raise refused(f"GroupQueryAttention with `{name}`")
    if (given := next((i for i in range(12, 17) if node.datum(i) is not None), None)) is not None or not node.attr("causal"):
        raise refused(f"GroupQueryAttention with operand {given}" if given else "GroupQueryAttention that is not causal")
    x = node[0]
    parts = [x]
    if node.datum(1) is None:
        size = fixed(x.shape[2]) // (heads + 2 * groups)
        parts = [cut(x, 2, 0, heads * size), *(cut(x, 2, (heads + i * groups) * size, groups * size) for i in (0, 1))]
    else:
        parts += [node[1], node[2]]
    q, k, v = (heads_of(part, n) for part, n in zip(parts, (heads, groups, groups), strict=True))
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
        q, k = (rotated(node, y, at, node[7], node[8]) for y in (q, k))
    present = [_update_cache(node, old, new, before, t) for old, new in zip(past, (k, v), strict=True)]
    shape = (b, 1, s, t)
    seen = before.reshape([b, 1, 1, 1]) + places(node, shape, 2)
    column = places(node, shape, 3)
    flag = column.compare_le(seen)
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
    return [back(merge_heads(y), x), *present, None]


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


def rotated(node: Node, x: Tensor, at: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RotaryEmbedding: x [B, heads, S, D] rotated by the angles at positions [B, S]. Only the first elements of D are rotated,
    as halves or as pairs."""
    b, heads, s, d = x.shape
    half = fixed(cos.shape[1])
    c, n = (wide(v).take(at).reshape([b, 1, s, half]).broadcast_to((b, heads, s, half)) for v in (cos, sin))
    y = wide(x)
    first, rest = cut(y, 3, 0, 2 * half), fixed(d) - 2 * half
    if pairs := node.attr("rotary_interleaved", 0):
        first = first.reshape([b, heads, s, half, 2]).transpose([0, 1, 2, 4, 3]).reshape([b, heads, s, 2 * half])
    left, right = cut(first, 3, 0, half), cut(first, 3, half, half)
    result = node.concat([left * c - right * n, right * c + left * n], axis=3)
    if pairs:
        result = result.reshape([b, heads, s, 2, half]).transpose([0, 1, 2, 4, 3]).reshape([b, heads, s, 2 * half])
    if rest:
        result = node.concat([result, cut(y, 3, 2 * half, rest)], axis=3)
    return back(result, x)


@handles("EmbedLayerNormalization", domain=DOMAIN)
def embed_norm(node: Node) -> list[Tensor | None]:
    """EmbedLayerNormalization: the normalized sum of word, position and segment embeddings, and the number of words per row."""
    ids = node[0]
    b, s = ids.shape
    total = node[2].take(ids)
    places_ = node.get(8)
    total = plus(total, node[3].take(node.iota([s], SI32, 0) if places_ is None else places_))
    if node.datum(1) is not None:
        total = total + node[4].take(node[1])
    y = rounded_norm(total, node[5], node[6], node.attr("epsilon", 1e-12))
    if node.attr("mask_index_type", 1) and node.datum(7) is not None:
        count = node[7].reduce_sum([1])
    else:
        count = node.block.full(0, node.iota([b], SI32, 0))
    return [y, count if node.wants(1) else None, total if node.wants(2) else None]
