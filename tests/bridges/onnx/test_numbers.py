"""Windows, statistics and scales of ONNX, held to sums that are written out: of integers, so that they are exact."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

import ptir_tools as ptir
from tests.bridges.onnx.test_import import ENGINES, model, node

seeds = pytest.mark.parametrize("seed", range(24))


def results(op: str, given: dict[str, np.ndarray], outputs: str, opset: int = 21, **attrs: Any) -> list[list[np.ndarray]]:
    """The results of one node on every engine."""
    dtypes = {np.dtype(np.float32): 1, np.dtype(np.uint8): 2, np.dtype(np.int8): 3}
    inputs = {k: (dtypes[v.dtype], list(v.shape)) for k, v in given.items()}
    program = ptir.from_onnx(model([node(op, " ".join(given), outputs, **attrs)], inputs, outputs.split(), opset=opset))
    return [[*ptir.run(program, given, engine=engine).values()] for engine in ENGINES]


def drawn(rng: np.random.Generator, shape: Sequence[int]) -> np.ndarray:
    return rng.integers(-9, 10, shape).astype(np.float32)


class Geometry:
    """Random windows on one or two axes."""

    def __init__(self, rng: np.random.Generator) -> None:
        n = int(rng.integers(1, 3))

        def one(low: int, high: int) -> list[int]:
            return [int(i) for i in rng.integers(low, high, n)]

        self.extents, self.kernel, self.strides, self.dilations = one(4, 11), one(1, 5), one(1, 5), one(1, 3)
        self.spans = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]
        self.extents = [max(e, s) for e, s in zip(self.extents, self.spans, strict=True)]
        self.begin, self.end = ([int(rng.integers(0, k)) for k in self.kernel] for _ in range(2))
        self.begin = [min(b, s - 1) for b, s in zip(self.begin, self.spans, strict=True)]
        self.attrs = {
            "kernel_shape": self.kernel, "strides": self.strides, "dilations": self.dilations, "pads": self.begin + self.end,
        }  # fmt: skip

    def counts(self, rounds_up: bool) -> list[int]:
        """How many windows there are: one that begins behind the input and the padding before it is none."""
        found = []
        for e, b, f, span, s in zip(self.extents, self.begin, self.end, self.spans, self.strides, strict=True):
            starts = range(0, e + b + f - span + (s if rounds_up else 1), s)
            found.append(len([at for at in starts if at <= e + b + f - span or at < e + b]))
        return found

    def places(self, at: Sequence[int]) -> list[tuple[int, ...]]:
        """The elements of a window, those in the padding or behind it, too."""
        ranges = [
            [i * s - b + k * d for k in range(n)]
            for i, s, b, n, d in zip(at, self.strides, self.begin, self.kernel, self.dilations, strict=True)
        ]
        return [*product(*ranges)]

    def inside(self, place: tuple[int, ...], with_padding: bool = False) -> bool:
        edges = zip(place, self.extents, self.begin, self.end, strict=True)
        return all((-b if with_padding else 0) <= p < e + (f if with_padding else 0) for p, e, b, f in edges)


@seeds
@pytest.mark.parametrize("rounds_up", [0, 1])
def test_pools(seed: int, rounds_up: int) -> None:
    rng = np.random.default_rng(seed)
    g, include = Geometry(rng), int(rng.integers(2))
    x = drawn(rng, (1, 2, *g.extents))
    shape = (1, 2, *g.counts(bool(rounds_up)))
    most, mean = np.empty(shape), np.empty(shape)
    for channel in range(2):
        for at in np.ndindex(*shape[2:]):
            places = g.places(at)
            seen = [float(x[(0, channel, *p)]) for p in places if g.inside(p)]
            most[(0, channel, *at)] = max(seen, default=-np.inf)
            count = sum(g.inside(p, True) for p in places) if include else len(seen)
            mean[(0, channel, *at)] = sum(seen) / count if count else np.nan
    for (found,) in results("MaxPool", {"x": x}, "y", ceil_mode=rounds_up, **g.attrs):
        np.testing.assert_array_equal(found, most)
    if np.isnan(mean).any():  # a window of padding alone has no mean
        return
    for (found,) in results("AveragePool", {"x": x}, "y", ceil_mode=rounds_up, count_include_pad=include, **g.attrs):
        np.testing.assert_allclose(found, mean, rtol=1e-6)


@seeds
@pytest.mark.parametrize("mode", ["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"])
def test_transposed_convolutions(seed: int, mode: str) -> None:
    """Each element is spread over its window; then the padding is cut off."""
    rng = np.random.default_rng(seed)
    g, groups = Geometry(rng), int(rng.integers(1, 3))
    if mode.startswith("SAME"):  # else the result would be longer than what is spread
        g.strides = [min(s, n) for s, n in zip(g.strides, g.spans, strict=True)]
    x, w = drawn(rng, (1, 2 * groups, *g.extents)), drawn(rng, (2 * groups, 3, *g.kernel))
    extra = [int(rng.integers(0, s)) for s in g.strides]
    whole = [s * (e - 1) + n + p for s, e, n, p in zip(g.strides, g.extents, g.spans, extra, strict=True)]
    sums = np.zeros((1, 3 * groups, *whole))
    for channel, made, at in product(range(2 * groups), range(3), np.ndindex(*g.extents)):
        for tap in np.ndindex(*g.kernel):
            place = tuple(i * s + k * d for i, s, k, d in zip(at, g.strides, tap, g.dilations, strict=True))
            sums[(0, channel // 2 * 3 + made, *place)] += float(x[(0, channel, *at)]) * float(w[(channel, made, *tap)])
    attrs = {"strides": g.strides, "dilations": g.dilations, "group": groups, "output_padding": extra}
    begin, end = [0] * len(whole), [0] * len(whole)
    if mode != "VALID" and rng.integers(3) == 0:  # zeros follow where more is asked for
        shape = attrs["output_shape"] = [max(1, n + int(rng.integers(-2, 3))) for n in whole]
        totals = [max(n - d, 0) for n, d in zip(whole, shape, strict=True)]
        less, more = [t // 2 for t in totals], [t - t // 2 for t in totals]
        begin, end = (less, more) if mode == "SAME_UPPER" else (more, less)
        longer = [max(d - n, 0) for n, d in zip(whole, shape, strict=True)]
        sums = np.pad(sums, [(0, 0), (0, 0), *((0, d) for d in longer)])
        whole = [n + d for n, d in zip(whole, longer, strict=True)]
    elif mode == "NOTSET":
        begin, end = ([int(rng.integers(0, max(1, n // 2))) for n in whole] for _ in range(2))
        attrs["pads"] = begin + end
    elif mode != "VALID":
        totals = [n - s * e for n, s, e in zip(whole, g.strides, g.extents, strict=True)]
        less, more = [t // 2 for t in totals], [t - t // 2 for t in totals]
        begin, end = (less, more) if mode == "SAME_UPPER" else (more, less)
    wanted = sums[(..., *(slice(b, n - e) for b, n, e in zip(begin, whole, end, strict=True)))]
    if 0 in wanted.shape:
        return
    for (found,) in results("ConvTranspose", {"x": x, "w": w}, "y", auto_pad=mode, **attrs):
        np.testing.assert_array_equal(found, wanted)


@seeds
def test_running_statistics(seed: int) -> None:
    """Those of the batch move the given ones by one minus momentum; the batch is normalized by its own."""
    rng = np.random.default_rng(seed)
    channels, momentum, epsilon = (
        int(rng.integers(1, 4)),
        float(rng.choice([0.9, 0.25, 0.0, 1.0])),
        float(rng.choice([1e-5, 0.5])),
    )
    x = (rng.standard_normal((3, channels, 5)[: int(rng.integers(2, 4))]) * 3 + 1).astype(np.float32)
    scale, bias, mean, variance = (rng.uniform(0.5, 3, channels).astype(np.float32) for _ in range(4))
    given = {"x": x, "scale": scale, "bias": bias, "mean": mean, "variance": variance}
    own = np.moveaxis(x.astype(float), 1, 0).reshape(channels, -1)
    by = (slice(None), *[None] * (x.ndim - 2))
    centers, spreads = own.mean(1), own.var(1)
    normal = (x - centers[by]) / np.sqrt(spreads[by] + epsilon) * scale[by] + bias[by]
    moved = [old * momentum + new * (1 - momentum) for old, new in ((mean, centers), (variance, spreads))]
    attrs = {"momentum": momentum, "epsilon": epsilon}
    for found in results("BatchNormalization", given, "y m v", training_mode=1, **attrs):
        for y, want in zip(found, (normal, *moved), strict=True):
            np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)
    still = (x - mean[by]) / np.sqrt(variance[by].astype(float) + epsilon) * scale[by] + bias[by]
    for (y,) in results("BatchNormalization", given, "y", **attrs):
        np.testing.assert_allclose(y, still, rtol=1e-4, atol=1e-5)


@seeds
@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_scales_of_blocks(seed: int, kind: Any) -> None:
    """Each block along an axis has a scale and a zero point of its own; the last one may be cut."""
    rng = np.random.default_rng(seed)
    shape = [int(i) for i in rng.integers(2, 8, rng.integers(2, 4))]
    axis, block = int(rng.integers(len(shape))), int(rng.integers(1, 5))
    blocks = [-(-n // block) if i == axis else n for i, n in enumerate(shape)]
    scale = (2.0 ** rng.integers(-2, 3, blocks)).astype(np.float32)
    ends = np.iinfo(kind)
    zero = rng.integers(0, 9, blocks).astype(kind)
    x = rng.integers(-60, 61, shape).astype(np.float32)
    bytes_ = rng.integers(ends.min, ends.max + 1, shape).astype(kind)
    whole, back = np.empty(shape), np.empty(shape)
    for at in np.ndindex(*shape):
        own = tuple(i // block if a == axis else i for a, i in enumerate(at))
        whole[at] = min(max(round(float(x[at]) / float(scale[own])) + int(zero[own]), ends.min), ends.max)
        back[at] = (int(bytes_[at]) - int(zero[own])) * float(scale[own])
    for (found,) in results("QuantizeLinear", {"x": x, "s": scale, "z": zero}, "y", axis=axis, block_size=block):
        np.testing.assert_array_equal(found, whole)
    for (found,) in results("DequantizeLinear", {"x": bytes_, "s": scale, "z": zero}, "y", axis=axis, block_size=block):
        np.testing.assert_array_equal(found, back)
