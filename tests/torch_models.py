"""The models of testdata/models in torch, on the same weights and inputs, by torch's own layers.

`python -m tests.torch_models` writes what they give in float32 and in float64 next to them: NAME.expect.safetensors and
NAME.expect64.safetensors. test_torch_models.py computes it again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from tests.peers import F, torch

FOLDER = Path(__file__).parent.parent / "testdata" / "models"
sys.path.insert(0, str(FOLDER))

import gpt2  # noqa: E402
import llama  # noqa: E402
import mobilenet  # noqa: E402
import quantized_mlp  # noqa: E402
import resnet  # noqa: E402

Arrays = dict[str, np.ndarray]
Tensors = dict[str, Any]  # tensors of torch


def tensors(arrays: Arrays, dtype: torch.dtype) -> Tensors:
    """Arrays as tensors, floats in `dtype`."""
    found = {k: torch.from_numpy(np.array(v)) for k, v in arrays.items()}
    return {k: t.to(dtype) if t.is_floating_point() else t for k, t in found.items()}


# ---- GPT-2


def gpt2_logits(w: Tensors, tokens: torch.Tensor) -> torch.Tensor:
    """The logits of tokens `[batch, time]`."""
    c = gpt2.CONFIG
    tokens = tokens.long()
    batch, time = tokens.shape
    x = F.embedding(tokens, w["wte"]) + w["wpe"][:time]
    for i in range(c.layers):
        p = {k.removeprefix(f"h{i}."): v for k, v in w.items() if k.startswith(f"h{i}.")}
        h = F.layer_norm(x, [c.width], p["ln_1.weight"], p["ln_1.bias"], c.epsilon)
        qkv = torch.addmm(p["attn.c_attn.bias"], h.reshape(-1, c.width), p["attn.c_attn.weight"])
        q, k, v = (t.view(batch, time, c.heads, c.head).transpose(1, 2) for t in qkv.view(batch, time, -1).split(c.width, 2))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, time, c.width)
        x = x + mixed @ p["attn.c_proj.weight"] + p["attn.c_proj.bias"]
        h = F.layer_norm(x, [c.width], p["ln_2.weight"], p["ln_2.bias"], c.epsilon)
        h = F.gelu(h @ p["mlp.c_fc.weight"] + p["mlp.c_fc.bias"], approximate="tanh")
        x = x + h @ p["mlp.c_proj.weight"] + p["mlp.c_proj.bias"]
    return F.linear(F.layer_norm(x, [c.width], w["ln_f.weight"], w["ln_f.bias"], c.epsilon), w["wte"])


def gpt2_prefill(w: Tensors, given: Tensors) -> Tensors:
    """All logits."""
    return {"logits": gpt2_logits(w, given["tokens"])}


def gpt2_greedy(w: Tensors, given: Tensors) -> Tensors:
    """The prompt continued by the best token, again and again."""
    tokens = given["prompt"]
    while tokens.shape[1] < gpt2.CONFIG.context:
        best = gpt2_logits(w, tokens)[:, -1:].argmax(-1)
        tokens = torch.cat([tokens, best.to(torch.int32)], 1)
    return {"done.1": tokens}


def gpt2_cached(w: Tensors, given: Tensors) -> Tensors:
    """The same tokens, and the logits of all but the last."""
    tokens = gpt2_greedy(w, given)["done.1"]
    return {"tokens": tokens, "logits": gpt2_logits(w, tokens[:, :-1])}


# ---- Llama


def rotated(x: torch.Tensor) -> torch.Tensor:
    """Rotary positions as complex numbers: element i and element i + head / 2 are one of them, turned by its angle."""
    c = llama.CONFIG
    half = c.head // 2
    cos, sin = (torch.from_numpy(llama.weights()[n][:, :half]).to(x.dtype) for n in ("cos", "sin"))
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.complex(cos, sin)
    return torch.cat([turned.real, turned.imag], -1)


def llama_blocks(w: Tensors, given: Tensors) -> Tensors:
    """The last hidden state."""
    c, x = llama.CONFIG, given["x"]
    batch, time, _ = x.shape
    for i in range(c.layers):
        p = {k.removeprefix(f"layers.{i}."): v for k, v in w.items() if k.startswith(f"layers.{i}.")}
        h = F.rms_norm(x, [c.width], p["input_layernorm"], c.epsilon)
        q, k, v = ((h @ p[f"{n}_proj"]).view(batch, time, -1, c.head).transpose(1, 2) for n in "qkv")
        mixed = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True, enable_gqa=True)
        x = x + mixed.transpose(1, 2).reshape(batch, time, -1) @ p["o_proj"]
        h = F.rms_norm(x, [c.width], p["post_attention_layernorm"], c.epsilon)
        x = x + (F.silu(h @ p["gate_proj"]) * (h @ p["up_proj"])) @ p["down_proj"]
    return {"hidden": F.rms_norm(x, [c.width], w["norm"], c.epsilon)}


# ---- images


def convolved(x: torch.Tensor, weight: torch.Tensor, window: int, stride: int) -> torch.Tensor:
    """A convolution of NCHW images by a weight `[rows * columns * input, output]`."""
    kernel = weight.view(window, window, x.shape[1], -1).permute(3, 2, 0, 1)
    return F.conv2d(x, kernel, stride=stride, padding=window // 2)


def resnet_scores(w: Tensors, given: Tensors) -> Tensors:
    """The scores of the classes."""

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        parts = (w[f"{name}.{p}"] for p in ("running_mean", "running_var", "weight", "bias"))
        return F.batch_norm(x, *parts, training=False, eps=resnet.EPSILON)

    x = convolved(given["image"].permute(0, 3, 1, 2), w["conv1.weight"], 7, 2)
    x = F.max_pool2d(F.relu(norm(x, "bn1")), 3, 2, 1)
    for name, _, stride in resnet.BOTTLENECKS:
        h = F.relu(norm(convolved(x, w[f"{name}.conv1.weight"], 1, 1), f"{name}.bn1"))
        h = F.relu(norm(convolved(h, w[f"{name}.conv2.weight"], 3, stride), f"{name}.bn2"))
        h = norm(convolved(h, w[f"{name}.conv3.weight"], 1, 1), f"{name}.bn3")
        x = F.relu(h + norm(convolved(x, w[f"{name}.downsample.0.weight"], 1, stride), f"{name}.downsample.1"))
    return {"scores": F.linear(F.adaptive_avg_pool2d(x, 1).flatten(1), w["fc.weight"].T, w["fc.bias"])}


def mobilenet_features(w: Tensors, given: Tensors) -> Tensors:
    """The features after the blocks."""
    x = given["image"].permute(0, 3, 1, 2)
    for name, _, _, stride in mobilenet.BLOCKS:
        p = {k.removeprefix(f"{name}."): v for k, v in w.items() if k.startswith(f"{name}.")}
        h = F.relu6(convolved(x, p["expand.weight"], 1, 1) + p["expand.bias"][:, None, None])
        kernel = p["depthwise.weight"].T.reshape(-1, 1, 3, 3)
        h = F.relu6(F.conv2d(h, kernel, p["depthwise.bias"], stride=stride, padding=1, groups=h.shape[1]))
        h = convolved(h, p["project.weight"], 1, 1) + p["project.bias"][:, None, None]
        x = x + h if h.shape == x.shape else h
    return {"features": x.permute(0, 2, 3, 1)}


# ---- integers


def quantized_scores(w: Tensors, given: Tensors) -> Tensors:
    """Integers in int32, scales in float64 where the contract rounds once."""
    scores = given["x"].dtype

    def steps(real: torch.Tensor, step: float, zero: int) -> torch.Tensor:
        return (torch.round(real.double() / step) + zero).clamp(-128, 127).to(torch.int8)

    q = steps(given["x"], *quantized_mlp.STEPS["x"])
    first = q.int() @ w["fc1.weight"].int() + w["fc1.bias"]
    step, zero = quantized_mlp.STEPS["h"]
    h = steps(first.double() * w["fc1.scales"].double(), step, zero).clamp(min=zero)
    second = h.int() @ w["fc2.weight"].int() + w["fc2.bias"]
    return {"input": q, "hidden": h, "scores": (second.double() * w["fc2.scales"].double()).to(scores)}


MODELS: dict[str, tuple[Callable[[Tensors, Tensors], Tensors], object]] = {
    "gpt2_prefill": (gpt2_prefill, gpt2),
    "gpt2_greedy": (gpt2_greedy, gpt2),
    "gpt2_cached": (gpt2_cached, gpt2),
    "llama": (llama_blocks, llama),
    "resnet": (resnet_scores, resnet),
    "mobilenet": (mobilenet_features, mobilenet),
    "quantized_mlp": (quantized_scores, quantized_mlp),
}


def outputs(name: str, dtype: torch.dtype) -> Arrays:
    """What the model `name` gives in `dtype`."""
    model, module = MODELS[name]
    given = module.inputs()[name]
    return {k: t.numpy() for k, t in model(tensors(module.weights(), dtype), tensors(given, dtype)).items()}


if __name__ == "__main__":
    for name in MODELS:
        for suffix, dtype in (("expect", torch.float32), ("expect64", torch.float64)):
            arrays = {k: np.ascontiguousarray(a) for k, a in outputs(name, dtype).items()}
            (FOLDER / f"{name}.{suffix}.safetensors").write_bytes(save(arrays))
