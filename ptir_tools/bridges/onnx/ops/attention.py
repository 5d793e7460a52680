"""Attention and rotary embeddings of `com.microsoft`, as exported language models use them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ptir_tools.bridges.extent_ops import counted, measured
from ptir_tools.bridges.extents import dim, of
from ptir_tools.bridges.onnx.ops.elementwise import centered, logical, scalar
from ptir_tools.bridges.onnx.ops.matrix import matmul
from ptir_tools.bridges.onnx.ops.normalize import rounded_norm
from ptir_tools.bridges.onnx.ops.shape import cut
from ptir_tools.bridges.onnx.table import DOMAIN, Node, back, fixed, handles, plus, refused, stretched, wide
from ptir_tools.core.dtypes import F32, SI32, SI64
from ptir_tools.core.lazy import np
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.types import Dim
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.builder.build import Tensor

LOWEST = -3.4028234663852886e38  # f32: the score of a masked element


class Attended(NamedTuple):
    """Attention: the values [B, heads, S, D], and the scores [B, heads, S, T] before and after softmax."""

    values: Tensor
    scores: Tensor
    shares: Tensor


def weighted(
    q: Tensor, k: Tensor, v: Tensor, biases: Sequence[Tensor], scale: float, softcap: float = 0.0, sink: Tensor | None = None
) -> Attended:
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
    shares = powers / total
    parts = shares.reshape([b, groups, count, s, t])
    result = parts.dot_general(v, batch_lhs=[0, 1], batch_rhs=[0, 1], contract_lhs=[4], contract_rhs=[2])
    return Attended(result.reshape([b, heads, s, v.shape[3]]), scores, shares)


def heads_of(x: Tensor, count: int) -> Tensor:
    """[B, S, heads * D] as [B, heads, S, D]."""
    b, s, width = x.shape
    return x.reshape([b, s, count, fixed(width) // count]).transpose([0, 2, 1, 3])


def _unpacked(x: Tensor) -> list[Tensor]:
    """[B, S, heads, count, D] as tensors [B, heads, S, D]."""
    b, s, heads, count, d = x.shape
    return [cut(x, 3, k, 1).reshape([b, s, heads, d]).transpose([0, 2, 1, 3]) for k in range(fixed(count))]


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


def causal(node: Node, s: Dim, t: Dim, first: Tensor) -> Tensor:
    """The causal mask [1, 1, S, T]: whether a query may attend to a key. `first` is the place of the first query."""
    shape = (1, 1, s, t)
    return places(node, shape, 3) <= places(node, shape, 2) + first.reshape([1, 1, 1, 1])


def masked(node: Node, mask: Tensor, b: Dim, s: Dim, t: Dim, otherwise: float) -> Tensor:
    """The mask of keys as a term of the scores. The operand has the number of keys per row; the ends of their ranges, then the
    starts; the numbers, then the sums of packed rows; or flags [B, T], [B, S, T] or [B, 1, M, M]."""
    if mask.rank == 4:
        mask = cut(cut(mask, 2, of(t) - of(s), of(s)), 3, 0, of(t))
        return allowed(mask.compare_ne(0), otherwise)
    if mask.rank > 1:
        flags = mask.compare_ne(0)
        return allowed(flags.reshape([b, 1, 1, t] if mask.rank == 2 else [b, 1, s, t]), otherwise)
    count = of(mask.shape[0])
    rows = [cut(mask, 0, k * of(b), of(b)).cast(SI64).reshape([b, 1, 1, 1]) for k in (0, 1) if not k or count == 2 * of(b)]
    if count not in (of(b), 2 * of(b), 3 * of(b) + 2):
        raise refused(f"{node.name} with a mask of {mask.type}")
    at = places(node, (b, 1, 1, t), 3)
    inside = at < rows[0]
    return allowed(logical("and", inside, at >= rows[1]) if rows[1:] else inside, otherwise)


def extended(x: Tensor, t: Dim) -> Tensor:
    """A mask or bias of as many keys as there are, for a cache of `t`; what it has for others is not used."""
    if x.shape[-1] == t or (x.rank > 1 and x.shape[-1] == 1):
        return x
    last = measured(x.block, of(x.shape[-1]) - 1)
    return x.taken(counted(x.block, of(t), SI64).minimum(last), x.rank - 1)


def appended(past: Tensor | None, new: Tensor) -> Tensor:
    """Keys or values, appended to those of earlier steps."""
    if past is None:
        return new
    whole = dim(of(past.shape[2]) + of(new.shape[2]))
    t = new.tensor_type.with_shape(whole if a == 2 else d for a, d in enumerate(new.shape))
    return new.block.op("concat", [past, new], axis=2, types=[t])


class Keys(NamedTuple):
    """Keys and values, what is kept of them for the next step, and how many are there before this one: None where the cache
    has only those."""

    k: Tensor
    v: Tensor
    kept: tuple[Tensor, Tensor]
    before: Tensor | None = None


def remembered(past: Sequence[Tensor | None], k: Tensor, v: Tensor, before: Tensor | None, beams: Tensor | None) -> Keys:
    """Keys and values with those of earlier steps. If there is a number of earlier ones, new ones are written behind them in a
    cache that is longer. `beams` [batch, beams, length] says from which beam each earlier element of a beam comes."""
    if before is None:
        k, v = (appended(old, new) for old, new in zip(past, (k, v), strict=True))
        return Keys(k, v, (k, v))
    before = before.cast(SI64).reshape([])
    found = [written(old, new, before) for old, new in zip(past, (k, v), strict=True) if old is not None]
    if len(found) != 2:
        raise Violation("InvalidModel", "there is a number of earlier keys, and no cache")
    seen = [by_beams(x, beams, before) for x in found] if beams is not None else found
    return Keys(seen[0], seen[1], (found[0], found[1]), before)


def written(cache: Tensor, new: Tensor, start: Tensor) -> Tensor:
    """A cache [B, heads, T, D] with new elements [B, heads, S, D] from `start` on."""
    t, s = cache.shape[2], measured(new.block, of(new.shape[2]))
    at = counted(cache.block, of(t), SI64) - start
    source = new.taken(at.maximum(0).minimum(s - 1), 2)
    inside = logical("and", at >= 0, at < s).reshape([1, 1, t, 1])
    return inside.broadcast_to(cache.shape).select(source, cache)


def by_beams(cache: Tensor, beams: Tensor, before: Tensor) -> Tensor:
    """A cache [B, heads, T, D] as each beam sees it: the first `before` elements of a row come from the beams that are named."""
    b, heads, t, d = cache.shape
    count = fixed(beams.shape[1])
    rows = extended(beams.reshape([b, beams.shape[2]]).cast(SI64), t)
    block = cache.block
    own = block.op("iota", [b, t], SI64, 0)
    at = block.op("iota", [b, t], SI64, 1)
    row = (at < before).select(own / count * count + rows, own)
    flat = cache.transpose([0, 2, 1, 3]).reshape([dim(of(b) * of(t)), heads, d])
    place = row * measured(block, of(t)) + at
    return flat.take(place).transpose([0, 2, 1, 3])


@handles("MultiHeadAttention", domain=DOMAIN)
def multi_head_attention(node: Node) -> list[Tensor | None]:
    """MultiHeadAttention: attention of projected queries, keys and values, with keys and values of earlier steps."""
    q, k, v = projections(node, 3)
    keys = remembered([node.get(6), node.get(7)], k, v, node.get(8), node.get(9))
    return outputs(node, q, keys, 4, 5)


@handles("DecoderMaskedMultiHeadAttention", domain=DOMAIN)
def one_step_attention(node: Node) -> list[Tensor | None]:
    """DecoderMaskedMultiHeadAttention: that of one query in each row; keys and values of rank 4 are those of another sequence."""
    q, k, v = projections(node, 10)
    node.idle("output_qk", "past_present_share_buffer", 8)  # the outputs and operands show them, and the beams how many they are
    if node.has(1) and node[1].rank == 4:
        node.idle(5, 6, 7, 9)
        return outputs(node, q, Keys(k, v, (k, v)), 3, 4)
    return outputs(node, q, remembered([node.get(5), node.get(6)], k, v, node.get(7), node.get(9)), 3, 4)


def projections(node: Node, bias: int) -> list[Tensor]:
    """Queries, keys and values [B, heads, S, D] of operands that may be packed, with the biases of operand `bias`."""
    heads = node.attr("num_heads")
    given = [y for y in (node[0], node.get(1), node.get(2)) if y is not None]
    parts = [part for y in given for part in (_unpacked(y) if y.rank == 5 else [y if y.rank == 4 else heads_of(y, heads)])]
    if len(given) == 1 and len(parts) == 1 and node.name.startswith("Decoder"):
        parts = [heads_of(part, heads) for part in thirds(node[0], [])]
    if len(parts) != 3:
        raise Violation("InvalidModel", f"{node.name} of {len(parts)} of query, key and value")
    if node.datum(bias) is not None:
        at = 0
        for i, part in enumerate(parts):
            size = fixed(part.shape[1]) * fixed(part.shape[3])
            if i and len(given) == 3 and given[1].rank == 4:
                break  # keys and values of rank 4 include their bias
            parts[i] = part + cut(node[bias], 0, at, size).reshape([1, part.shape[1], 1, part.shape[3]])
            at += size
    return parts


def thirds(x: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Queries, keys and values that are side by side in the last of three axes, in parts of these sizes, by default equal."""
    sizes = sizes or [fixed(x.shape[2]) // 3] * 3
    return [cut(x, 2, sum(sizes[:i]), n) for i, n in enumerate(sizes)]


def outputs(node: Node, q: Tensor, keys: Keys, mask: int, bias: int | None) -> list[Tensor | None]:
    """The attention of all heads, side by side, the cache, and the shares if they are wanted."""
    found = attended(node, q, keys, mask, bias)
    if node.wants(3) and keys.before is not None:
        raise refused(f"the scores of {node.name}, as many as there are keys in a longer cache")
    return [back(merge_heads(found.values), node[0]), *keys.kept, back(found.scores, node[0]) if node.wants(3) else None]


def attended(node: Node, q: Tensor, keys: Keys, mask: int, bias: int | None) -> Attended:
    """The attention of queries; `mask` and `bias` are operand positions."""
    (b, _, s, d), t = q.shape, keys.k.shape[2]
    given, added = node.get(mask), None if bias is None else node.get(bias)
    first = node.scope.measured(of(t) - of(s)) if keys.before is None else keys.before
    if keys.before is not None:
        given, added = (x if x is None or (x is given and x.rank in (1, 4)) else extended(x, t) for x in (given, added))
    if keys.before is not None and given is not None and given.rank == 4:
        raise refused(f"{node.name} with a mask of {given.type} and a cache that is written in place")
    biases = [] if given is None else [masked(node, given, b, s, t, node.attr("mask_filter_value", -10000.0))]
    biases += [] if added is None else [wide(added)]
    biases += [allowed(causal(node, s, t, first), LOWEST)] if node.attr("unidirectional", 0) else []
    if keys.before is not None:
        there = places(node, (1, 1, 1, t), 3) < first + node.scope.measured(s)
        biases.append(allowed(there, -math.inf))
    scale = node.attr("scale", 0.0) or 1 / math.sqrt(fixed(d))
    return weighted(wide(q), wide(keys.k), wide(keys.v), biases, scale)


@handles("Attention", domain=DOMAIN)
def attention(node: Node) -> list[Tensor | None]:
    """Attention: the projection of an input to queries, keys and values, then their attention."""
    return projected(node, plus(matmul(node[0], node[1]), node.get(2)), 3, 4, 5)


@handles("QAttention", domain=DOMAIN)
def quantized_attention(node: Node) -> list[Tensor | None]:
    """QAttention: attention with quantized input and weights."""
    total = matmul(centered(node[0], node.get(6)), centered(node[1], node.get(7)))
    y = total.cast(F32) * scalar(node[3].reshape([]) * node[4])
    return projected(node, plus(y, node[2]), 5, 8, None)


def projected(node: Node, y: Tensor, mask: int, past: int, bias: int | None) -> list[Tensor | None]:
    """Attention of queries, keys and values that are side by side in `y`. The other arguments are operand positions."""
    shared = bool(node.attr("past_present_share_buffer", 0))
    if shared and (bias is None or node.datum(past) is None or node.datum(6) is None):
        raise refused(f"{node.name} that shares a cache, and has none or no number of its elements")
    node.idle("past_present_share_buffer", *(() if shared or bias is None else (6,)))
    q, k, v = (heads_of(part, node.attr("num_heads")) for part in thirds(y, node.attr("qkv_hidden_sizes") or []))
    held: list[Tensor | None] = [None, None]
    if node.datum(past) is not None:
        held = [cut(node[past], 0, i, 1).reshape(node[past].shape[1:]) for i in (0, 1)]
    before = node[6] if shared else None
    if node.attr("do_rotary", 0):
        earlier = 0 if held[0] is None else held[0].shape[2]
        first = node.scope.measured(earlier) if before is None else before.cast(SI64).reshape([])
        cos, sin = _angles(node, first, q.shape[2], node.attr("rotary_embedding_dim", 0) or fixed(q.shape[3]))
        q, k = (rotated(x, cos, sin, False) for x in (q, k))
    node.idle("rotary_embedding_dim")
    keys = remembered(held, k, v, before, None)
    out = back(merge_heads(attended(node, q, keys, mask, bias).values), y)
    if not node.wants(1):
        return [out, None]
    return [out, y.block.op("concat", [x.reshape([1, *x.shape]) for x in keys.kept], axis=0)]


def _angles(node: Node, first: Tensor, count: Dim, size: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines [1, 1, S, size / 2] of the angles of places from `first` on, with the base 10000."""
    steps = 10000.0 ** (-np.arange(0, size, 2, dtype=np.float64) / size)
    at = (node.iota([count], SI64, 0) + first).cast(F32).reshape([1, 1, count, 1])
    shape = (1, 1, count, size // 2)
    angle = at.broadcast_to(shape) * node.constant(steps.astype(np.float32).reshape(1, 1, 1, -1)).broadcast_to(shape)
    return angle.cos(), angle.sin()


def rotated(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """x [B, heads, S, D] rotated by angles [B or 1, 1, S, half]. Only the first elements of D are rotated, as halves or as
    pairs."""
    b, heads, s, d = x.shape
    half = fixed(cos.shape[3])
    c, n = (v.broadcast_to((b, heads, s, half)) for v in (cos, sin))
    y = wide(x)
    first, rest = cut(y, 3, 0, 2 * half), fixed(d) - 2 * half
    if interleaved:
        first = first.reshape([b, heads, s, half, 2]).transpose([0, 1, 2, 4, 3]).reshape([b, heads, s, 2 * half])
    left, right = cut(first, 3, 0, half), cut(first, 3, half, half)
    result = x.block.op("concat", [left * c - right * n, right * c + left * n], axis=3)
    if interleaved:
        result = result.reshape([b, heads, s, 2, half]).transpose([0, 1, 2, 4, 3]).reshape([b, heads, s, 2 * half])
    if rest:
        result = x.block.op("concat", [result, cut(y, 3, 2 * half, rest)], axis=3)
    return back(result, x)


@handles("RotaryEmbedding", domain=DOMAIN)
def rotary_embedding(node: Node) -> Tensor:
    """RotaryEmbedding: rotation by the angles at given positions, or at those from one position on."""
    given, at, tables = node[0], node[1].cast(SI64), [wide(node[i]) for i in (2, 3)]
    half = fixed(tables[0].shape[1])
    node.idle("scale", "rotary_embedding_dim")  # ONNX Runtime does not read the one; the tables show the other
    x = given if given.rank == 4 else heads_of(given, node.attr("num_heads", 0) or fixed(given.shape[2]) // (2 * half))
    b, _, s, _ = x.shape
    if at.rank == 1:
        at = (at.reshape([1, 1]) + places(node, (1, s), 1)).broadcast_to((b, s))
    node.idle("num_heads")
    cos, sin = (table.take(at).reshape([b, 1, s, half]) for table in tables)
    y = rotated(x, cos, sin, bool(node.attr("interleaved", 0)))
    return y if given.rank == 4 else merge_heads(y)


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
