"""`python -m tests.bench._networks DIR [NAME…]`: writes the networks that docs/engines.md compares, for `tests.bench world`: each
as NAME.onnx and, for torch, NAME.pt2. Weights and inputs are random. It needs torch, onnxscript, torchvision, transformers and
diffusers.
"""

import sys
from importlib import import_module
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

PAST = 128  # positions of a cache


class Conv(nn.Sequential):
    """Convolution, norm, silu."""

    def __init__(self, given, made, window=1, stride=1):
        super().__init__(nn.Conv2d(given, made, window, stride, window // 2, bias=False), nn.BatchNorm2d(made), nn.SiLU())


class Partial(nn.Module):
    """A cross-stage partial block: one half of the channels goes through `depth` bottlenecks."""

    def __init__(self, given, made, depth, adds=True):
        super().__init__()
        half, self.adds = made // 2, adds
        self.left, self.right, self.last = Conv(given, half), Conv(given, half), Conv(made, made)
        self.steps = nn.ModuleList([nn.Sequential(Conv(half, half), Conv(half, half, 3)) for _ in range(depth)])

    def forward(self, x):
        y = self.left(x)
        for step in self.steps:
            y = y + step(y) if self.adds else step(y)
        return self.last(torch.cat([y, self.right(x)], 1))


class Pooled(nn.Module):
    """Pooling three times, all of them joined."""

    def __init__(self, n):
        super().__init__()
        self.first, self.last, self.pool = Conv(n, n // 2), Conv(2 * n, n), nn.MaxPool2d(5, 1, 2)

    def forward(self, x):
        found = [self.first(x)]
        for _ in range(3):
            found.append(self.pool(found[-1]))
        return self.last(torch.cat(found, 1))


class Detector(nn.Module):
    """A detector with three scales, like small networks of the YOLO family."""

    def __init__(self, w=16):
        super().__init__()
        self.stem = nn.Sequential(Conv(3, w, 3, 2), Conv(w, 2 * w, 3, 2), Partial(2 * w, 2 * w, 1))
        self.third = nn.Sequential(Conv(2 * w, 4 * w, 3, 2), Partial(4 * w, 4 * w, 2))
        self.fourth = nn.Sequential(Conv(4 * w, 8 * w, 3, 2), Partial(8 * w, 8 * w, 2))
        self.fifth = nn.Sequential(Conv(8 * w, 16 * w, 3, 2), Partial(16 * w, 16 * w, 1), Pooled(16 * w), Conv(16 * w, 8 * w))
        self.up_4 = nn.Sequential(Partial(16 * w, 8 * w, 1, False), Conv(8 * w, 4 * w))
        self.up_3, self.down_3 = Partial(8 * w, 4 * w, 1, False), Conv(4 * w, 4 * w, 3, 2)
        self.mix_4, self.down_4 = Partial(8 * w, 8 * w, 1, False), Conv(8 * w, 8 * w, 3, 2)
        self.mix_5, self.twice = Partial(16 * w, 16 * w, 1, False), nn.Upsample(scale_factor=2)
        self.heads = nn.ModuleList([nn.Conv2d(n, 255, 1) for n in (4 * w, 8 * w, 16 * w)])

    def forward(self, x):
        third = self.third(self.stem(x))
        fourth = self.fourth(third)
        fifth = self.fifth(fourth)
        above = self.up_4(torch.cat([self.twice(fifth), fourth], 1))
        low = self.up_3(torch.cat([self.twice(above), third], 1))
        middle = self.mix_4(torch.cat([self.down_3(low), above], 1))
        high = self.mix_5(torch.cat([self.down_4(middle), fifth], 1))
        return tuple(head(y).sigmoid() for head, y in zip(self.heads, (low, middle, high), strict=True))


class UNet(nn.Module):
    """Four levels down and up, two convolutions at each."""

    def __init__(self, w=32):
        super().__init__()
        widths = [w << i for i in range(5)]
        self.down = nn.ModuleList([self.two(i, o) for i, o in zip([3, *widths], widths, strict=False)])
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.up = nn.ModuleList([nn.ConvTranspose2d(i, o, 2, 2) for i, o in pairs])
        self.mix, self.last = nn.ModuleList([self.two(2 * o, o) for _, o in pairs]), nn.Conv2d(w, 2, 1)

    def two(self, i, o):
        layers = (nn.Conv2d(n, o, 3, padding=1) for n in (i, o))
        return nn.Sequential(*(x for layer in layers for x in (layer, nn.BatchNorm2d(o), nn.ReLU())))

    def forward(self, x):
        kept = []
        for i, step in enumerate(self.down):
            kept.append(step(functional.max_pool2d(kept[-1], 2) if i else x))
        x = kept.pop()
        for up, mix in zip(self.up, self.mix, strict=True):
            x = mix(torch.cat([kept.pop(), up(x)], 1))
        return self.last(x)


class Called(nn.Module):
    """A model that is called by a function, which gives tensors."""

    def __init__(self, model, function):
        super().__init__()
        self.model, self.function = model, function

    def forward(self, *inputs):
        return self.function(self.model, *inputs)


def cached(model, tokens, positions, *past):
    """Logits and the new cache."""
    cache = import_module("transformers").DynamicCache.from_legacy_cache(tuple(zip(past[::2], past[1::2], strict=True)))
    found = model(tokens, position_ids=positions, past_key_values=cache, use_cache=True, return_dict=True)
    return found.logits, *(x for pair in found.past_key_values.to_legacy_cache() for x in pair)


def language(kind, count, layers, heads, dtype=torch.float32, **options):
    """A language model and `count` tokens: one is after a cache, others are a prompt."""
    library = import_module("transformers")
    model = getattr(library, "GPT2LMHeadModel" if kind == "GPT2" else f"{kind}ForCausalLM")
    past = [torch.randn(1, heads, PAST, 64, dtype=dtype) for _ in range(2 * layers if count == 1 else 0)]
    tokens, positions = torch.randint(0, 30000, (1, count)), torch.arange(count)[None] + (PAST if past else 0)
    return Called(model(getattr(library, f"{kind}Config")(**options)).to(dtype), cached), (tokens, positions, *past)


def vision(name):
    """A network of torchvision."""
    return getattr(import_module("torchvision").models, name)(weights=None), (torch.randn(1, 3, 224, 224),)


def bert():
    library = import_module("transformers")
    call = lambda model, x, mask: tuple(model(x, attention_mask=mask, return_dict=False)[:2])  # noqa: E731
    return Called(library.BertModel(library.BertConfig()), call), (torch.randint(0, 30000, (1, 128)), torch.ones(1, 128).long())


def whisper():
    library = import_module("transformers")
    sizes = {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("attention_heads", 6), ("ffn_dim", 1536))}
    model = library.WhisperModel(library.WhisperConfig(d_model=384, encoder_layers=4, decoder_layers=1, **sizes))
    return Called(model.encoder, lambda encoder, x: encoder(x, return_dict=False)[0]), (torch.randn(1, 80, 3000),)


def diffusion():
    sizes = {"block_out_channels": (64, 128, 256, 256), "layers_per_block": 1, "cross_attention_dim": 256}
    model = import_module("diffusers").UNet2DConditionModel(sample_size=32, attention_head_dim=8, **sizes)
    inputs = (torch.randn(1, 4, 32, 32), torch.tensor([7]), torch.randn(1, 77, 256))
    return Called(model, lambda net, *x: net(*x, return_dict=False)[0]), inputs


LLAMA = {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 32}
NETWORKS = {
    **{name: lambda name=name: vision(name) for name in ("resnet50", "mobilenet_v3_large", "efficientnet_b0", "convnext_tiny")},
    "yolo": lambda: (Detector(), (torch.randn(1, 3, 320, 320),)),
    "unet": lambda: (UNet(), (torch.randn(1, 3, 256, 256),)),
    "bert": bert,
    "gpt2": lambda: language("GPT2", 128, 12, 12),
    "gpt2_cached": lambda: language("GPT2", 1, 12, 12),
    "whisper": whisper,
    "llama_bf16": lambda: language("Llama", 1, 22, 4, torch.bfloat16, num_key_value_heads=4, vocab_size=32000, **LLAMA),
    "sd_unet": diffusion,
}


def main(folder, *names):
    """Write the networks, or those of `names`."""
    torch.manual_seed(0)
    for name in names or NETWORKS:
        model, inputs = NETWORKS[name]()
        for norm in (x for x in model.modules() if isinstance(x, nn.BatchNorm2d)):
            norm.running_mean.normal_(0, 0.1)
            norm.running_var.uniform_(0.5, 1.5)
        model = model.eval().to(memory_format=torch.channels_last)
        file = Path(folder, name)
        with torch.no_grad():
            torch.export.save(torch.export.export(model, inputs, strict=False), file.with_suffix(".pt2"))
            torch.onnx.export(model, inputs, file.with_suffix(".onnx"), dynamo=True, external_data=name == "llama_bf16")


if __name__ == "__main__":
    main(*sys.argv[1:])
