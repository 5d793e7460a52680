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
    x.add("x", 2, CONFIG.time, CONFIG.width, within=1.7)
    return {"llama": x.arrays}


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """`x` over the root of its mean square, over the last axis, times a weight."""
    mean = (x * x).reduce_sum([-1], keepdims=True) * (1 / weight.shape[0])
    return x * (mean + epsilon).rsqrt().broadcast_like(x) * weight.broadcast_like(x)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`x`, `[batch, heads, time, head]`, turned by its positions: element i is paired with element i + head / 2."""
    *outer, head = x.shape
    left, right = (x.slice([0, 0, 0, at], [*outer, head // 2]) for at in (0, head // 2))
    turned = x.block.concat([-right, left], axis=3)
    return x * cos.broadcast_like(x) + turned * sin.broadcast_like(x)


def attention(x: Tensor, w: Constants, name: str, c: Config) -> Tensor:
    """Causal attention in which `heads / groups` queries share a key and a value."""
    batch, time, _ = x.shape

    def heads(part: str, count: int) -> Tensor:
        return linear(x, w(x, f"{name}.{part}_proj")).reshape([batch, time, count, c.head]).transpose([0, 2, 1, 3])

    cos, sin = w(x, "cos"), w(x, "sin")
    q, k, v = rotate(heads("q", c.heads), cos, sin), rotate(heads("k", c.groups), cos, sin), heads("v", c.groups)
    shared = [batch, c.groups, c.heads // c.groups, time, c.head]
    scores = q.reshape(shared).dot_general(k, batch_lhs=[0, 1], batch_rhs=[0, 1], contract_lhs=[4], contract_rhs=[3])
    power = softmax(scores * c.head**-0.5 + w(x, "mask").broadcast_like(scores))
    mixed = power.dot_general(v, batch_lhs=[0, 1], batch_rhs=[0, 1], contract_lhs=[4], contract_rhs=[2])
    rows = mixed.reshape([batch, c.heads, time, c.head]).transpose([0, 2, 1, 3]).reshape(x.shape)
    return linear(rows, w(x, f"{name}.o_proj"))


def swiglu(x: Tensor, w: Constants, name: str) -> Tensor:
    """`down(silu(gate(x)) * up(x))`."""
    gate = linear(x, w(x, f"{name}.gate_proj"))
    silu = gate / ((-gate).exp() + 1)
    return linear(silu * linear(x, w(x, f"{name}.up_proj")), w(x, f"{name}.down_proj"))


def blocks(dtype: str = "f32", c: Config = CONFIG) -> Program:
    """The last hidden state of embedded tokens `[2, time, width]`."""
    g, w = Graph(), Constants(weights(c), dtype)
    x = g.input("x", dtype, (2, c.time, c.width))
    for i in range(c.layers):
        name = f"layers.{i}"
        x = x + attention(rms_norm(x, w(x, f"{name}.input_layernorm"), c.epsilon), w, name, c)
        x = x + swiglu(rms_norm(x, w(x, f"{name}.post_attention_layernorm"), c.epsilon), w, name)
    return g.returns(rms_norm(x, w(x, "norm"), c.epsilon).named("hidden"))


PROGRAMS = {"llama": blocks}
