"""Blocks of Llama: RMS norm, rotary positions, attention whose queries share keys and values in groups, SwiGLU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from common import Constants, Weights, linear, softmax

from ptir_tools import Graph, Program, Tensor


@dataclass(frozen=True)
class Config:
    """The sizes of a model; Llama 3's own are 4096, 32, 8, 14336, 32, 500000."""

    width: int = 48
    heads: int = 6
    groups: int = 2
    hidden: int = 128
    layers: int = 2
    base: float = 10000.0
    epsilon: float = 1e-5
    time: int = 10

    @property
    def head(self) -> int:
        """The width of a head."""
        return self.width // self.heads


CONFIG = Config()
BATCH = 2


def weights(c: Config = CONFIG) -> dict[str, np.ndarray]:
    """Parameters under Llama's names, input features first; cosines and sines of the positions, a mask of later ones."""
    w, d, kv = Weights(5), c.width, c.groups * c.head
    for i in range(c.layers):
        w.add(f"layers.{i}.input_layernorm", d, within=0.3, about=1.0)
        w.add(f"layers.{i}.post_attention_layernorm", d, within=0.3, about=1.0)
        shapes = {"q": (d, d), "k": (d, kv), "v": (d, kv), "o": (d, d), "gate": (d, c.hidden), "up": (d, c.hidden)}
        for name, shape in {**shapes, "down": (c.hidden, d)}.items():
            w.add(f"layers.{i}.{name}_proj", *shape)
    w.add("norm", d, within=0.3, about=1.0)
    frequency = c.base ** -(np.arange(c.head // 2) / (c.head // 2))
    angles = np.tile(np.arange(c.time)[:, None] * frequency, 2)
    later = np.triu(np.full((c.time, c.time), -np.inf, np.float32), 1)
    w.arrays |= {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32), "mask": later}
    return w.arrays


def inputs() -> dict[str, dict[str, np.ndarray]]:
    """What the stored results were computed on, by program."""
    x = Weights(7)
    x.add("x", BATCH, CONFIG.time, CONFIG.width, within=1.7)
    return {"llama": x.arrays}


def rms_norm(x: Tensor, weight: Tensor, c: Config) -> Tensor:
    """`x` over the root of its mean square, over the last axis, times a weight."""
    mean = (x * x).reduce_sum([-1], keepdims=True) * (1 / c.width)
    return x * (mean + c.epsilon).rsqrt().broadcast_like(x) * weight.broadcast_like(x)


def rotate(x: Tensor, heads: int, w: Constants, c: Config) -> Tensor:
    """`x`, `[batch, heads, time, head]`, turned by its positions: element i is paired with element i + head / 2."""
    half = c.head // 2
    left, right = (x.slice([0, 0, 0, at], [BATCH, heads, c.time, half]) for at in (0, half))
    turned = x.block.concat([-right, left], axis=3)
    return x * w(x, "cos").broadcast_like(x) + turned * w(x, "sin").broadcast_like(x)


def attention(x: Tensor, w: Constants, name: str, c: Config) -> Tensor:
    """Causal attention in which `heads / groups` queries share a key and a value."""

    def heads(part: str, count: int) -> Tensor:
        return linear(x, w(x, f"{name}.{part}_proj")).reshape([BATCH, c.time, count, c.head]).transpose([0, 2, 1, 3])

    q, k, v = rotate(heads("q", c.heads), c.heads, w, c), rotate(heads("k", c.groups), c.groups, w, c), heads("v", c.groups)
    shared = q.reshape([BATCH, c.groups, c.heads // c.groups, c.time, c.head])
    scores = shared.dot_general(k, batch_lhs=[0, 1], batch_rhs=[0, 1], contract_lhs=[4], contract_rhs=[3]) * c.head**-0.5
    power = softmax(scores + w(x, "mask").broadcast_like(scores))
    mixed = power.dot_general(v, batch_lhs=[0, 1], batch_rhs=[0, 1], contract_lhs=[4], contract_rhs=[2])
    rows = mixed.reshape([BATCH, c.heads, c.time, c.head]).transpose([0, 2, 1, 3]).reshape(x.shape)
    return linear(rows, w(x, f"{name}.o_proj"))


def swiglu(x: Tensor, w: Constants, name: str) -> Tensor:
    """`down(silu(gate(x)) * up(x))`."""
    gate = linear(x, w(x, f"{name}.gate_proj"))
    silu = gate / ((-gate).exp() + 1)
    return linear(silu * linear(x, w(x, f"{name}.up_proj")), w(x, f"{name}.down_proj"))


def blocks(dtype: str = "f32", c: Config = CONFIG) -> Program:
    """The last hidden state of embedded tokens `[2, time, width]`."""
    g, w = Graph(), Constants(weights(c), dtype)
    x = g.input("x", dtype, (BATCH, c.time, c.width))
    for i in range(c.layers):
        name = f"layers.{i}"
        x = x + attention(rms_norm(x, w(x, f"{name}.input_layernorm"), c), w, name, c)
        x = x + swiglu(rms_norm(x, w(x, f"{name}.post_attention_layernorm"), c), w, name)
    return g.returns(rms_norm(x, w(x, "norm"), c).named("hidden"))


PROGRAMS = {"llama": blocks}
