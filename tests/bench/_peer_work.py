"""What `peers` measures: 27 workloads, each one function on a namespace of array functions that every engine fills in.

A workload has inputs, of which all but the first `given` are weights that an engine may prepare once, and a tolerance relative to
the largest element of the result in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

HEADS, HEAD, WIDTH, WIDE, TOKENS, CACHE, LAYERS = 12, 64, 768, 3072, 512, 512, 12
GROUPS = 4  # of the heads of the Llama block, which has 16, on 1024 features, 256 tokens
LLAMA_HEADS, LLAMA, LLAMA_WIDE, LLAMA_TOKENS = 16, 1024, 2816, 256
GELU = math.sqrt(2 / math.pi)
STEP = 2.0**-12  # scale of the 8-bit network

Arrays = list[np.ndarray[Any, Any]]


class Workload(NamedTuple):
    make: Callable[[np.random.Generator], Arrays]
    given: int
    run: Callable[..., Any]
    tolerance: float


class Numpy:
    """The functions in NumPy, in the dtype of their operands: in float64 they are the reference."""

    def prepared(self, x, is_weight):
        return x

    def add(self, x, y):
        return x + y

    def mul(self, x, y):
        return x * y

    def matmul(self, x, y):
        if x.dtype in (ml_dtypes.bfloat16, np.float16):
            return (x.astype(np.float32) @ y.astype(np.float32)).astype(x.dtype)
        return x @ y

    def linear(self, x, w, b=None):
        y = self.matmul(x, w)
        return y if b is None else self.add(y, b)

    def gelu(self, x):
        return 0.5 * x * (1 + np.tanh(GELU * (x + 0.044715 * (x * x * x))))

    def silu(self, x):
        return x / (1 + np.exp(-x))

    def layer_norm(self, x, g, b):
        d = x - x.mean(-1, keepdims=True)
        return d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5) * g + b

    def rms_norm(self, x, g):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * g

    def softmax(self, x):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def attention(self, q, k, v):
        """Causal; q may have several heads for each of k and v."""
        many = len(q) // len(k)
        s = q.reshape(len(k), many, *q.shape[1:]) @ k.swapaxes(-1, -2)[:, None] * 0.125
        s = np.where(np.tri(s.shape[-1], dtype=bool), s, np.asarray(-1e9, s.dtype))
        return (self.softmax(s) @ v[:, None]).reshape(q.shape)

    def heads(self, x, count):
        return x.reshape(len(x), count, -1).transpose(1, 0, 2)

    def joined(self, x):
        return x.transpose(1, 0, 2).reshape(x.shape[1], -1)

    def rotary(self, x, cos, sin):
        half = x.shape[-1] // 2
        return x * cos + np.concatenate([-x[..., half:], x[..., :half]], -1) * sin

    def columns(self, x, start, count):
        return x[..., start : start + count]

    def cached(self, q, k, v, keys, values):
        """Attention of one token to `keys` and itself; all but the last two are [heads, features]."""
        s = np.concatenate([(keys @ q[:, :, None])[:, :, 0], (q * k).sum(-1, keepdims=True)], -1) * 0.125
        p = self.softmax(s)
        return (p[:, None, :-1] @ values)[:, 0] + p[:, -1:] * v

    def row(self, x, count):
        """[1, count * n] as [count, n]; of 1, back."""
        return x.reshape(count, -1)

    def relu(self, x):
        return np.maximum(x, 0)

    def conv(self, x, w, b=None, stride=1):
        """NHWC and HWIO, half a window of zeros around."""
        kh, kw, channels, out = w.shape
        p = np.pad(x, ((0, 0), (kh // 2, kh // 2), (kw // 2, kw // 2), (0, 0)))
        seen = np.lib.stride_tricks.sliding_window_view(p, (kh, kw), (1, 2))[:, ::stride, ::stride].transpose(0, 1, 2, 4, 5, 3)
        y = self.matmul(seen.reshape(-1, kh * kw * channels), w.reshape(-1, out)).reshape(*seen.shape[:3], out)
        return y if b is None else y + b

    def depthwise(self, x, w, b, stride=1):
        p = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        high, wide = x.shape[1], x.shape[2]
        taps = (p[:, i : i + high : stride, j : j + wide : stride] * w[i, j] for i in range(3) for j in range(3))
        return sum(taps) + b

    def average(self, x):
        """The mean of all pixels, [images, channels]."""
        return x.mean((1, 2), dtype=x.dtype)

    def clip6(self, x):
        return np.clip(x, 0, 6)

    def pool(self, x):
        p = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
        found = p[:, 0:-2:2, 0:-2:2]
        for i in range(3):
            for j in range(3):
                found = np.maximum(found, p[:, i : p.shape[1] - 2 + i : 2, j : p.shape[2] - 2 + j : 2])
        return found

    def take(self, x, i):
        return x[i]

    def sum(self, x, axis):
        return x.sum(axis)

    def transpose(self, x):
        return np.ascontiguousarray(x.T)

    def matmul8(self, x, y):
        work = np.float32 if x.shape[1] <= 1024 else np.float64  # both exact
        return (x.astype(work) @ y.astype(work)).astype(np.int32)

    def steps(self, s, b):
        """The hidden layer of the 8-bit network: with bias, in steps of 2^12, none below 0."""
        return np.clip(np.rint((s + b) * STEP), 0, 127).astype(np.int8)

    def number(self, s, b):
        return ((s + b) * STEP).astype(np.float32)

    def added(self, x, y, times):
        for _ in range(times):
            x = x + y
        return x


def normal(r, *shape, scale=1.0):
    return r.standard_normal(shape, np.float32) * np.float32(scale)


def _layer(r):
    """The weights of a GPT-2 layer: norm, projection to q, k, v, back, norm, and two of the network, each with its bias."""
    norm = [normal(r, WIDTH, scale=0.1) + 1, normal(r, WIDTH, scale=0.1)]
    pairs = [(WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, WIDE), (WIDE, WIDTH)]
    made = [[normal(r, *s, scale=0.02), normal(r, s[1], scale=0.02)] for s in pairs]
    return [*norm, *made[0], *made[1], normal(r, WIDTH, scale=0.1) + 1, normal(r, WIDTH, scale=0.1), *made[2], *made[3]]


def mlp(X, x, w1, b1, w2, b2):
    return X.linear(X.gelu(X.linear(x, w1, b1)), w2, b2)


def block(X, x, g1, c1, wq, bq, wo, bo, g2, c2, *network):
    qkv = X.linear(X.layer_norm(x, g1, c1), wq, bq)
    o = X.attention(*(X.heads(X.columns(qkv, i * WIDTH, WIDTH), HEADS) for i in range(3)))
    x = X.add(x, X.linear(X.joined(o), wo, bo))
    return X.add(x, mlp(X, X.layer_norm(x, g2, c2), *network))


def decode(X, x, *rest):
    caches, weights, (g, c) = rest[: 2 * LAYERS], rest[2 * LAYERS : -2], rest[-2:]
    for i in range(LAYERS):
        g1, c1, wq, bq, wo, bo, g2, c2, *network = weights[12 * i : 12 * i + 12]
        qkv = X.linear(X.layer_norm(x, g1, c1), wq, bq)
        q, k, v = (X.row(X.columns(qkv, j * WIDTH, WIDTH), HEADS) for j in range(3))
        x = X.add(x, X.linear(X.row(X.cached(q, k, v, *caches[2 * i : 2 * i + 2]), 1), wo, bo))
        x = X.add(x, mlp(X, X.layer_norm(x, g2, c2), *network))
    return X.layer_norm(x, g, c)


def _decoding(r):
    caches = [normal(r, HEADS, CACHE, HEAD) for _ in range(2 * LAYERS)]
    weights = [w for _ in range(LAYERS) for w in _layer(r)]
    return [normal(r, 1, WIDTH), *caches, *weights, normal(r, WIDTH, scale=0.1) + 1, normal(r, WIDTH, scale=0.1)]


def llama(X, x, n1, wq, wk, wv, wo, n2, gate, up, down, cos, sin):
    n = X.rms_norm(x, n1)
    q, k = (X.rotary(X.heads(X.linear(n, w), c), cos, sin) for w, c in ((wq, LLAMA_HEADS), (wk, GROUPS)))
    x = X.add(x, X.linear(X.joined(X.attention(q, k, X.heads(X.linear(n, wv), GROUPS))), wo))
    n = X.rms_norm(x, n2)
    return X.add(x, X.linear(X.mul(X.silu(X.linear(n, gate)), X.linear(n, up)), down))


def _llama(r):
    shapes = [(LLAMA, LLAMA), (LLAMA, GROUPS * 64), (LLAMA, GROUPS * 64), (LLAMA, LLAMA)]
    wide = [(LLAMA, LLAMA_WIDE), (LLAMA, LLAMA_WIDE), (LLAMA_WIDE, LLAMA)]
    angle = np.tile(np.arange(LLAMA_TOKENS)[:, None] * 10000.0 ** -(np.arange(32) / 32), 2)
    made = [[normal(r, LLAMA, scale=0.1) + 1, *(normal(r, *s, scale=0.03) for s in part)] for part in (shapes, wide)]
    return [
        normal(r, LLAMA_TOKENS, LLAMA),
        *made[0],
        *made[1],
        np.cos(angle).astype(np.float32),
        np.sin(angle).astype(np.float32),
    ]


def bottleneck(X, x, w1, b1, w2, b2, w3, b3):
    y = X.relu(X.conv(X.relu(X.conv(x, w1, b1)), w2, b2))
    return X.relu(X.add(X.conv(y, w3, b3), x))


def _bottleneck(r):
    weights = {(1, 1, 256, 64): 0.06, (3, 3, 64, 64): 0.05, (1, 1, 64, 256): 0.1}
    made = [x for s, k in weights.items() for x in (normal(r, *s, scale=k), normal(r, s[-1], scale=0.1))]
    return [normal(r, 1, 56, 56, 256), *made]


def mobilenet(X, x, w1, b1, w2, b2, w3, b3):
    return X.add(x, X.conv(X.clip6(X.depthwise(X.clip6(X.conv(x, w1, b1)), w2, b2)), w3, b3))


def _mobilenet(r):
    weights = {(1, 1, 24, 144): 0.2, (3, 3, 144): 0.3, (1, 1, 144, 24): 0.1}
    made = [x for s, k in weights.items() for x in (normal(r, *s, scale=k), normal(r, s[-1], scale=0.1))]
    return [normal(r, 1, 56, 56, 24), *made]


def gpt2(X, x, *weights):
    """All layers, and the last norm."""
    for i in range(LAYERS):
        x = block(X, x, *weights[12 * i : 12 * i + 12])
    return X.layer_norm(x, *weights[-2:])


def _gpt2(r):
    weights = [w for _ in range(LAYERS) for w in _layer(r)]
    return [normal(r, TOKENS, WIDTH), *weights, normal(r, WIDTH, scale=0.1) + 1, normal(r, WIDTH, scale=0.1)]


# Of ResNet-50: blocks, channels inside, stride of the first block of a stage. Of MobileNetV2: factor, channels, blocks, stride.
STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))
INVERTED = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
IMAGE, CLASSES = 224, 1000


def resnet50(X, x, *weights):
    w = iter(weights)

    def conv(x, stride=1):
        return X.conv(x, next(w), next(w), stride)

    x = X.pool(X.relu(conv(x, 2)))
    for blocks, _, first in STAGES:
        for i in range(blocks):
            y = conv(X.relu(conv(X.relu(conv(x)), first if i == 0 else 1)))
            x = X.relu(X.add(y, conv(x, first) if i == 0 else x))
    return X.linear(X.average(x), next(w), next(w))


def _filter(r, size, channels, out):
    """A filter and its bias, so scaled that activations keep their size."""
    return [normal(r, size, size, channels, out, scale=(2 / (size * size * channels)) ** 0.5), normal(r, out, scale=0.1)]


def _resnet50(r):
    made, channels = [normal(r, 1, IMAGE, IMAGE, 3), *_filter(r, 7, 3, 64)], 64
    for blocks, inside, _ in STAGES:
        for i in range(blocks):
            made += [*_filter(r, 1, channels, inside), *_filter(r, 3, inside, inside), *_filter(r, 1, inside, 4 * inside)]
            made += _filter(r, 1, channels, 4 * inside) if i == 0 else []
            channels = 4 * inside
    return [*made, normal(r, channels, CLASSES, scale=0.02), normal(r, CLASSES)]


def mobilenet2(X, x, *weights):
    w = iter(weights)
    x = X.clip6(X.conv(x, next(w), next(w), 2))
    for factor, _, blocks, first in INVERTED:
        for i in range(blocks):
            y = X.clip6(X.conv(x, next(w), next(w))) if factor > 1 else x
            y = X.clip6(X.depthwise(y, next(w), next(w), first if i == 0 else 1))
            y = X.conv(y, next(w), next(w))
            x = y if i == 0 else X.add(x, y)
    return X.linear(X.average(X.clip6(X.conv(x, next(w), next(w)))), next(w), next(w))


def _mobilenet2(r):
    made, channels = [normal(r, 1, IMAGE, IMAGE, 3), *_filter(r, 3, 3, 32)], 32
    for factor, out, blocks, _ in INVERTED:
        for _ in range(blocks):
            wide = channels * factor
            made += _filter(r, 1, channels, wide) if factor > 1 else []
            made += [normal(r, 3, 3, wide, scale=0.4), normal(r, wide, scale=0.1), *_filter(r, 1, wide, out)]
            channels = out
    return [*made, *_filter(r, 1, channels, 1280), normal(r, 1280, CLASSES, scale=0.03), normal(r, CLASSES)]


def network8(X, x, w1, b1, w2, b2):
    return X.number(X.matmul8(X.steps(X.matmul8(x, w1), b1), w2), b2)


def _network8(r):
    def bytes_(*shape):
        return r.integers(-127, 128, shape, np.int8)

    biases = [r.integers(-1000, 1000, n, np.int32) for n in (WIDE, WIDTH)]
    return [bytes_(256, WIDTH), bytes_(WIDTH, WIDE), biases[0], bytes_(WIDE, WIDTH), biases[1]]


def _pair(n, dtype=np.float32):
    return lambda r: [normal(r, n, n).astype(dtype) for _ in range(2)]


def _product(X, x, y):
    return X.matmul(x, y)


WORKLOADS = {
    **{f"gemm{n}": Workload(_pair(n), 2, _product, 1e-5) for n in (256, 512, 1024)},
    "gemm_bf16": Workload(_pair(512, ml_dtypes.bfloat16), 2, _product, 1e-2),
    "gemm_f16": Workload(_pair(512, np.float16), 2, _product, 1e-3),
    "gemm_i8": Workload(
        lambda r: [r.integers(-127, 128, (512, 512), np.int8) for _ in range(2)], 2, lambda X, x, y: X.matmul8(x, y), 0
    ),
    "add4M": Workload(lambda r: [normal(r, 4 << 20), normal(r, 4 << 20)], 2, lambda X, x, y: X.add(x, y), 1e-6),
    "gelu4M": Workload(lambda r: [normal(r, 4 << 20)], 1, lambda X, x: X.gelu(x), 1e-4),
    "layernorm": Workload(
        lambda r: [normal(r, 2048, WIDTH), normal(r, WIDTH) + 1, normal(r, WIDTH)], 1, lambda X, *a: X.layer_norm(*a), 1e-4
    ),
    "softmax": Workload(lambda r: [normal(r, 2048, 2048, scale=2)], 1, lambda X, x: X.softmax(x), 1e-4),
    "attention": Workload(
        lambda r: [normal(r, HEADS, TOKENS, HEAD) for _ in range(3)], 3, lambda X, *a: X.attention(*a), 1e-4
    ),
    "mlp": Workload(lambda r: [normal(r, TOKENS, WIDTH), *_layer(r)[8:]], 1, mlp, 1e-4),
    "block": Workload(lambda r: [normal(r, TOKENS, WIDTH), *_layer(r)], 1, block, 1e-4),
    "decode": Workload(_decoding, 1 + 2 * LAYERS, decode, 1e-4),
    "conv3x3": Workload(
        lambda r: [normal(r, 1, 56, 56, 64), normal(r, 3, 3, 64, 64, scale=0.05)], 1, lambda X, x, w: X.conv(x, w), 1e-4
    ),
    "bottleneck": Workload(_bottleneck, 1, bottleneck, 1e-4),
    "maxpool": Workload(lambda r: [normal(r, 1, 112, 112, 64)], 1, lambda X, x: X.pool(x), 0),
    "embed": Workload(
        lambda r: [r.integers(0, 50257, 2048, np.int32), normal(r, 50257, WIDTH)], 1, lambda X, i, x: X.take(x, i), 0
    ),
    "sumrows": Workload(lambda r: [normal(r, 4096, 4096)], 1, lambda X, x: X.sum(x, 1), 1e-4),
    "sumcols": Workload(lambda r: [normal(r, 4096, 4096)], 1, lambda X, x: X.sum(x, 0), 1e-4),
    "transpose": Workload(lambda r: [normal(r, 4096, 4096)], 1, lambda X, x: X.transpose(x), 0),
    "tiny1000": Workload(lambda r: [normal(r, 16), normal(r, 16, scale=0.001)], 2, lambda X, x, y: X.added(x, y, 1000), 1e-4),
    "llama": Workload(_llama, 1, llama, 1e-4),
    "dw3x3": Workload(
        lambda r: [normal(r, 1, 56, 56, 144), normal(r, 3, 3, 144, scale=0.3), normal(r, 144)],
        1,
        lambda X, *a: X.clip6(X.depthwise(*a)),
        1e-4,
    ),
    "mbv2": Workload(_mobilenet, 1, mobilenet, 1e-4),
    "i8mlp": Workload(_network8, 1, network8, 1e-6),
    "decode_bf16": Workload(lambda r: [x.astype(ml_dtypes.bfloat16) for x in _decoding(r)], 1 + 2 * LAYERS, decode, 5e-2),
    "gpt2": Workload(_gpt2, 1, gpt2, 1e-3),
    "resnet50": Workload(_resnet50, 1, resnet50, 1e-3),
    "mobilenet2": Workload(_mobilenet2, 1, mobilenet2, 1e-3),
}  # fmt: skip

# What people run: the block and all layers of GPT-2, a step of decoding, a Llama block, two networks on images, an 8-bit network.
MODELS = ("block", "gpt2", "decode", "llama", "resnet50", "mobilenet2", "i8mlp")


class Counting(Numpy):
    """Counts the multiplications and additions of products; their results are zeros."""

    def __init__(self):
        self.operations = 0

    def product(self, batch, m, k, n, dtype):
        self.operations += 2 * batch * m * k * n
        return np.broadcast_to(np.zeros((), dtype), (batch, m, n))

    def matmul(self, x, y):
        return self.product(1, *x.shape, y.shape[1], x.dtype)[0]

    def matmul8(self, x, y):
        return self.product(1, *x.shape, y.shape[1], np.int32)[0]

    def attention(self, q, k, v):
        """Half of the scores are masked."""
        self.operations += 2 * len(q) * q.shape[1] ** 2 * q.shape[2]
        return np.zeros_like(q)

    def cached(self, q, k, v, keys, values):
        self.operations += 4 * keys.size
        return np.zeros_like(q)

    def depthwise(self, x, w, b, stride=1):
        y = np.zeros((len(x), -(-x.shape[1] // stride), -(-x.shape[2] // stride), x.shape[3]), x.dtype)
        self.operations += 2 * y.size * 9
        return y


def needs(name: str) -> tuple[int, int]:
    """The operations of all products of a workload, and the bytes that it reads and writes at least.

    Of a table only the rows that are taken count.
    """
    given, counting = inputs(name), Counting()
    result = WORKLOADS[name].run(counting, *given)
    read = given[:1] if name == "embed" else given
    return counting.operations, sum(x.nbytes for x in read) + np.asarray(result).nbytes * (2 if name == "embed" else 1)


def inputs(name: str) -> Arrays:
    """The same in every process."""
    return WORKLOADS[name].make(np.random.default_rng(list(WORKLOADS).index(name)))


def reference(name: str) -> np.ndarray[Any, Any]:
    """The result in float64; of integers exact."""
    wide = [x if x.dtype.kind in "iu" else x.astype(np.float64) for x in inputs(name)]
    return np.asarray(WORKLOADS[name].run(Numpy(), *wide), np.float64)
