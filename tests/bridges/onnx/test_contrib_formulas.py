"""Operators of `com.microsoft` that ONNX Runtime has on GPUs only, or computes in fewer bits: held to formulas in NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import ptir_tools as ptir
from tests.bridges.onnx.test_contrib import EXPERTS, LIMITED, PROJECTED, case, f, grouped, layer, model, u8

ENGINES = ("reference", "numpy", "native")


def softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def sigmoid(x: Any) -> Any:
    return 0.5 * (1 + np.tanh(x / 2))


def held(given: Any, *wanted: Any, rtol: float = 1e-5) -> None:
    """Hold a node to outputs, on each engine."""
    m, feeds = model(*given)
    program = ptir.from_onnx(m)
    for engine in ENGINES:
        for found, y in zip(ptir.run(program, feeds, engine=engine).values(), wanted, strict=True):
            np.testing.assert_allclose(found, y, rtol, 1e-6 * np.abs(y).max(), err_msg=engine)


def mixed(x: Any, scores: Any, expert: Any, k: int, among_best: bool = False) -> Any:
    """A mixture by its meaning: `expert(rows, e)`, weighted by the softmax of scores."""
    best, shares = np.argsort(-scores, 1)[:, :k], softmax(scores.astype(np.float64))
    result = np.zeros((len(x), expert(x[:1], 0).shape[1]))
    for r, row in enumerate(x.astype(np.float64)):
        picked = softmax(scores[r, best[r]].astype(np.float64)) if among_best else shares[r, best[r]]
        result[r] = sum(w * expert(row[None], e)[0] for w, e in zip(picked, best[r], strict=True))
    return result


def swish(x: Any, alpha: float = 1.0) -> Any:
    return x * sigmoid(alpha * x)


def tanh_gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


GATES: dict[str, Any] = {
    "swiglu": lambda g, u: swish(g) * u,
    "limited": lambda g, u: swish(np.minimum(g, 0.7), 1.702) * (np.clip(u, -0.7, 0.7) + 1),
    "late": lambda g, u: np.minimum(swish(g, 1.702), 0.7) * (np.clip(u, -0.7, 0.7) + 1),
    "geglu": lambda g, u: tanh_gelu(g) * u,
}


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("layout", [1, 2])
def test_experts_with_a_gate_in_one_product(gate: str, layout: int) -> None:
    x, scores, w, b, v, c = EXPERTS

    def expert(rows: Any, e: int) -> Any:
        y = rows @ w[e].T + b[e]
        parts = (y[:, ::2], y[:, 1::2]) if layout == 1 else (y[:, :6], y[:, 6:])
        return GATES[gate](*parts) @ v[e].T + c[e]

    attrs: dict[str, Any] = (
        {**LIMITED, "swiglu_limit_after_activation": int(gate == "late")} if gate in ("limited", "late") else {}
    )
    kind = "geglu" if gate == "geglu" else "swiglu"
    held(case("MoE", *EXPERTS, k=2, activation_type=kind, swiglu_fusion=layout, **attrs), mixed(x, scores, expert, 2))


@pytest.mark.parametrize("kind", ["swiglu", "silu", "relu2"])
def test_experts_with_a_third_product(kind: str) -> None:
    """As Mixtral has it: the activation of the first product, times the third."""
    x, scores, w, b, v, c = f(5, 8), f(5, 4), f(4, 6, 8), f(4, 6), f(4, 8, 6), f(4, 8)
    u, d = f(4, 6, 8) * 2, f(4, 6) * 3
    active = (lambda y: np.maximum(y, 0) ** 2) if kind == "relu2" else swish

    def expert(rows: Any, e: int) -> Any:
        return (active(rows @ w[e].T + b[e]) * (rows @ u[e].T + d[e])) @ v[e].T + c[e]

    held(case("MoE", x, scores, w, b, v, c, u, d, k=2, activation_type=kind), mixed(x, scores, expert, 2))


def test_experts_of_8_bits() -> None:
    """ONNX Runtime rounds the rows to 8 bits, too."""
    x, scores, zeros = f(5, 32), f(5, 4), (u8(4, 32, 2), u8(4, 32, 2)[::-1].copy())
    first, second = layer(32, 8, blocks=2), layer(32, 8, 1, 2)
    real = [
        (w.reshape(4, 32, 2, 16).astype(np.float64) - z[..., None]) * s[..., None]
        for (w, s, _), z in zip((first, second), zeros, strict=True)
    ]
    w, v = (y.reshape(4, 32, 32) for y in real)

    def expert(rows: Any, e: int) -> Any:
        return swish(rows @ w[e].T + first[2][e]) @ v[e].T + second[2][e]

    attrs = {"expert_weight_bits": 8, "activation_type": "silu", "block_size": 16, "k": 2}
    held(case("QMoE", x, scores, *first, *second, *[None] * 3, *zeros, **attrs), mixed(x, scores, expert, 2, True))


def attended(q: Any, k: Any, v: Any, bias: Any) -> Any:
    """Attention of [B, heads, S, D], side by side."""
    y = softmax(q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1]) + bias) @ v
    return y.swapaxes(1, 2).reshape(len(y), y.shape[2], -1)


def split(x: Any, heads: int) -> list[Any]:
    """Queries, keys and values [B, heads, S, D] of a projection."""
    parts = np.split(x, 3, -1)
    return [p.reshape(*p.shape[:2], heads, -1).swapaxes(1, 2) for p in parts]


def turned(x: Any, size: int, first: int) -> Any:
    """Halves of the first elements, rotated by the angles of their places."""
    steps = 10000.0 ** (-np.arange(0, size, 2) / size)
    angle = (first + np.arange(x.shape[2]))[:, None] * steps
    left, right, rest = x[..., : size // 2], x[..., size // 2 : size], x[..., size:]
    c, s = np.cos(angle), np.sin(angle)
    return np.concatenate([left * c - right * s, right * c + left * s, rest], -1)


@pytest.mark.parametrize(("size", "past"), [(0, 0), (8, 0), (8, 4)])
def test_attention_with_rotary_positions(size: int, past: int) -> None:
    x, w, b = f(2, 3, 32), f(32, 96) / 4, f(96)
    q, k, v = split(x.astype(np.float64) @ w + b, 2)
    q, k = (turned(y, size or 16, past) for y in (q, k))
    held_back = f(2, 2, 2, past, 16)
    k, v = (np.concatenate([old, new], 2) for old, new in zip(held_back, (k, v), strict=True))
    attrs = {"num_heads": 2, "do_rotary": 1, **({"rotary_embedding_dim": size} if size else {})}
    given = case("Attention", x, w, b, None, held_back if past else None, outputs=(0, 1), **attrs)
    held(given, attended(q, k, v, 0), np.stack([k, v]))


@pytest.mark.parametrize("known", [True, False])
def test_attention_that_writes_into_its_cache(known: bool) -> None:
    x, w, b = f(2, 2, 8), f(8, 24), f(24)
    cache, before = f(2, 2, 2, 6, 4), 3
    q, k, v = split(x.astype(np.float64) @ w + b, 2)
    full = cache.copy()
    full[:, :, :, before : before + 2] = np.stack([k, v])
    causal = np.where(np.arange(5) <= before + np.arange(2)[:, None], 0, -np.inf)
    mask = np.array([[1, 0, 1, 1, 1], [1, 1, 1, 1, 1]], np.int32)
    bias = causal + np.where(mask, 0, -10000.0)[:, None, None]
    wanted = attended(q, *full[:, :, :, :5].astype(np.float64), bias)
    attrs = {"num_heads": 2, "unidirectional": 1, "past_present_share_buffer": 1}
    m, feeds = model(*case("Attention", x, w, b, mask, cache, None, np.array([before], np.int32), outputs=(0, 1), **attrs))
    if not known:  # the number of elements in the cache is an input
        feeds["i6"] = np.array([before], np.int32)
        initial = next(t for t in m.graph.initializer if t.name == "i6")
        m.graph.initializer.remove(initial)
        m.graph.input.append(type(m.graph.input[0])(name="i6", type=_typed(initial)))
    program = ptir.from_onnx(m)
    for engine in ENGINES:
        y, kept = ptir.run(program, feeds, engine=engine).values()
        np.testing.assert_allclose(y, wanted, 1e-5, 1e-5, err_msg=engine)
        np.testing.assert_allclose(kept, full, 1e-5, 1e-5, err_msg=engine)


def _typed(t: Any) -> Any:
    from onnx import helper

    return helper.make_tensor_type_proto(t.data_type, list(t.dims))


def test_attention_with_a_square_mask() -> None:
    """As Megatron has it: the mask of all places, of which the queries' rows are taken."""
    x, w, b = PROJECTED
    past, mask = f(2, 2, 2, 2, 4), np.tril(np.ones((2, 1, 7, 7), np.int32), 1)
    q, k, v = split(x.astype(np.float64) @ w + b, 2)
    k, v = (np.concatenate([old, new], 2) for old, new in zip(past, (k, v), strict=True))
    bias = np.where(mask[:, :, 2:5, :5], 0, -10000.0)
    held(case("Attention", x, w, b, mask, past, num_heads=2), attended(q, k, v, bias))


def test_queries_and_keys_of_groups_with_norms() -> None:
    q, k, v, *_ = operands = grouped(2, 5, 5)
    weights = f(16) ** 2, f(16) ** 2 * 2

    def normal(y: Any, weight: Any, epsilon: float) -> Any:
        y = y.astype(np.float64).reshape(2, 5, -1, 16).swapaxes(1, 2)
        return y / np.sqrt((y * y).mean(-1, keepdims=True) + epsilon) * weight

    heads, keys = normal(q, weights[0], 1e-3), normal(k, weights[1], 1e-2)
    values = v.reshape(2, 5, 2, 16).swapaxes(1, 2)
    bias = np.where(np.tril(np.ones((5, 5))), 0, -np.inf)
    wanted = attended(heads, keys.repeat(2, 1), values.repeat(2, 1), bias)
    attrs = {"num_heads": 4, "kv_num_heads": 2, "qk_norm_epsilon": 1e-3, "k_norm_epsilon": 1e-2}
    held(case("GroupQueryAttention", *operands, *[None] * 7, *weights, outputs=(0, 1, 2), **attrs), wanted, keys, values)
