"""Real models of PyTorch with random weights: exported, read, optimized, run, and held to torch.

Each is small, and has the blocks of the model that it is called after. An output may be off from torch's float64 by 4 times as
much as torch's own float32, and 2 units in the last place of its largest value. What is not a float is equal.
"""

from __future__ import annotations

import logging
import math
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ptir_tools as ptir
from ptir_tools.core.diagnostics import UsageError
from tests.suites.report import ENGINES, Report

Inputs = tuple[Tensor, ...]
Case = tuple[Callable[[], nn.Module], Inputs]


def _image(channels: int, size: int, batch: int = 1) -> Tensor:
    return torch.from_numpy(np.random.default_rng(size).standard_normal((batch, channels, size, size)).astype(np.float32))


def _noise(*shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32))


def _tokens(batch: int, time: int, words: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(time).integers(0, words, (batch, time)))


# ---- transformers


def _heads(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


class Attention(nn.Module):
    """Of several heads, of one sequence to itself or to another."""

    def __init__(self, width: int, heads: int, bias: bool = True, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=bias) for _ in range(4))

    def forward(self, x: Tensor, other: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        other = x if other is None else other
        q, k, v = _heads(self.q(x), self.heads), _heads(self.k(other), self.heads), _heads(self.v(other), self.heads)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.causal)
        return self.o(mixed.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """Attention and two products, each with its norm before (GPT-2, ViT, Whisper) or after it (BERT), and attention to another
    sequence when there is one."""

    def __init__(self, width: int, heads: int, first: bool = True, causal: bool = False, cross: bool = False) -> None:
        super().__init__()
        self.first = first
        self.attention = Attention(width, heads, causal=causal)
        self.cross = Attention(width, heads) if cross else None
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, other: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        if not self.first:
            x = self.norms[0](x + self.attention(x, mask=mask))
            return self.norms[1](x + self.down(F.gelu(self.up(x))))
        x = x + self.attention(self.norms[0](x), mask=mask)
        if self.cross is not None:
            x = x + self.cross(self.norms[2](x), other)
        return x + self.down(F.gelu(self.up(self.norms[1](x)), approximate="tanh"))


class Gpt2(nn.Module):
    """Tokens to logits."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(96, 48), nn.Embedding(32, 48)
        self.layers = nn.ModuleList(Layer(48, 4, causal=True) for _ in range(3))
        self.norm = nn.LayerNorm(48)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.norm(x) @ self.words.weight.T


class Bert(nn.Module):
    """Tokens, their segments and a mask of padding to states and a pooled one."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places, self.segments = nn.Embedding(96, 48), nn.Embedding(32, 48), nn.Embedding(2, 48)
        self.norm, self.pool = nn.LayerNorm(48), nn.Linear(48, 48)
        self.layers = nn.ModuleList(Layer(48, 4, first=False) for _ in range(3))

    def forward(self, tokens: Tensor, segments: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        x = self.norm(self.words(tokens) + self.places(torch.arange(tokens.shape[1])) + self.segments(segments))
        mask = real.bool()[:, None, None, :]
        for layer in self.layers:
            x = layer(x, mask=mask)
        return x, torch.tanh(self.pool(x[:, 0]))


class RmsNorm(nn.Module):
    """Without a mean."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class RotaryAttention(nn.Module):
    """Rotary positions; every key and value serves several queries."""

    def __init__(self, width: int, heads: int, shared: int) -> None:
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, shared * self.size, bias=False) for _ in range(2))
        self.o = nn.Linear(width, width, bias=False)

    def _turned(self, x: Tensor) -> Tensor:
        steps = torch.arange(0, self.size, 2, dtype=x.dtype) / self.size
        angle = torch.arange(x.shape[2], dtype=x.dtype)[:, None] / 10000**steps
        angle = torch.cat([angle, angle], -1)
        a, b = x.chunk(2, -1)
        return x * angle.cos() + torch.cat([-b, a], -1) * angle.sin()

    def forward(self, x: Tensor) -> Tensor:
        q, k = self._turned(_heads(self.q(x), self.heads)), self._turned(_heads(self.k(x), self.shared))
        k, v = (t.repeat_interleave(self.heads // self.shared, 1) for t in (k, _heads(self.v(x), self.shared)))
        return self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Gated(nn.Module):
    """Two products, one of which is a gate."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    """Two of four experts for every token, by the router's weights: as Mixtral."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, 4, bias=False)
        self.experts = nn.ModuleList(Gated(width, inner) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        best, at = self.router(x).softmax(-1).topk(2, -1)
        share = torch.zeros_like(self.router(x)).scatter(-1, at, best / best.sum(-1, keepdim=True))
        return torch.stack([e(x) * share[..., i : i + 1] for i, e in enumerate(self.experts)]).sum(0)


class Llama(nn.Module):
    """Tokens to logits, with gated products or with experts."""

    def __init__(self, experts: bool = False) -> None:
        super().__init__()
        self.words = nn.Embedding(96, 48)
        self.attentions = nn.ModuleList(RotaryAttention(48, 6, 2) for _ in range(2))
        self.products = nn.ModuleList(Experts(48, 96) if experts else Gated(48, 128) for _ in range(2))
        self.norms = nn.ModuleList(RmsNorm(48) for _ in range(5))
        self.head = nn.Linear(48, 96, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        for i, (attention, product) in enumerate(zip(self.attentions, self.products, strict=True)):
            x = x + attention(self.norms[2 * i](x))
            x = x + product(self.norms[2 * i + 1](x))
        return self.head(self.norms[-1](x))


class T5(nn.Module):
    """An encoder and a decoder with relative positions in buckets."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.near = nn.Embedding(96, 32), nn.Embedding(8, 4)
        self.encoder, self.decoder = (
            nn.ModuleList(nn.ModuleList([Attention(32, 4, bias=False), Attention(32, 4, bias=False)]) for _ in range(2))
            for _ in range(2)
        )
        self.products = nn.ModuleList(
            nn.Sequential(nn.Linear(32, 64, bias=False), nn.ReLU(), nn.Linear(64, 32, bias=False)) for _ in range(4)
        )
        self.norms = nn.ModuleList(RmsNorm(32) for _ in range(10))

    def _places(self, n: int, causal: bool) -> Tensor:
        gap = torch.arange(n)[None, :] - torch.arange(n)[:, None]
        far = 4 + (torch.log(gap.abs().clamp(min=1).float() / 4) / math.log(4) * 4).long().clamp(max=3)
        bias = self.near(torch.where(gap.abs() < 4, gap.abs(), far)).permute(2, 0, 1)
        return bias.masked_fill(gap > 0, -1e9) if causal else bias

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        x, y = self.words(source), self.words(target)
        norms = iter(self.norms)
        for (own, _), product in zip(self.encoder, self.products[:2], strict=True):
            x = x + own(next(norms)(x), mask=self._places(source.shape[1], False))
            x = x + product(next(norms)(x))
        for (own, cross), product in zip(self.decoder, self.products[2:], strict=True):
            y = y + own(next(norms)(y), mask=self._places(target.shape[1], True))
            y = y + cross(next(norms)(y), x)
            y = y + product(next(norms)(y))
        return y @ self.words.weight.T


class Vit(nn.Module):
    """Pictures in patches, a token for their class."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 48, 8, 8)
        self.token, self.places = nn.Parameter(torch.randn(1, 1, 48)), nn.Parameter(torch.randn(1, 17, 48))
        self.layers = nn.ModuleList(Layer(48, 4) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(48), nn.Linear(48, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])


class WhisperEncoder(nn.Module):
    """Two convolutions over a spectrogram, then layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(16, 48, 3, padding=1), nn.Conv1d(48, 48, 3, 2, padding=1)
        self.places = nn.Parameter(torch.randn(20, 48))
        self.layers, self.norm = nn.ModuleList(Layer(48, 4) for _ in range(2)), nn.LayerNorm(48)

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.second(F.gelu(self.first(x)))).transpose(1, 2) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class WhisperStep(nn.Module):
    """One token of a decoder: keys and values of those before it are given, and come out with its own."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(96, 48), nn.Embedding(32, 48)
        self.own, self.cross = Attention(48, 4), Attention(48, 4)
        self.norms = nn.ModuleList(nn.LayerNorm(48) for _ in range(4))
        self.up, self.down = nn.Linear(48, 192), nn.Linear(192, 48)

    def forward(self, token: Tensor, at: Tensor, keys: Tensor, values: Tensor, sound: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.words(token) + self.places(at)
        h = self.norms[0](x)
        keys = torch.cat([keys, _heads(self.own.k(h), 4)], 2)
        values = torch.cat([values, _heads(self.own.v(h), 4)], 2)
        mixed = F.scaled_dot_product_attention(_heads(self.own.q(h), 4), keys, values)
        x = x + self.own.o(mixed.transpose(1, 2).flatten(2))
        x = x + self.cross(self.norms[1](x), sound)
        x = x + self.down(F.gelu(self.up(self.norms[2](x))))
        return self.norms[3](x) @ self.words.weight.T, keys, values


# ---- pictures


def _conv(
    inputs: int, outputs: int, size: int = 3, stride: int = 1, groups: int = 1, act: nn.Module | None = None
) -> nn.Sequential:
    parts = [nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs)]
    return nn.Sequential(*parts, *([act] if act is not None else []))


class Bottleneck(nn.Module):
    """Three convolutions and a way around them."""

    def __init__(self, inputs: int, inner: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * inner
        self.path = nn.Sequential(
            _conv(inputs, inner, 1, act=nn.ReLU()), _conv(inner, inner, 3, stride, act=nn.ReLU()), _conv(inner, outputs, 1)
        )
        self.around = nn.Identity() if inputs == outputs and stride == 1 else _conv(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.path(x) + self.around(x))


def _resnet50() -> nn.Module:
    width, inputs = 8, 8
    parts: list[nn.Module] = [_conv(3, 8, 7, 2, act=nn.ReLU()), nn.MaxPool2d(3, 2, 1)]
    for stage, count in enumerate((3, 4, 6, 3)):
        for k in range(count):
            parts.append(Bottleneck(inputs, width << stage, 2 if k == 0 and stage else 1))
            inputs = 4 * (width << stage)
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))


class Squeeze(nn.Module):
    """Channels weighed by what they are on average."""

    def __init__(self, channels: int, inner: int, act: nn.Module, gate: nn.Module) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, inner, 1), act, nn.Conv2d(inner, channels, 1), gate
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.path(x)


class Inverted(nn.Module):
    """Wider, each channel by itself, narrower: the block of MobileNet and EfficientNet."""

    def __init__(
        self, inputs: int, outputs: int, size: int, stride: int, act: type[nn.Module], squeeze: nn.Module | None
    ) -> None:
        super().__init__()
        inner = 4 * inputs
        parts = [_conv(inputs, inner, 1, act=act()), _conv(inner, inner, size, stride, inner, act=act())]
        self.path = nn.Sequential(*parts, *([squeeze] if squeeze is not None else []), _conv(inner, outputs, 1))
        self.same = inputs == outputs and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        return x + self.path(x) if self.same else self.path(x)


def _mobile(act: type[nn.Module], squeeze: Callable[[int], nn.Module | None], last: nn.Module) -> nn.Module:
    plan = [(8, 12, 3, 2), (12, 12, 3, 1), (12, 16, 5, 2), (16, 16, 3, 1)]
    blocks = [Inverted(i, o, size, stride, act, squeeze(4 * i)) for i, o, size, stride in plan]
    head = [_conv(16, 32, 1, act=act()), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 24), last, nn.Linear(24, 10)]
    return nn.Sequential(_conv(3, 8, 3, 2, act=act()), *blocks, *head)


def _mobilenet_v2() -> nn.Module:
    return _mobile(nn.ReLU6, lambda n: None, nn.Dropout(0.2))


def _mobilenet_v3() -> nn.Module:
    return _mobile(nn.Hardswish, lambda n: Squeeze(n, n // 4, nn.ReLU(), nn.Hardsigmoid()), nn.Hardswish())


def _efficientnet() -> nn.Module:
    return _mobile(nn.SiLU, lambda n: Squeeze(n, n // 16, nn.SiLU(), nn.Sigmoid()), nn.Dropout(0.2))


class UNet(nn.Module):
    """Down, up again by transposed convolutions and by interpolation, and across."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([_conv(3, 8, act=nn.ReLU()), _conv(8, 16, act=nn.ReLU()), _conv(16, 32, act=nn.ReLU())])
        self.up = nn.ConvTranspose2d(32, 16, 2, 2)
        self.back = nn.ModuleList([_conv(32, 16, act=nn.ReLU()), _conv(24, 8, act=nn.ReLU())])
        self.out = nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.down[0](x)
        b = self.down[1](F.max_pool2d(a, 2))
        c = self.down[2](F.max_pool2d(b, 2))
        y = self.back[0](torch.cat([self.up(c), b], 1))
        y = F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)
        return self.out(self.back[1](torch.cat([y, a], 1)))


class Diffusion(nn.Module):
    """A block of a diffusion model: a residual one that is told the time, and attention of the pixels to a text."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(4, 16) for _ in range(3))
        self.first, self.second = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 16))
        self.text = nn.Linear(12, 16)
        self.layer = Layer(16, 2, cross=True)

    def forward(self, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        steps = torch.exp(-math.log(10000.0) * torch.arange(8, dtype=x.dtype) / 8)
        angle = time[:, None].to(x.dtype) * steps
        told = self.time(torch.cat([angle.cos(), angle.sin()], -1))
        h = self.first(F.silu(self.norms[0](x))) + told[:, :, None, None]
        x = x + self.second(F.silu(self.norms[1](h)))
        flat = self.norms[2](x).flatten(2).transpose(1, 2)
        return x + self.layer(flat, self.text(text)).transpose(1, 2).unflatten(2, x.shape[2:])


class Lstm(nn.Module):
    """Two layers, both ways."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(96, 24)
        self.lstm = nn.LSTM(24, 16, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(32, 5)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        out, (state, _) = self.lstm(self.words(tokens))
        return self.head(out), state


# ---- more transformers


class Rotary(nn.Module):
    """GPT-NeoX: attention and products next to each other, rotary positions for the first half of each head."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(96, 48), nn.Linear(48, 96, bias=False)
        self.qkv, self.out = nn.Linear(48, 144), nn.Linear(48, 48)
        self.first, self.second, self.last = (nn.LayerNorm(48) for _ in range(3))
        self.up, self.down = nn.Linear(48, 192), nn.Linear(192, 48)
        self.register_buffer("steps", 1 / 10000 ** (torch.arange(0, 6, 2).float() / 6))

    def _turned(self, x: Tensor) -> Tensor:
        turned, kept = x[..., :6], x[..., 6:]
        angle = torch.outer(torch.arange(x.shape[2], device=x.device).to(x.dtype), self.steps.to(x.dtype))  # type: ignore[operator]
        angle = torch.cat([angle, angle], -1)
        a, b = turned[..., :3], turned[..., 3:]
        return torch.cat([turned * angle.cos() + torch.cat([-b, a], -1) * angle.sin(), kept], -1)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        q, k, v = _heads(self.qkv(self.first(x)), 4).chunk(3, -1)
        scores = self._turned(q) @ self._turned(k).transpose(-1, -2) / math.sqrt(12)
        seen = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).tril()
        scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
        mixed = self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return self.head(self.last(x + mixed + self.down(F.gelu(self.up(self.second(x))))))


class Gemma(nn.Module):
    """Scaled words, norms by one more than their weight, capped logits, one key for all queries."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(96, 48)
        self.attention, self.norms = RotaryAttention(48, 6, 1), nn.ParameterList(torch.randn(48) * 0.1 for _ in range(3))
        self.gate, self.up, self.down = (nn.Linear(a, b, bias=False) for a, b in ((48, 96), (48, 96), (96, 48)))

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * (1 + weight)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) * 48**0.5
        x = x + self.attention(self._norm(x, self.norms[0]))
        h = self._norm(x, self.norms[1])
        x = x + self.down(F.gelu(self.gate(h), approximate="tanh") * self.up(h))
        return 30 * torch.tanh(self._norm(x, self.norms[2]) @ self.words.weight.T / 30)


class Swin(nn.Module):
    """Attention in windows, which are shifted: pictures rolled, cut into windows, and put together again."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.attention = nn.Conv2d(3, 24, 4, 4), Attention(24, 3)
        self.bias = nn.Parameter(torch.randn(16, 16) * 0.02)
        self.norm, self.merge = nn.LayerNorm(24), nn.Linear(96, 48, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).permute(0, 2, 3, 1)
        b, h, w, c = x.shape
        moved = torch.roll(self.norm(x), (-2, -2), (1, 2))
        parts = moved.view(b, h // 4, 4, w // 4, 4, c).transpose(2, 3).reshape(-1, 16, c)
        mixed = self.attention(parts, mask=self.bias)
        back = mixed.view(b, h // 4, w // 4, 4, 4, c).transpose(2, 3).reshape(b, h, w, c)
        x = x + torch.roll(back, (2, 2), (1, 2))
        return self.merge(torch.cat([x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)], -1))


class Translator(nn.Module):
    """The encoder and decoder of torch itself."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(96, 32)
        self.model = nn.Transformer(32, 4, 2, 2, 64, batch_first=True)
        self.head = nn.Linear(32, 96)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        mask = torch.full((target.shape[1], target.shape[1]), float("-inf"), dtype=self.head.weight.dtype).triu(1)
        return self.head(self.model(self.words(source), self.words(target), tgt_mask=mask, tgt_is_causal=True))


class Distilbert(nn.Module):
    """Answers to questions: the encoder layers of torch with a mask of padding; logits of where they begin and end."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(96, 32), nn.Embedding(16, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 2)

    def forward(self, tokens: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        start, end = self.head(self.encoder(x, src_key_padding_mask=real == 0)).split(1, -1)
        return start.squeeze(-1), end.squeeze(-1)


class Alibi(nn.Module):
    """Biases by distance, an embedding bag, and logits of the last token by an index per row."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.layer = nn.Embedding(96, 32, padding_idx=0), Layer(32, 4)
        self.register_buffer("slopes", 2.0 ** -torch.arange(1, 5).float())

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        n = tokens.shape[1]
        gap = (torch.arange(n)[None, :] - torch.arange(n)[:, None]).to(self.words.weight.dtype)
        bias = (self.slopes[:, None, None] * gap).masked_fill(gap > 0, float("-inf"))  # type: ignore[index]
        x = self.layer(self.words(tokens), mask=bias)
        return x[torch.arange(tokens.shape[0]), lengths - 1] @ self.words.weight.T


class Mamba(nn.Module):
    """A selective state space: a causal depthwise convolution and a recurrence over time, unrolled."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 64), nn.Linear(32, 16)
        self.mix = nn.Conv1d(32, 32, 4, groups=32, padding=3)
        self.made = nn.Linear(32, 32 + 8)
        self.decay = nn.Parameter(torch.randn(32, 4) * 0.1)

    def forward(self, x: Tensor) -> Tensor:
        h, gate = self.up(x).chunk(2, -1)
        h = F.silu(self.mix(h.transpose(1, 2))[..., : x.shape[1]]).transpose(1, 2)
        step, b, c = self.made(h).split([32, 4, 4], -1)
        step = F.softplus(step)
        kept = torch.exp(step[..., None] * -torch.exp(self.decay))
        added = step[..., None] * b[:, :, None] * h[..., None]
        state, out = torch.zeros_like(added[:, 0]), []
        for t in range(x.shape[1]):
            state = kept[:, t] * state + added[:, t]
            out.append((state * c[:, t, None]).sum(-1))
        return self.down(torch.stack(out, 1) * F.silu(gate))


# ---- more pictures


class Convnext(nn.Module):
    """Large depthwise windows, norms over channels, scaled ways around."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.wide = nn.Conv2d(3, 16, 4, 4), nn.Conv2d(16, 16, 7, padding=3, groups=16)
        self.norm, self.up, self.down = nn.LayerNorm(16, eps=1e-6), nn.Linear(16, 64), nn.Linear(64, 16)
        self.scale = nn.Parameter(torch.full((16,), 0.5))
        self.smaller = nn.Conv2d(16, 24, 2, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        h = self.down(F.gelu(self.up(self.norm(self.wide(x).permute(0, 2, 3, 1))))) * self.scale
        return F.adaptive_avg_pool2d(self.smaller(x + h.permute(0, 3, 1, 2)), 1).flatten(1)


class Densenet(nn.Module):
    """Every layer sees all before it; average pools in between."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(_conv(3, 8, 7, 2, act=nn.ReLU()), nn.MaxPool2d(3, 2, 1))
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(8 + 4 * k), nn.ReLU(), nn.Conv2d(8 + 4 * k, 4, 3, padding=1)) for k in range(4)
        )
        self.smaller = nn.Sequential(nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 12, 1), nn.AvgPool2d(2, 2))
        self.head = nn.Linear(12, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return self.head(self.smaller(x).mean((2, 3)))


class Shufflenet(nn.Module):
    """Half of the channels go around; the channels are shuffled."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _conv(3, 16, 3, 2, act=nn.ReLU())
        self.path = nn.Sequential(_conv(8, 8, 1, act=nn.ReLU()), _conv(8, 8, 3, 1, groups=8), _conv(8, 8, 1, act=nn.ReLU()))

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            x = self.stem(x) if x.shape[1] == 3 else x
            a, b = x.chunk(2, 1)
            x = torch.cat([a, self.path(b)], 1)
            n, c, h, w = x.shape
            x = x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        return x


class Squeezenet(nn.Module):
    """Squeezed, then two widths next to each other; pools whose last window is not whole."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.squeeze = nn.Conv2d(3, 16, 3, 2), nn.Conv2d(16, 4, 1)
        self.one, self.three, self.head = nn.Conv2d(4, 8, 1), nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(16, 10, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.squeeze(F.max_pool2d(F.relu(self.stem(x)), 3, 2, ceil_mode=True)))
        x = F.relu(torch.cat([self.one(x), self.three(x)], 1))
        x = F.avg_pool2d(self.head(x), 3, 2, 1, ceil_mode=True, count_include_pad=False)
        return F.log_softmax(F.adaptive_avg_pool2d(x, 1).flatten(1), 1)


class Regnet(nn.Module):
    """Grouped convolutions and squeezes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _conv(3, 16, 3, 2, act=nn.ReLU())
        self.path = nn.Sequential(_conv(16, 24, 1, act=nn.ReLU()), _conv(24, 24, 3, 2, 3, act=nn.ReLU()))
        self.squeeze, self.out, self.around = Squeeze(24, 4, nn.ReLU(), nn.Sigmoid()), _conv(24, 24, 1), _conv(16, 24, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return F.relu(self.out(self.squeeze(self.path(x))) + self.around(x))


class Generator(nn.Module):
    """Noise to a picture by transposed convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.ConvTranspose2d(12, 16, 4, 1, 0, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
            nn.ConvTranspose2d(16, 8, 4, 2, 1, bias=False), nn.BatchNorm2d(8), nn.LeakyReLU(0.2),
            nn.ConvTranspose2d(8, 3, 3, 2, 1, output_padding=1), nn.Tanh(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.path(x)


class SuperResolution(nn.Module):
    """Pixels out of channels, on a picture made larger by cubic interpolation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.slopes, self.last = nn.Conv2d(3, 16, 5, padding=2), nn.PReLU(16), nn.Conv2d(16, 12, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.pixel_shuffle(self.last(self.slopes(self.first(x))), 2)
        return (y + F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False)).clamp(0, 1)


class Detector(nn.Module):
    """A pyramid of features: nearest interpolation, pools of one size next to each other, boxes decoded on a grid."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([_conv(3, 8, 3, 2, act=nn.SiLU()), _conv(8, 16, 3, 2, act=nn.SiLU())])
        self.pyramid, self.head = _conv(72, 8, 1, act=nn.SiLU()), nn.Conv2d(8, 6, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a = self.down[0](x)
        b = self.down[1](a)
        pools = [b]
        for _ in range(3):
            pools.append(F.max_pool2d(pools[-1], 5, 1, 2))
        up = F.interpolate(torch.cat(pools, 1), scale_factor=2, mode="nearest")
        y = self.head(self.pyramid(torch.cat([up, a], 1))).permute(0, 2, 3, 1)
        rows, columns = torch.meshgrid(torch.arange(y.shape[1]), torch.arange(y.shape[2]), indexing="ij")
        grid = torch.stack([columns, rows], -1).to(y.dtype)
        center = (y[..., :2].sigmoid() * 2 - 0.5 + grid) * 2
        size = (y[..., 2:4].sigmoid() * 2) ** 2
        boxes = torch.cat([center - size / 2, center + size / 2], -1).flatten(1, 2)
        return boxes, y[..., 4:].sigmoid().flatten(1, 2)


class Vae(nn.Module):
    """A picture to a mean and a deviation, noise that is given, and back; norms of groups and of instances."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.GroupNorm(2, 8), nn.ELU(), nn.Conv2d(8, 8, 3, 2, 1))
        self.up = nn.Sequential(
            nn.Conv2d(4, 8, 3, padding=1), nn.InstanceNorm2d(8, affine=True), nn.Softplus(), nn.Upsample(scale_factor=4),
            nn.ReflectionPad2d(1), nn.Conv2d(8, 3, 3), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        mean, log = self.down(x).chunk(2, 1)
        log = log.clamp(-30, 20)
        apart = 0.5 * (mean**2 + log.exp() - 1 - log).sum((1, 2, 3))
        return self.up(mean + torch.exp(0.5 * log) * noise), apart


class Sampler(nn.Module):
    """A spatial transformer: a picture seen through an affine grid."""

    def __init__(self) -> None:
        super().__init__()
        self.path, self.angle = _conv(3, 8, 3, 2, act=nn.ReLU()), nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        theta = self.angle(self.path(x).mean((2, 3))).view(-1, 2, 3) * 0.1 + torch.eye(2, 3, dtype=x.dtype)
        grid = F.affine_grid(theta, [x.shape[0], x.shape[1], 9, 11], align_corners=False)
        return F.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)


class Video(nn.Module):
    """Convolutions, norms and pools over three axes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = (
            nn.Conv3d(2, 6, 3, padding=1),
            nn.BatchNorm3d(6),
            nn.Conv3d(6, 4, (1, 3, 3), (1, 2, 2)),
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool3d(F.avg_pool3d(F.mish(self.second(F.selu(self.norm(self.first(x))))), (2, 1, 1)), (1, 2, 2)).flatten(1)


# ---- sequences, sets and graphs


class Ctc(nn.Module):
    """Letters of a picture of text: convolutions, then recurrence both ways over its columns."""

    def __init__(self) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d((2, 1)), nn.Conv2d(8, 8, (4, 3), padding=(0, 1))
        )
        self.rnn, self.head = nn.GRU(8, 12, 2, bidirectional=True), nn.Linear(24, 11)

    def forward(self, x: Tensor) -> Tensor:
        x = self.path(x).squeeze(2).permute(2, 0, 1)
        return self.head(self.rnn(x)[0]).log_softmax(-1)


class Recurrent(nn.Module):
    """A plain recurrence, a GRU with a state that is given, cells by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.plain, self.gru = nn.RNN(10, 12, nonlinearity="relu"), nn.GRU(12, 12)
        self.cell, self.other = nn.LSTMCell(12, 8), nn.GRUCell(8, 8)

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        y, last = self.gru(self.plain(x)[0], state)
        h, c = y.new_zeros(y.shape[1], 8), y.new_zeros(y.shape[1], 8)
        for t in range(3):
            h, c = self.cell(y[t], (h, c))
            h = self.other(h, h)
        return h, last


class GraphNet(nn.Module):
    """Messages along edges, gathered, added up where they end, and divided by how many; attention over edges by segments."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.other, self.score = nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(16, 1)

    def forward(self, x: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        start, end = edges[0], edges[1]
        sent = self.other(x)[start]
        total = torch.zeros(x.shape[0], 8, dtype=x.dtype).index_add(0, end, sent)
        count = torch.zeros(x.shape[0], dtype=x.dtype).scatter_add(0, end, torch.ones_like(end, dtype=x.dtype))
        score = F.leaky_relu(self.score(torch.cat([self.own(x)[end], sent], -1))).squeeze(-1)
        top = torch.full((x.shape[0],), -1e9, dtype=x.dtype).scatter_reduce(0, end, score, "amax")
        share = torch.exp(score - top[end])
        norm = torch.zeros(x.shape[0], dtype=x.dtype).scatter_add(0, end, share)
        weighed = torch.zeros(x.shape[0], 8, dtype=x.dtype).index_add(0, end, sent * (share / norm[end])[:, None])
        return F.relu(self.own(x) + total / count.clamp(min=1)[:, None]), weighed


class Points(nn.Module):
    """A set of points: the nearest of each by distances, their features, the largest over them."""

    def __init__(self) -> None:
        super().__init__()
        self.path = nn.Sequential(nn.Conv2d(6, 8, 1), nn.BatchNorm2d(8), nn.LeakyReLU(0.2))
        self.head = nn.Conv1d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        inner = x.transpose(1, 2) @ x
        size = (x**2).sum(1)
        near = (2 * inner - size[:, None] - size[:, :, None]).topk(4, -1).indices
        parts = torch.gather(x[:, :, None].expand(-1, -1, x.shape[2], -1), 3, near[:, None].expand(-1, 3, -1, -1))
        edge = torch.cat([parts - x[..., None], x[..., None].expand_as(parts)], 1)
        return self.head(self.path(edge).amax(-1))


class Wavenet(nn.Module):
    """Dilated causal convolutions with gates; weights that are normalized."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, 8, 1)
        self.layers = nn.ModuleList(nn.Conv1d(8, 16, 2, dilation=2**k) for k in range(4))
        self.up = nn.ConvTranspose1d(8, 1, 4, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for k, layer in enumerate(self.layers):
            a, b = layer(F.pad(x, (2**k, 0))).chunk(2, 1)
            x = x + torch.tanh(a) * torch.sigmoid(b)
        return self.up(F.glu(torch.cat([x, x], 1), 1))


class Recommender(nn.Module):
    """Tables of categories, products of their pairs, a deep part next to a wide one."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, 8) for n in (11, 7, 5))
        self.dense, self.deep, self.wide = (
            nn.Linear(4, 8),
            nn.Sequential(nn.Linear(14, 16), nn.ReLU(), nn.Linear(16, 1)),
            nn.Linear(4, 1),
        )

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        parts = torch.stack([self.dense(numbers), *(t(categories[:, i]) for i, t in enumerate(self.tables))], 1)
        pairs = torch.einsum("bid,bjd->bij", parts, parts)
        i, j = torch.triu_indices(4, 4, 1)
        return torch.sigmoid(self.deep(torch.cat([parts[:, 0], pairs[:, i, j]], 1)) + self.wide(numbers))


CASES: dict[str, Case] = {
    "gpt2": (Gpt2, (_tokens(2, 12, 96),)),
    "bert": (Bert, (_tokens(2, 10, 96), _tokens(2, 10, 2), torch.tensor([[1] * 10, [1] * 6 + [0] * 4]))),
    "llama": (Llama, (_tokens(2, 10, 96),)),
    "mixtral": (lambda: Llama(experts=True), (_tokens(2, 10, 96),)),
    "t5": (T5, (_tokens(2, 9, 96), _tokens(2, 7, 96))),
    "vit": (Vit, (_image(3, 32, 2),)),
    "whisper_encoder": (WhisperEncoder, (_noise(1, 16, 40),)),
    "whisper_step": (
        WhisperStep,
        (_tokens(1, 1, 96), torch.tensor([[5]]), _noise(1, 4, 5, 12), _noise(1, 4, 5, 12), _noise(1, 20, 48)),
    ),
    "resnet50": (_resnet50, (_image(3, 64),)),
    "mobilenet_v2": (_mobilenet_v2, (_image(3, 48),)),
    "mobilenet_v3": (_mobilenet_v3, (_image(3, 48),)),
    "efficientnet": (_efficientnet, (_image(3, 48),)),
    "unet": (UNet, (_image(3, 32),)),
    "diffusion": (Diffusion, (_noise(1, 16, 8, 8), torch.tensor([7]), _noise(1, 5, 12))),
    "lstm": (Lstm, (_tokens(2, 9, 96),)),
    "gpt_neox": (Rotary, (_tokens(2, 9, 96),)),
    "gemma": (Gemma, (_tokens(2, 9, 96),)),
    "swin": (Swin, (_image(3, 32, 2),)),
    "translator": (Translator, (_tokens(2, 7, 96), _tokens(2, 5, 96))),
    "distilbert": (Distilbert, (_tokens(2, 10, 96), torch.tensor([[1] * 10, [1] * 6 + [0] * 4]))),
    "alibi": (Alibi, (_tokens(2, 9, 96), torch.tensor([9, 4]))),
    "mamba": (Mamba, (_noise(2, 7, 16),)),
    "convnext": (Convnext, (_image(3, 32, 2),)),
    "densenet": (Densenet, (_image(3, 48),)),
    "shufflenet": (Shufflenet, (_image(3, 24, 2),)),
    "squeezenet": (Squeezenet, (_image(3, 40),)),
    "regnet": (Regnet, (_image(3, 32),)),
    "generator": (Generator, (_noise(2, 12, 1, 1),)),
    "super_resolution": (SuperResolution, (_image(3, 12),)),
    "detector": (Detector, (_image(3, 32),)),
    "vae": (Vae, (_image(3, 16, 2), _noise(2, 4, 4, 4))),
    "sampler": (Sampler, (_image(3, 16, 2),)),
    "video": (Video, (_noise(1, 2, 4, 8, 8),)),
    "ctc": (Ctc, (_noise(2, 1, 8, 20),)),
    "recurrent": (Recurrent, (_noise(5, 2, 10), _noise(1, 2, 12))),
    "graph": (GraphNet, (_noise(6, 6), torch.tensor([[0, 1, 2, 3, 4, 0, 2], [1, 2, 3, 4, 0, 3, 3]]))),
    "points": (Points, (_noise(2, 3, 12),)),
    "wavenet": (Wavenet, (_noise(2, 1, 24),)),
    "recommender": (Recommender, (_noise(3, 4), _tokens(3, 3, 5))),
}


def _flat(found: Any) -> list[np.ndarray]:
    return [t.detach().numpy() for t in (found if isinstance(found, (tuple, list)) else (found,))]


def built(name: str) -> tuple[nn.Module, Inputs]:
    """A model with the same random weights every time; its batch norms have statistics."""
    make, inputs = CASES[name]
    torch.manual_seed(0)
    module = make().eval()
    for part in module.modules():
        if isinstance(part, (nn.BatchNorm2d, nn.BatchNorm3d)):
            part.running_mean = torch.randn_like(part.running_mean) * 0.1  # type: ignore[arg-type]
            part.running_var = torch.rand_like(part.running_var) + 0.5  # type: ignore[arg-type]
    return module, inputs


def bounds(module: nn.Module, inputs: Inputs) -> list[tuple[np.ndarray, float]]:
    """What torch gives in float64, and how far a float32 may be from it."""
    with torch.no_grad():
        single = _flat(module(*inputs))
        exact = _flat(module.double()(*(x.double() if x.is_floating_point() else x for x in inputs)))
        module.float()
    found = []
    for a, b in zip(single, exact, strict=True):
        own = float(np.nanmax(np.abs(a - b), initial=0)) if b.dtype.kind == "f" else 0.0
        found.append((b, 4 * own + 2 * float(np.spacing(np.float32(np.nanmax(np.abs(b), initial=0))))))
    return found


def off(found: Mapping[str, np.ndarray], wanted: list[tuple[np.ndarray, float]]) -> str:
    """What is wrong with outputs; empty when nothing is."""
    if len(found) != len(wanted):
        return f"{len(found)} outputs, {len(wanted)} are wanted"
    for (name, x), (want, bound) in zip(found.items(), wanted, strict=True):
        if x.shape != want.shape:
            return f"{name} has shape {x.shape}, {want.shape} is wanted"
        if want.dtype.kind == "b":
            x, want = x.astype(np.int8), want.astype(np.int8)
        elif want.dtype.kind == "f" and x.dtype.itemsize < 4:
            bound = max(bound, 4 * float(np.finfo(x.dtype).eps) * float(np.abs(want).max(initial=0)))
        apart = (x != want) & ~(np.isnan(x) & np.isnan(want))
        gap = float(np.abs(x - want).max(where=apart, initial=0))
        if not gap <= bound:
            return f"{name} is off by {gap:.3g}, {bound:.3g} is allowed"
    return ""


def judged(name: str, onnx_runtime: bool = True) -> str:
    """Run a model on every engine, optimized, and as ONNX again; what is wrong. Raises Rejected for one that is refused."""
    from ptir_tools.bridges.onnx import runtime

    module, inputs = built(name)
    wanted = bounds(module, inputs)
    with warnings.catch_warnings(action="ignore"):
        logging.disable(logging.CRITICAL)
        try:
            program = ptir.from_torch(module, inputs)
        finally:
            logging.disable(logging.NOTSET)
    arrays = [x.numpy() for x in inputs]
    optimized = ptir.optimize(program)
    for label, p, engine in (
        *((engine, program, engine) for engine in ("reference", *ENGINES)),
        *((f"optimized, {engine}", optimized, engine) for engine in ("reference", ENGINES[0])),
    ):
        if wrong := off(ptir.run(p, arrays, engine=engine), wanted):
            return f"{label}: {wrong}"
    if onnx_runtime:
        try:
            given = dict(zip([p.name for p in program.main.params], arrays, strict=True))
            if wrong := off(runtime.run(ptir.to_onnx(program), given), wanted):
                return f"as ONNX again: {wrong}"
        except UsageError as error:
            return f"as ONNX again: {error}"
    return ""


class Unexported(Exception):
    """What torch itself does not export."""


def report_of(suite: str, names: Iterable[str], judge: Callable[[str], str]) -> Report:
    """What became of each case; `judge` says what is wrong with one, and nothing where it is right."""
    report = Report(suite)
    for name in names:
        try:
            wrong = judge(name)
        except Unexported as error:
            report.refused[name] = str(error)
        except ptir.Rejected as error:
            report.refused[name] = error.diagnostics[0].message
        except Exception:
            report.errors[name] = traceback.format_exc().splitlines()[-1]
        else:
            if wrong:
                report.wrong[name] = wrong
            else:
                report.right.append(name)
    return report


def run(only: str = "", every: int = 1) -> Report:
    """Judge the models whose names contain `only`; every engine runs each of them."""
    return report_of("torch", [n for n in CASES if only in n][::every], judged)
