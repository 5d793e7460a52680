"""What the models share: seeded weights, and layers spelled out in PTIR."""

from __future__ import annotations

import numpy as np

from ptir_tools import Tensor


class Weights:
    """Parameters by name, seeded, in f32."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.RandomState(seed)  # whose stream is frozen
        self.arrays: dict[str, np.ndarray] = {}

    def add(self, name: str, *shape: int, within: float | None = None, about: float = 0.0) -> None:
        """Uniform numbers `within` so much of `about`; by default what keeps the variance through a product."""
        reach = (3.0 / shape[0]) ** 0.5 if within is None else within
        self.arrays[name] = (about + reach * (2 * self.random.random_sample(shape) - 1)).astype(np.float32)


class Constants:
    """Parameters as constants of `dtype`, each made once in every block that uses it."""

    def __init__(self, arrays: dict[str, np.ndarray], dtype: str) -> None:
        self.arrays, self.dtype = arrays, dtype
        self.made: dict[object, Tensor] = {}

    def __call__(self, beside: Tensor, name: str) -> Tensor:
        """The parameter `name` in the block of `beside`."""
        key = (beside.block, name)
        if key not in self.made:
            self.made[key] = beside.block.constant(self.arrays[name], self.dtype).named(name)
        return self.made[key]


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x @ weight + bias` over the last axis of `x`."""
    y = x.dot_general(weight, contract_lhs=[x.rank - 1], contract_rhs=[0])
    return y if bias is None else y + bias.broadcast_like(y)


def softmax(x: Tensor) -> Tensor:
    """The contract's stable form, over the last axis."""
    e = (x - x.reduce_max([-1], keepdims=True).broadcast_like(x)).exp()
    return e / e.reduce_sum([-1], keepdims=True).broadcast_like(e)


def causal(scores: Tensor) -> Tensor:
    """Scores `[…, query, key]`, -inf where the key comes after the query."""
    query, key = (scores.block.iota(scores.shape[-2:], "si32", axis) for axis in (0, 1))
    return (key <= query).broadcast_like(scores).select(scores, float("-inf"))
