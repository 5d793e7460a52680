"""Real models of PyTorch with random weights: exported, read, optimized, run, and held to torch.

Each is small, and has the blocks of the model that it is called after. An output may be off from torch's float64 by 4 times as
much as torch's own float32, and 2 units in the last place of its largest value. What is not a float is equal.
"""

from __future__ import annotations

import logging
import math
import traceback
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ptir_tools as ptir
from ptir_tools.core.diagnostics import UsageError
from tests.suites.report import Report

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
}


def _flat(found: Any) -> list[np.ndarray]:
    return [t.detach().numpy() for t in (found if isinstance(found, tuple) else (found,))]


def built(name: str) -> tuple[nn.Module, Inputs]:
    """A model with the same random weights every time; its batch norms have statistics."""
    make, inputs = CASES[name]
    torch.manual_seed(0)
    module = make().eval()
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
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
        own = float(np.abs(a - b).max()) if b.dtype.kind == "f" else 0.0
        found.append((b, 4 * own + 2 * float(np.spacing(np.float32(np.abs(b).max())))))
    return found


def off(found: Mapping[str, np.ndarray], wanted: list[tuple[np.ndarray, float]]) -> str:
    """What is wrong with outputs; empty when nothing is."""
    if len(found) != len(wanted):
        return f"{len(found)} outputs, {len(wanted)} are wanted"
    for (name, x), (want, bound) in zip(found.items(), wanted, strict=True):
        if x.shape != want.shape:
            return f"{name} has shape {x.shape}, {want.shape} is wanted"
        gap = float(np.abs(x - want).max())
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
        ("reference", program, "reference"), ("numpy", program, "numpy"), ("native", program, "native"),
        ("optimized, reference", optimized, "reference"), ("optimized, native", optimized, "native"),
    ):  # fmt: skip
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


def run(only: str = "", every: int = 1, native: int = 0) -> Report:
    """Judge the models whose names contain `only`; every engine runs each of them."""
    report = Report("torch")
    for name in [n for n in CASES if only in n][::every]:
        try:
            wrong = judged(name)
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
