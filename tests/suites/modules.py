"""Layers and functions of torch, each in many configurations: exported, read, run, and held to torch.

The bound is that of the suite of models: 4 times the error of torch's own float32, and 2 units in the last place of the largest
value. What torch itself cannot export is counted as refused. Left out is what torch exports as something else: projections of an
LSTM, smoothed labels, `scatter_reduce` of means.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ptir_tools as ptir
from ptir_tools.core.diagnostics import UsageError
from tests.suites.report import ENGINES, Report
from tests.suites.torch import Unexported, bounds, off, report_of

Make = Callable[[], nn.Module]
Case = tuple[Make, tuple[Tensor, ...]]


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *xs: Tensor) -> Any:
        return self.function(*xs)


def of(function: Callable[..., Any], *inputs: Tensor) -> Case:
    """The case of a function."""
    return lambda: Function(function), inputs


def noise(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers in f32."""
    return torch.from_numpy(np.asarray(np.random.default_rng(seed).standard_normal(shape), np.float32))


def whole(low: int, high: int, *shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
    """Integers."""
    return torch.from_numpy(np.random.default_rng(1).integers(low, high, shape)).to(dtype)


LINE, IMAGE, SPACE = noise(2, 4, 11), noise(2, 4, 7, 8), noise(1, 4, 4, 5, 6)
X, Y, Z = noise(4, 6), noise(4, 6, seed=1), noise(4, 6, seed=2)
BIG = 3 * noise(4, 6, seed=3)
GRID = torch.tanh(noise(2, 5, 6, 2)) * 1.3
SEQUENCE = noise(2, 5, 8)
FLAGS = noise(4, 6, seed=5) > 0
LOWER = torch.tril(torch.ones(5, 5, dtype=torch.bool))


class Recurrent(nn.Module):
    """A recurrent layer: its outputs and last states, with or without first states."""

    def __init__(self, kind: Callable[..., nn.Module], *sizes: int, **options: Any) -> None:
        super().__init__()
        self.layer = kind(*sizes, **options)

    def forward(self, x: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        found = self.layer(x, state[0] if len(state) == 1 else tuple(state)) if state else self.layer(x)
        last = found[1] if isinstance(found[1], tuple) else (found[1],)
        return (found[0], *last)


class Heads(nn.Module):
    """`nn.MultiheadAttention` with masks."""

    def __init__(self, *masks: str, **options: Any) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(8, 2, batch_first=True, **options)
        self.masks = masks

    def forward(self, x: Tensor, *masks: Tensor) -> Any:
        found = self.layer(x, x, x, **dict(zip(self.masks, masks, strict=True)))
        return found if found[1] is not None else found[0]


class Branch(nn.Module):
    """A nested `torch.cond`."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(
            x.sum() > 0, lambda x: torch.cond(x.max() > 1, lambda x: x * 2, lambda x: x - 1, (x,)), lambda x: -x, (x,)
        )


class Repeat(nn.Module):
    """A `while_loop` of torch."""

    def forward(self, x: Tensor) -> Any:
        from torch._higher_order_ops.while_loop import while_loop

        return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 1.5 + 1), (torch.tensor(0), x))


class Bags(nn.Module):
    """`nn.EmbeddingBag` of a mode."""

    def __init__(self, mode: str, offsets: bool) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(10, 4, mode=mode)
        self.offsets = offsets

    def forward(self, x: Tensor) -> Tensor:
        return self.bag(x, torch.tensor([0, 2, 3])) if self.offsets else self.bag(x)


def _interpolations() -> dict[str, Case]:
    made = {}
    for mode, x in (
        ("nearest", LINE),
        ("linear", LINE),
        ("nearest", IMAGE),
        ("bilinear", IMAGE),
        ("bicubic", IMAGE),
        ("area", IMAGE),
        ("nearest-exact", IMAGE),
        ("nearest", SPACE),
        ("trilinear", SPACE),
    ):
        for align in (False, True) if "linear" in mode or "cubic" in mode else (None,):
            for how in ({"scale_factor": 2.0}, {"scale_factor": 0.6}, {"size": tuple(d + 3 for d in x.shape[2:])}):
                name = f"interpolate_{mode}_{x.ndim - 2}d_{align}_{'_'.join(map(str, how.values()))}"
                made[name] = of(lambda x, m=mode, a=align, h=how: F.interpolate(x, mode=m, align_corners=a, **h), x)
    for mode in ("bilinear", "bicubic"):
        made[f"interpolate_{mode}_antialias"] = of(
            lambda x, m=mode: F.interpolate(x, size=(4, 5), mode=m, antialias=True, align_corners=False), IMAGE
        )
    return made


def _convolutions() -> dict[str, Case]:
    made: dict[str, Case] = {}
    for n, x in ((1, LINE), (2, IMAGE), (3, SPACE)):
        conv, transposed = (
            (nn.Conv1d, nn.Conv2d, nn.Conv3d)[n - 1],
            (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[n - 1],
        )
        for options in (
            {"stride": 2, "padding": 1},
            {"groups": 2, "dilation": 2, "padding": 2},
            {"groups": 4, "bias": False, "padding": 1},
            {"padding": "same", "dilation": 2},
            {"padding": 1, "padding_mode": "circular"},
            {"padding": 1, "padding_mode": "reflect"},
            {"padding": 1, "padding_mode": "replicate"},
        ):
            made[f"conv{n}d_{_spelled(options)}"] = (lambda c=conv, o=options: c(4, 8, 3, **o)), (x,)
        for options in (
            {},
            {"stride": 2, "output_padding": 1},
            {"stride": 3, "padding": 1, "output_padding": 2, "groups": 2},
            {"stride": 2, "dilation": 2, "padding": 1, "output_padding": 1},
            {"groups": 4, "bias": False},
        ):
            made[f"conv_transpose{n}d_{_spelled(options)}"] = (lambda c=transposed, o=options: c(4, 8, 3, **o)), (x,)
    return made


def _spelled(options: dict[str, Any]) -> str:
    return "_".join(f"{k}={v}" for k, v in options.items()) or "plain"


def _pools() -> dict[str, Case]:
    made: dict[str, Case] = {}
    for n, x in ((1, LINE), (2, IMAGE), (3, SPACE)):
        maximum = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[n - 1]
        average = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[n - 1]
        adaptive = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)[n - 1]
        largest = (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)[n - 1]
        made |= {
            f"max_pool{n}d": of(lambda x, f=maximum: f(x, 3, 2, 1), x),
            f"max_pool{n}d_ceil": of(lambda x, f=maximum: f(x, 3, 2, ceil_mode=True), x),
            f"max_pool{n}d_dilated": of(lambda x, f=maximum: f(x, 2, 1, 0, 2), x),
            f"max_pool{n}d_indices": of(lambda x, f=maximum: f(x, 2, return_indices=True), x),
            f"avg_pool{n}d": of(lambda x, f=average: f(x, 3, 2, 1), x),
            f"avg_pool{n}d_ceil": of(lambda x, f=average: f(x, 3, 2, 1, ceil_mode=True), x),
            f"avg_pool{n}d_no_pad": of(lambda x, f=average: f(x, 3, 2, 1, count_include_pad=False, ceil_mode=True), x),
            f"adaptive_avg_pool{n}d_1": of(lambda x, f=adaptive: f(x, 1), x),
            f"adaptive_avg_pool{n}d_3": of(lambda x, f=adaptive: f(x, 3), x),
            f"adaptive_max_pool{n}d_1": of(lambda x, f=largest: f(x, 1), x),
            f"adaptive_max_pool{n}d_3": of(lambda x, f=largest: f(x, 3), x),
            f"lp_pool{n}d": of(lambda x, f=(F.lp_pool1d, F.lp_pool2d, F.lp_pool3d)[n - 1]: f(x, 2, 2), x.abs()),
        }
    return made


def _recurrent() -> dict[str, Case]:
    made: dict[str, Case] = {}
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        name = kind.__name__.lower()
        for options in (
            {},
            {"bidirectional": True},
            {"num_layers": 2, "batch_first": True},
            {"bias": False},
            {"num_layers": 2, "bidirectional": True},
        ):
            made[f"{name}_{_spelled(options)}"] = (lambda k=kind, o=options: Recurrent(k, 8, 6, **o)), (SEQUENCE,)
        states = (noise(1, 5, 6), noise(1, 5, 6, seed=1))[: 2 if kind is nn.LSTM else 1]
        made[f"{name}_states"] = (lambda k=kind: Recurrent(k, 8, 6)), (SEQUENCE, *states)
    made["rnn_relu"] = (lambda: Recurrent(nn.RNN, 8, 6, nonlinearity="relu")), (SEQUENCE,)
    made["lstm_cell"] = (lambda: nn.LSTMCell(8, 6)), (noise(3, 8),)
    made["gru_cell"] = (lambda: nn.GRUCell(8, 6)), (noise(3, 8), noise(3, 6))
    return made


def _attention() -> dict[str, Case]:
    made: dict[str, Case] = {
        "heads": ((lambda: Heads()), (SEQUENCE,)),
        "heads_causal": ((lambda: Heads("attn_mask")), (SEQUENCE, ~LOWER)),
        "heads_padding": ((lambda: Heads("key_padding_mask")), (SEQUENCE, whole(0, 2, 2, 5).bool() & torch.arange(5).gt(0))),
        "heads_both": (
            (lambda: Heads("attn_mask", "key_padding_mask")),
            (SEQUENCE, ~LOWER, torch.tensor([[False] * 4 + [True], [False] * 5])),
        ),
        "heads_added": ((lambda: Heads("attn_mask", add_bias_kv=True, add_zero_attn=True)), (SEQUENCE, noise(5, 5))),
        "encoder": ((lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)), (SEQUENCE,)),
        "encoder_first": (
            (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True, activation="gelu")),
            (SEQUENCE,),
        ),
        "decoder": ((lambda: nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)), (SEQUENCE, noise(2, 4, 8))),
        "transformer": ((lambda: nn.Transformer(8, 2, 1, 1, 16, batch_first=True)), (SEQUENCE, noise(2, 4, 8))),
    }
    q, k, v = (noise(2, 4, 5, 8, seed=s) for s in range(3))
    made |= {
        "sdpa_causal": of(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), q, k, v),
        "sdpa_mask": of(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m), q, k, v, LOWER),
        "sdpa_bias_scale": of(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m, scale=0.3), q, k, v, noise(5, 5)),
        "sdpa_grouped": of(
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), q, k[:, :2].clone(), v[:, :2].clone()
        ),
    }
    return made


def _activations() -> dict[str, Case]:
    kinds: dict[str, Make] = {
        "relu": nn.ReLU,
        "relu6": nn.ReLU6,
        "leaky": lambda: nn.LeakyReLU(0.2),
        "prelu": nn.PReLU,
        "elu": lambda: nn.ELU(0.7),
        "selu": nn.SELU,
        "celu": lambda: nn.CELU(0.5),
        "gelu": nn.GELU,
        "gelu_tanh": lambda: nn.GELU("tanh"),
        "silu": nn.SiLU,
        "mish": nn.Mish,
        "softplus": lambda: nn.Softplus(2, 5),
        "softsign": nn.Softsign,
        "softshrink": nn.Softshrink,
        "hardshrink": nn.Hardshrink,
        "tanhshrink": nn.Tanhshrink,
        "threshold": lambda: nn.Threshold(0.1, 20),
        "hardtanh": lambda: nn.Hardtanh(-0.5, 2),
        "hardswish": nn.Hardswish,
        "hardsigmoid": nn.Hardsigmoid,
        "logsigmoid": nn.LogSigmoid,
        "softmin": lambda: nn.Softmin(1),
        "softmax": lambda: nn.Softmax(0),
        "log_softmax": lambda: nn.LogSoftmax(-1),
        "glu": nn.GLU,
        "rrelu": nn.RReLU,
        "sigmoid": nn.Sigmoid,
    }
    return {f"act_{name}": (make, (BIG,)) for name, make in kinds.items()}


def _norms() -> dict[str, Case]:
    return {
        "batch_norm1d": ((lambda: nn.BatchNorm1d(4)), (LINE,)),
        "batch_norm2d_plain": ((lambda: nn.BatchNorm2d(4, affine=False)), (IMAGE,)),
        "batch_norm_no_stats": ((lambda: nn.BatchNorm2d(4, track_running_stats=False)), (IMAGE,)),
        "instance_norm1d": ((lambda: nn.InstanceNorm1d(4)), (LINE,)),
        "instance_norm2d": ((lambda: nn.InstanceNorm2d(4, affine=True)), (IMAGE,)),
        "instance_norm3d": ((lambda: nn.InstanceNorm3d(4)), (SPACE,)),
        "group_norm": ((lambda: nn.GroupNorm(2, 4)), (IMAGE,)),
        "group_norm_plain": ((lambda: nn.GroupNorm(4, 4, affine=False)), (SPACE,)),
        "layer_norm_2": ((lambda: nn.LayerNorm((7, 8))), (IMAGE,)),
        "layer_norm_plain": ((lambda: nn.LayerNorm(8, elementwise_affine=False, eps=1e-3)), (IMAGE,)),
        "rms_norm": ((lambda: nn.RMSNorm(8)), (IMAGE,)),
        "local_response_norm": ((lambda: nn.LocalResponseNorm(3)), (IMAGE,)),
        "normalize": of(lambda x: F.normalize(x, p=2.0, dim=1), IMAGE),
        "normalize_1": of(lambda x: F.normalize(x, p=1.0, dim=0), X),
        "weight_norm": ((lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 3))), (X,)),
    }


def _shapes() -> dict[str, Case]:
    return {
        "pixel_shuffle": of(lambda x: F.pixel_shuffle(x, 2), IMAGE),
        "pixel_unshuffle": of(lambda x: F.pixel_unshuffle(x, 2), noise(1, 3, 4, 6)),
        "channel_shuffle": of(lambda x: nn.ChannelShuffle(2)(x), IMAGE),
        "unfold": of(lambda x: F.unfold(x, (2, 3), dilation=1, padding=1, stride=2), IMAGE),
        "fold": of(lambda x: F.fold(x, (5, 6), (2, 3), stride=1, padding=0), noise(2, 12, 16)),
        "tensor_unfold": of(lambda x: x.unfold(1, 3, 2), X),
        "roll": of(lambda x: (torch.roll(x, 2, 1), torch.roll(x, (1, -2), (0, 1)), torch.roll(x, 3)), X),
        "flip": of(lambda x: (x.flip(0), x.flip(0, 1), x.rot90(1, (0, 1)), x.fliplr()), X),
        "tile_repeat": of(lambda x: (x.repeat(2, 1, 3), torch.tile(x, (2,)), x.repeat_interleave(2, 1)), X),
        "repeat_by_counts": of(lambda x: x.repeat_interleave(torch.tensor([1, 0, 2, 1]), 0), X),
        "pad_modes": of(
            lambda x: (
                F.pad(x, (1, 2)),
                F.pad(x, (1, 2, 0, 1), "reflect"),
                F.pad(x, (2, 1, 1, 1), "replicate"),
                F.pad(x, (1, 2, 1, 0), "circular"),
                F.pad(x, (-1, 2), value=3.0),
            ),
            IMAGE,
        ),
        "stack_cat": of(
            lambda x, y: (torch.stack((x, y), 1), torch.cat((x, y), -1), torch.hstack((x, y)), torch.vstack((x, y))), X, Y
        ),
        "split_chunk": of(lambda x: (*x.split(4, 1), *x.chunk(4, 1), *x.tensor_split(4, 1), *x.unbind(0)), X),
        "squeezes": of(
            lambda x: (x[None].squeeze(0), x.unsqueeze(-1), x[:, None].squeeze(), x.flatten(), x.unflatten(1, (2, 3))), X
        ),
        "moves": of(lambda x: (x.permute(2, 0, 3, 1), x.transpose(1, -1), x.movedim(1, 3), x.swapaxes(0, 2), x.mT), IMAGE),
        "slices": of(lambda x: (x[1:, ::2], x[..., -1], x[:, -3:-1], x[None, 1], x[::3, 1:5:2]), X),
        "narrow_select": of(lambda x: (x.narrow(1, 2, 3), x.select(0, -1), x.diagonal(), x.diagonal(1), torch.diag(x[0])), X),
        "triangles": of(lambda x: (x.tril(), x.triu(1), x.tril(-1), torch.tril(x.bool())), X),
        "expand": of(lambda x: (x[:, None].expand(4, 3, 6), x.expand(2, -1, -1), torch.broadcast_to(x[0], (3, 6))), X),
        "meshgrid": of(lambda x, y: torch.meshgrid(x[0], y[1], indexing="ij"), X, Y),
        "view_as": of(lambda x, y: (x.view(3, 8), x.reshape(-1), x.view_as(y), x.contiguous().view(2, -1)), X, Y),
        "block_diag": of(lambda x, y: (torch.block_diag(x, y), torch.kron(x[:2], y[:2])), X, Y),
        "as_strided": of(lambda x: x.as_strided((3, 3), (6, 1), 1), X),
        "empty_result": of(lambda x: (x[:0], x[:, 6:] + 1), X),
    }


def _indexing() -> dict[str, Case]:
    rows, spots = whole(0, 4, 5), whole(0, 6, 4, 3)
    return {
        "gather": of(lambda x, i: torch.gather(x, 1, i), X, spots),
        "take_along": of(lambda x, i: torch.take_along_dim(x, i, 1), X, spots),
        "index_select": of(lambda x, i: (x.index_select(0, i), x[i], x[:, i]), X, rows),
        "index_pairs": of(lambda x, i: x[i, i + 1], X, rows),
        "index_mixed": of(lambda x, i: (x[:, i, 1:3], x[i, :, i]), noise(6, 6, 6), rows),
        "index_negative": of(lambda x, i: x[-i - 1], X, rows),
        "take": of(lambda x, i: torch.take(x, i), X, whole(0, 24, 3, 2)),
        "scatter": of(lambda x, i, y: x.scatter(1, i, y[:, :3]), X, torch.argsort(noise(4, 6), 1)[:, :3], Y),
        "scatter_value": of(lambda x, i: x.scatter(1, i, 2.5), X, spots),
        "scatter_add": of(lambda x, i, y: x.scatter_add(1, i, y[:, :3]), X, spots, Y),
        "scatter_reduce": of(
            lambda x, i, y: tuple(x.scatter_reduce(1, i, y[:, :3], r) for r in ("sum", "prod", "amax", "amin")), X, spots, Y
        ),
        "index_add": of(lambda x, i, y: x.index_add(0, i, y[:3]), X, whole(0, 4, 3), Y),
        "index_copy": of(lambda x, i, y: x.index_copy(0, i, y[:2]), X, torch.tensor([2, 0]), Y),
        "index_put": of(lambda x, i, y: x.index_put((i,), y[:2]), X, torch.tensor([2, 0]), Y),
        "index_put_add": of(lambda x, i, y: x.index_put((i,), y[:3], accumulate=True), X, torch.tensor([2, 0, 2]), Y),
        "index_fill": of(lambda x, i: x.index_fill(1, i, 9.0), X, torch.tensor([2, 0])),
        "masked_fill": of(lambda x, m: (x.masked_fill(m, -1.0), torch.where(m, x, 0.0), torch.where(m, 1, 0)), X, FLAGS),
        "setitem": of(lambda x, y: _assigned(x, y), X, Y),
        "select_scatter": of(lambda x, y: (x.select_scatter(y[0], 0, 2), x.slice_scatter(y[:, :2], 1, 3, 5)), X, Y),
        "diagonal_scatter": of(lambda x, y: x.diagonal_scatter(y[0, :4]), X, Y),
        "topk": of(lambda x: (*x.topk(3), *x.topk(2, 0, largest=False)), X),
        "sort": of(lambda x: (*x.sort(1), *x.sort(0, descending=True), x.argsort(1)), X),
        "kthvalue_median": of(lambda x: (x.kthvalue(2, 1), x.median(1), x.median()), X),
        "argmax": of(lambda x: (x.argmax(), x.argmax(1), x.argmin(0, True), *x.max(1), *x.min(0)), X),
        "searchsorted": of(lambda x, y: torch.bucketize(y, x.sort(1)[0][0]), X, Y),
        "one_hot": of(lambda i: F.one_hot(i, 5), rows),
        "embedding": ((lambda: nn.Embedding(9, 4, padding_idx=2)), (whole(0, 9, 3, 2),)),
        "bag_sum": ((lambda: Bags("sum", False)), (whole(0, 10, 3, 4),)),
        "bag_mean": ((lambda: Bags("mean", True)), (whole(0, 10, 7),)),
        "bag_max": ((lambda: Bags("max", False)), (whole(0, 10, 3, 4),)),
        "grid_sample": of(lambda x, g: F.grid_sample(x, g, align_corners=False), IMAGE, GRID),
        "grid_sample_nearest": of(lambda x, g: F.grid_sample(x, g, "nearest", "border", True), IMAGE, GRID),
        "grid_sample_cubic": of(lambda x, g: F.grid_sample(x, g, "bicubic", "reflection", False), IMAGE, GRID),
        "affine_grid": of(lambda t: F.affine_grid(t, [2, 3, 4, 5], align_corners=False), noise(2, 2, 3)),
        "pairs": of(lambda x: (torch.combinations(x[0]), torch.cartesian_prod(x[0], x[1, :2]), torch.triu_indices(3, 4)), X),
    }


def _assigned(x: Tensor, y: Tensor) -> Tensor:
    x = x.clone()
    x[1:3, ::2] = y[:2, :3]
    x[0] = 7.0
    x[:, -1] += y[:, 0]
    return x


def _numbers() -> dict[str, Case]:
    positive, small = X.abs() + 0.1, torch.tanh(X)
    n, m = whole(-20, 20, 4, 6), whole(1, 7, 4, 6)
    return {
        "cumulative": of(lambda x: (x.cumsum(1), x.cumsum(0)), X),
        "cumulative_extremes": of(lambda x: (*x.cummax(1), *x.cummin(0)), X),
        "sums": of(lambda x: (x.sum(), x.sum((0, 1), True), x.mean(1), x.prod(1), x.std(), x.var(1, correction=0)), X),
        "std_mean": of(lambda x: (*torch.std_mean(x, 1), *torch.var_mean(x), x.norm(), x.norm(1, 1), x.norm(float("inf"))), X),
        "extremes": of(lambda x: (x.amax(1), x.amin((0, 1)), *x.aminmax(dim=1), x.logsumexp(1), x.nansum(), x.nanmean(0)), X),
        "norms": of(lambda x: (torch.linalg.norm(x), torch.linalg.vector_norm(x, 3, 1), torch.linalg.matrix_norm(x)), X),
        "all_any": of(lambda x: ((x > 0).all(), (x > 1).any(1), (x > 0).sum(), torch.count_nonzero(x, 1)), X),
        "functions": of(lambda x: (x.sin(), x.cos(), x.tan(), x.sinh(), x.cosh(), x.atan(), x.asinh(), x.erf(), x.expm1()), X),
        "inverse_functions": of(lambda x: (x.asin(), x.acos(), x.atanh(), x.abs().add(1).acosh(), x.sinc()), small),
        "logs": of(lambda x: (x.log(), x.log2(), x.log10(), x.log1p(), x.sqrt(), x.rsqrt()), positive),
        "powers": of(lambda x, y: (x.pow(y), x**2, x**-1.5, 2.0**y, x**0.5, torch.float_power(x, 2)), positive, Y),
        "rounding": of(
            lambda x: (x.round(), x.floor(), x.ceil(), x.trunc(), x.frac(), x.sign(), torch.round(x, decimals=1)), BIG
        ),
        "remainders": of(lambda x, y: (x % y, torch.fmod(x, y), x // y, torch.div(x, y, rounding_mode="trunc")), BIG, Y),
        "whole_division": of(lambda n, m: (n // m, n % m, torch.fmod(n, m), torch.div(n, m, rounding_mode="trunc"), n / m), n, m),
        "bits": of(lambda n, m: (n & m, n | m, n ^ m, ~n, n >> 2, n.abs(), -n), n, m),
        "two_arguments": of(
            lambda x, y: (
                torch.atan2(x, y),
                torch.maximum(x, y),
                torch.copysign(x, y),
                torch.logaddexp(x, y),
                torch.lerp(x, y, 0.3),
                torch.xlogy(x.abs(), y.abs()),
                torch.heaviside(x, y),
            ),
            X,
            Y,
        ),
        "addcmul": of(
            lambda x, y, z: (torch.addcmul(x, y, z, value=0.5), torch.addcdiv(x, y, z.abs() + 1), torch.clamp(x, y - 1, y)),
            X,
            Y,
            Z,
        ),
        "clamps": of(lambda x: (x.clamp(-0.5, 0.5), x.clamp(min=0), x.clamp_max(0.2), x.nan_to_num(), x.clip(None, 1)), X),
        "comparisons": of(
            lambda x, y: (x > y, x <= 0.1, x == x, x.isnan(), x.isinf(), x.isfinite(), torch.isclose(x, y, 0.5)), X, Y
        ),
        "logic": of(
            lambda p, x: (p & (x > 0), p | (x > 1), p ^ (x > 0), ~p, torch.logical_not(x), torch.logical_xor(p, x)), FLAGS, X
        ),
        "casts": of(
            lambda x: (x.int(), x.to(torch.int8), x.half(), x.bool(), x.double(), x.long().float(), x.abs().to(torch.uint8)), BIG
        ),
        "cdist": of(
            lambda x, y: (torch.cdist(x, y), torch.cdist(x, y, p=1.0), F.pairwise_distance(x, y), F.cosine_similarity(x, y)), X, Y
        ),
        "polynomials": of(lambda x: (torch.special.entr(x), torch.special.expit(x), torch.special.logit(x / 9, 1e-6)), positive),
        "special": of(lambda x: (torch.special.ndtr(x), torch.erfc(x)), X),
        "creation": of(
            lambda x: (
                torch.zeros_like(x),
                torch.ones(2, 3) + x[0, 0],
                torch.arange(0, 10, 3),
                torch.linspace(0, 1, 5),
                torch.full((2,), 3),
                torch.eye(3),
                torch.empty_like(x).fill_(2),
                torch.logspace(0, 2, 4),
                x.new_zeros(2),
            ),
            X,
        ),
        "histogram": of(lambda n: torch.bincount(n.flatten(), minlength=8)[:7], m),
        "diff_trapezoid": of(
            lambda x: (torch.diff(x), torch.trapezoid(x), torch.cumulative_trapezoid(x), torch.gradient(x, dim=1)[0]), X
        ),
        "quantiles": of(lambda x: (torch.quantile(x, 0.3, 1), torch.nanmedian(x)), X),
        "half": of(lambda x: (x.half() @ x.half().T, x.half().softmax(1), x.half().abs().mean()), X),
        "bfloat": of(lambda x: ((x.bfloat16() @ x.bfloat16().T).float(), x.bfloat16().softmax(1).float()), X),
        "complex": of(
            lambda x, y: (torch.complex(x, y).abs(), torch.view_as_real(torch.complex(x, y) * torch.complex(y, x))), X, Y
        ),
        "fft": of(
            lambda x: (torch.fft.rfft(x).abs(), torch.view_as_real(torch.fft.fft(x)), torch.fft.irfft(torch.fft.rfft(x))), X
        ),
        "stft": of(
            lambda x: torch.view_as_real(torch.stft(x, 16, 4, window=torch.hann_window(16), return_complex=True)), noise(2, 40)
        ),
    }


def _products() -> dict[str, Case]:
    a, b = noise(3, 4, 5), noise(3, 5, 6, seed=1)
    made = {
        "matmuls": of(lambda a, b: (a @ b, torch.bmm(a, b), a @ b[0], a[0] @ b, a[0] @ b[0, :, 0], a[0, 0] @ b[0]), a, b),
        "linear": ((lambda: nn.Linear(5, 7)), (a,)),
        "bilinear": ((lambda: nn.Bilinear(6, 6, 3)), (X, Y)),
        "addmm": of(lambda x, y, z: (torch.addmm(z[:, :4], x, y.T, beta=0.5, alpha=2), torch.addmv(z[:, 0], x, y[0])), X, Y, Z),
        "baddbmm": of(lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5), noise(3, 4, 6), a, b),
        "outer_dot": of(
            lambda x, y: (torch.outer(x[0], y[0]), torch.dot(x[0], y[0]), torch.mv(x, y[0]), torch.inner(x, y)), X, Y
        ),
        "cross": of(lambda x, y: (torch.linalg.cross(x[:, :3], y[:, :3]), torch.trace(x[:, :4])), X, Y),
        "tensordot": of(lambda a, b: (torch.tensordot(a, b, ([0, 2], [0, 1])), torch.tensordot(a, b[:, :4, :5], 3)), a, b),
        "chain": of(lambda x, y: (torch.linalg.multi_dot((x, y.T, x)), torch.matrix_power(x[:, :4], 3)), X, Y),
        "determinant": of(lambda x: torch.det(x[:, :4]), X),
    }
    forms = {
        "ij,jk->ik": (X, Y.T),
        "bij,bjk->bik": (a, b),
        "bij,bjk->ik": (a, b),
        "ij->ji": (X,),
        "ij->": (X,),
        "ii->i": (X[:, :4],),
        "ii": (X[:, :4],),
        "i,j->ij": (X[0], Y[0]),
        "bij,bij->b": (a, a),
        "...ij,...jk->...ik": (a, b),
        "ij,ij,ij->i": (X, Y, Z),
        "bhid,bhjd->bhij": (noise(2, 3, 4, 5), noise(2, 3, 6, 5)),
        "bij->bj": (a,),
        "ijk,kl->ijl": (a, b[0]),
        "i,i": (X[0], Y[0]),
    }
    made |= {f"einsum_{k}": of(lambda *xs, k=k: torch.einsum(k, *xs), *xs) for k, xs in forms.items()}
    return made


def _losses() -> dict[str, Case]:
    labels = whole(0, 6, 4)
    return {
        "cross_entropy": of(lambda x, t: (F.cross_entropy(x, t), F.cross_entropy(x, t, reduction="none")), X, labels),
        "cross_entropy_ignored": of(
            lambda x, t: F.cross_entropy(x, t, weight=torch.arange(6.0, dtype=x.dtype), ignore_index=2), X, labels
        ),
        "nll": of(lambda x, t: F.nll_loss(x.log_softmax(1), t), X, labels),
        "squares": of(
            lambda x, y: (F.mse_loss(x, y), F.l1_loss(x, y), F.smooth_l1_loss(x, y), F.huber_loss(x, y, delta=0.3)), X, Y
        ),
        "binary": of(
            lambda x, y: (F.binary_cross_entropy_with_logits(x, y.sigmoid()), F.binary_cross_entropy(x.sigmoid(), y.sigmoid())),
            X,
            Y,
        ),
        "divergence": of(lambda x, y: F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"), X, Y),
        "margins": of(lambda x, y, z: (F.triplet_margin_loss(x, y, z), F.cosine_embedding_loss(x, y, torch.ones(4))), X, Y, Z),
    }


def _control() -> dict[str, Case]:
    return {
        "cond": (Branch, (X,)),
        "cond_other": (Branch, (-X.abs(),)),
        "while": (Repeat, (X,)),
        "dropout": ((lambda: nn.Sequential(nn.Dropout(0.5), nn.Dropout2d(0.5), nn.AlphaDropout())), (IMAGE,)),
        "upsample": ((lambda: nn.Upsample(scale_factor=2, mode="bilinear")), (IMAGE,)),
        "sequential": (
            (lambda: nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(180, 3))),
            (IMAGE,),
        ),
        "scalar": of(lambda x: x * 2 + 1, torch.tensor(3.0)),
        "same_output_twice": of(lambda x: (x + 1, x, x), X),
        "unused_input": of(lambda x, y: x * math.pi, X, Y),
    }


CASES: dict[str, Case] = {
    **_convolutions(),
    **_pools(),
    **_interpolations(),
    **_recurrent(),
    **_attention(),
    **_activations(),
    **_norms(),
    **_shapes(),
    **_indexing(),
    **_numbers(),
    **_products(),
    **_losses(),
    **_control(),
}


LOOSE = ("remainders",)  # of quotients that are near whole numbers


def exported(module: nn.Module, inputs: tuple[Tensor, ...]) -> Any:
    """The program of a module. Raises Unexported, and Rejected for what is refused."""
    with warnings.catch_warnings(action="ignore"):
        logging.disable(logging.CRITICAL)
        try:
            return ptir.from_torch(module, inputs)
        except UsageError as error:
            raise Unexported(str(error)) from error
        finally:
            logging.disable(logging.NOTSET)


def judged(name: str) -> str:
    """What is wrong with a case; empty when nothing is. Raises Unexported and Rejected."""
    make, inputs = CASES[name]
    torch.manual_seed(0)
    module = make().eval()
    program = exported(module, inputs)
    wanted = bounds(module, inputs)
    if name in LOOSE:
        wanted = [(want, 16 * bound) for want, bound in wanted]
    arrays = [x.numpy() for x in inputs]
    for label, p in (("", program), ("optimized, ", ptir.optimize(program))):
        for engine in ENGINES:
            if wrong := off(ptir.run(p, arrays, engine=engine), wanted):
                return f"{label}{engine}: {wrong}"
    return ""


def run(only: str = "", every: int = 1) -> Report:
    """Judge the cases whose names contain `only`."""
    return report_of("torch modules", [n for n in CASES if only in n][::every], judged)
