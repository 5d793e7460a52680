"""The parts of layers of random networks: choices, weights, linear layers, and ops after a product."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod, sqrt

from ptir_tools.core.choices import Choices
from ptir_tools.core.dtypes import DType
from ptir_tools.core.lazy import np
from ptir_tools.core.typed import TypeVar
from ptir_tools.dialects.ptir.builder.build import Block, Graph, Tensor

T = TypeVar("T")


class Network:
    """A network under construction. Weights of a dtype and shape are made by `weight`; one in five is one that exists."""

    def __init__(self, choices: Choices, dtype: DType) -> None:
        self.choices = choices
        self.dtype = dtype
        self.graph = Graph()
        self.random = np.random.RandomState(choices.number(0, 2**31 - 1))  # NumPy never changes the numbers of a RandomState
        self.is_usual = choices.number(1, 5) <= 2  # every layer in its usual form, which engines fuse
        self.outside = 0 if self.is_usual else choices.one((0, 0, 2, 4))  # how many of four weights are parameters
        self.is_large = choices.number(1, 30) == 1  # sizes at which engines use bands and threads
        self.weights: dict[Block, list[Tensor]] = {}
        self.patches: dict[object, Tensor] = {}  # patches by image and geometry

    # ---- choices

    def one(self, known: Sequence[T]) -> T:
        """One of `known`."""
        return self.choices.one(known)

    def flag(self) -> bool:
        """Yes or no."""
        return self.choices.flag()

    def number(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""
        return self.choices.number(low, high)

    def chance(self, n: int, of: int) -> bool:
        """True `n` times in `of`."""
        return self.number(1, of) <= n

    def usual(self, *known: T) -> T:
        """One of `known`; the first one where every layer has its usual form."""
        return known[0] if self.is_usual else self.one(known)

    # ---- values

    def extent(self, x: Tensor, axis: int) -> int:
        """An extent of `x`, which is static."""
        return x.tensor_type.static_shape[axis]

    def like(self, x: Tensor) -> Tensor | None:
        """Another value of the same block and type, if there is one."""
        region = x.block.region
        found = [v for v in region.values() if v.type is x.type]
        return Tensor(x.block, self.one(found)) if len(found) > 1 else None

    def distinct(self, xs: Iterable[Tensor]) -> list[Tensor]:
        """`xs`, each value once."""
        return [Tensor(self.graph, x) for x in dict.fromkeys(x.operand for x in xs)]

    def weight(self, x: Tensor, *shape: int, about: float = 0.0, dtype: DType | None = None) -> Tensor:
        """A weight in the block of `x`, of its dtype by default: a constant, a parameter, or one that is used before,
        as it is or in another layout."""
        dtype = dtype or x.dtype
        known = self.weights.setdefault(x.block, [])
        if self.chance(1, 5) and (found := self._again(known, shape, dtype)) is not None:
            return found
        if x.block is self.graph and self.chance(self.outside, 4):
            made = self.graph.input("w", dtype, shape)
        else:
            reach = sqrt(3 / max(1, prod(shape[:-1]))) if len(shape) > 1 else 0.5
            made = x.block.constant(self.drawn(shape, reach, about), dtype)
        known.append(made)
        return made

    def drawn(self, shape: Sequence[int], reach: float, about: float = 0.0) -> np.ndarray:
        """Uniform numbers within `reach` of `about`, f32."""
        return (about + reach * (2 * self.random.random_sample(shape) - 1)).astype(np.float32)

    def _again(self, known: Sequence[Tensor], shape: tuple[int, ...], dtype: DType) -> Tensor | None:
        """A known weight of this dtype with as many elements, in this shape."""
        fit = [w for w in known if w.dtype is dtype and prod(w.tensor_type.static_shape) == prod(shape)]
        if not fit:
            return None
        w = self.one(fit)
        if w.shape == shape:
            return w
        turned = w.shape[::-1] == shape or (w.rank == 2 and self.flag())
        w = w.transpose(range(w.rank)[::-1]) if turned and w.rank > 1 else w
        return w if w.shape == shape else w.reshape(shape)

    # ---- what several layers have

    def linear(self, x: Tensor, columns: int) -> Tensor:
        """A product over the last axis of `x`, with the weight in either layout."""
        depth = self.extent(x, -1)
        kind = self.usual("plain", "plain", "turned", "transposed", "flat", "first")
        if kind == "turned":
            return self.scaled(x.dot_general(self.weight(x, columns, depth), contract_lhs=[x.rank - 1], contract_rhs=[1]), depth)
        w = self.weight(x, columns, depth).transpose([1, 0]) if kind == "transposed" else self.weight(x, depth, columns)
        if kind == "first" and x.rank > 1:  # the weights as the left operand
            y = w.dot_general(x, contract_lhs=[0], contract_rhs=[x.rank - 1])
            return self.scaled(y.transpose([*range(1, y.rank), 0]), depth)
        if kind == "flat":
            rows = prod(x.tensor_type.static_shape[:-1])
            return self.scaled((x.reshape([rows, depth]) @ w).reshape([*x.shape[:-1], columns]), depth)
        return self.scaled(x.dot_general(w, contract_lhs=[x.rank - 1], contract_rhs=[0]), depth)

    def scaled(self, x: Tensor, depth: int) -> Tensor:
        """A product of `depth` terms with parameters, smaller again most often."""
        return x * (1 / sqrt(depth)) if self.outside and self.chance(2, 3) else x

    def mean(self, x: Tensor, axes: Iterable[int], keepdims: bool = False) -> Tensor:
        """The mean over some axes."""
        axes = list(axes)
        count = prod(self.extent(x, a) for a in axes)
        total = x.reduce_sum(axes, keepdims=keepdims)
        return total / float(count) if self.flag() else total * (1 / count)

    def ended(self, x: Tensor, most: int = 3) -> Tensor:
        """`x`, a product, with up to `most` of these after it: bias, scale, activations and residuals."""
        if x.rank == 4 and not self.is_usual and self.chance(1, 6):  # as an image [N, C, H, W]
            return self._ended(x.transpose([0, 3, 1, 2]), 1, most).transpose([0, 2, 3, 1])
        return self._ended(x, x.rank - 1, most)

    def _ended(self, x: Tensor, axis: int, most: int) -> Tensor:
        for _ in range(self.number(0, most)):
            x = self.one(ENDINGS[:USUAL] if self.is_usual else ENDINGS)(self, x, axis)
        return x

    def along(self, x: Tensor, axis: int, about: float = 0.0) -> Tensor:
        """A weight for each index of an axis of `x`, spread to its shape."""
        w = self.weight(x, self.extent(x, axis), about=about)
        w = w if axis == x.rank - 1 else w.reshape([x.shape[axis], *[1] * (x.rank - 1 - axis)])
        return w.broadcast_like(x)


USUAL = 6  # of the endings
Layer = Callable[[Network, Tensor], Tensor]
Ending = Callable[[Network, Tensor, int], Tensor]


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return ((-x).exp() + 1).reciprocal()


def softmax(x: Tensor) -> Tensor:
    """Over the last axis."""
    e = (x - x.reduce_max([-1], keepdims=True).broadcast_like(x)).exp()
    return e / e.reduce_sum([-1], keepdims=True).broadcast_like(e)


def _bias(net: Network, x: Tensor, axis: int) -> Tensor:
    b = net.along(x, axis)
    return x + b if net.flag() else b + x


def _normalized(net: Network, x: Tensor, axis: int) -> Tensor:
    """Batch normalization with known statistics."""
    return (x - net.along(x, axis)) * net.along(x, axis, 1.0) + net.along(x, axis)


def _residual(net: Network, x: Tensor, axis: int) -> Tensor:
    if (other := net.like(x)) is None:
        return x
    kind = net.one(("after", "before", "less", "half"))
    if kind == "half":
        return x * 0.5 + other
    return other - x if kind == "less" else x + other if kind == "after" else other + x


def _gelu(net: Network, x: Tensor, axis: int) -> Tensor:
    if net.flag():
        return x * 0.5 * ((x * sqrt(0.5)).erf() + 1)
    return x * 0.5 * (((x + x * x * x * 0.044715) * 0.7978845608028654).tanh() + 1)


def _leaky(net: Network, x: Tensor, axis: int) -> Tensor:
    return (x > 0).select(x, x * 0.125)


def _masked(net: Network, x: Tensor, axis: int) -> Tensor:
    """Elements chosen by a comparison with a threshold of their channel."""
    return (x > net.along(x, axis)).select(x, 0.0)


def _bounded(net: Network, x: Tensor, axis: int) -> Tensor:
    """Between two bounds of each channel."""
    return x.clamp(net.along(x, axis, -2.0), net.along(x, axis, 2.0))


ENDINGS: tuple[Ending, ...] = (
    _bias,
    _bias,
    lambda net, x, axis: x * net.along(x, axis, 1.0),
    lambda net, x, axis: x.maximum(0.0),
    lambda net, x, axis: x.clamp(0.0, 6.0),
    _normalized,
    _residual,
    _residual,
    _gelu,
    _leaky,
    _masked,
    _bounded,
    lambda net, x, axis: x.maximum(0.0),
    lambda net, x, axis: x * sigmoid(x),
    lambda net, x, axis: sigmoid(x),
    lambda net, x, axis: x.tanh(),
    lambda net, x, axis: x * ((x + 3.0).clamp(0.0, 6.0) / 6.0),
    lambda net, x, axis: x / (x * x + 1.0),
    lambda net, x, axis: 1.0 - x,
)
