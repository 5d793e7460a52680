"""Models of transformers, torchvision and timm with random weights: exported by torch, read, run on the default engine.

They are held to torch, within the bound of the suite `torch`. Text models have a dynamic batch and sequence, decoders a cache
that grows step by step in one session. Nothing else needs the packages: `pip install --no-deps --target FOLDER transformers
torchvision timm` and what they import, then `PYTHONPATH=FOLDER python -m tests.suites hub`.
"""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import ptir_tools as ptir
from tests.suites.report import Report
from tests.suites.torch import bounds, off, report_of

# A module, inputs, their dynamic axes, and other inputs to run, each after the one before.
Model = tuple[nn.Module, tuple[Any, ...], Any, list[tuple[Any, ...]]]

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 99}
ENCODERS: dict[str, dict[str, Any]] = {
    "albert": {"embedding_size": 16}, "bert": {}, "camembert": {}, "convbert": {"embedding_size": 32}, "data2vec-text": {},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}, "electra": {"embedding_size": 32}, "ernie": {},
    "esm": {"position_embedding_type": "rotary", "pad_token_id": 1}, "mobilebert": {"embedding_size": 16,
    "intra_bottleneck_size": 16}, "mpnet": {}, "nystromformer": {}, "roberta": {}, "roformer": {}, "squeezebert":
    {"embedding_size": 32}, "xlm-roberta": {}, "modernbert": {"global_attn_every_n_layers": 2, "local_attention": 8,
    "pad_token_id": 0}, "clip_text_model": {}, "layoutlm": {},
}  # fmt: skip
DECODERS: dict[str, dict[str, Any]] = {
    "bloom": {"n_layer": 2, "n_head": 4}, "cohere": {}, "falcon": {}, "gemma": {"head_dim": 8, "num_key_value_heads": 4},
    "gemma2": {"head_dim": 8}, "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4}, "gpt_neo": {"num_layers": 2, "num_heads": 4,
    "attention_types": [[["global"], 2]]}, "gpt_neox": {}, "gptj": {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4},
    "granite": {}, "llama": {"num_key_value_heads": 2}, "mistral": {"num_key_value_heads": 2}, "olmo2": {}, "opt": {"ffn_dim":
    64, "word_embed_proj_dim": 32}, "phi": {}, "qwen2": {"num_key_value_heads": 2}, "qwen3": {"num_key_value_heads": 2,
    "head_dim": 8}, "smollm3": {"num_key_value_heads": 2, "pad_token_id": 0}, "stablelm": {"num_key_value_heads": 4},
    "starcoder2": {"num_key_value_heads": 2},
}  # fmt: skip
VISION: dict[str, dict[str, Any]] = {
    "vit": {}, "deit": {}, "beit": {}, "dinov2": {}, "convnext": {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]},
    "swin": {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4]}, "segformer": {"depths": [1, 1, 1, 1], "hidden_sizes":
    [8, 16, 24, 32]}, "clip_vision_model": {}, "siglip_vision_model": {}, "yolos": {}, "poolformer": {}, "pvt": {},
}  # fmt: skip
TORCHVISION = (
    "alexnet convnext_tiny densenet121 efficientnet_b0 efficientnet_v2_s googlenet inception_v3 mnasnet0_5 mobilenet_v2 "
    "mobilenet_v3_small regnet_x_400mf regnet_y_400mf resnet18 resnext50_32x4d shufflenet_v2_x0_5 squeezenet1_1 swin_t "
    "swin_v2_t vgg11 vit_b_32"
)
TIMM = (
    "coat_lite_tiny convit_tiny convmixer_768_32 crossvit_tiny_240 cspresnet50 deit3_small_patch16_224 dla46_c dpn68 "
    "edgenext_xx_small efficientformer_l1 efficientvit_b0 fastvit_t8 focalnet_tiny_srf gcvit_xxtiny ghostnet_100 "
    "gmixer_24_224 hgnetv2_b0 levit_128s mixer_s32_224 mobilenetv4_conv_small mobileone_s0 mobilevit_xxs mobilevitv2_050 "
    "mvitv2_tiny nest_tiny pit_ti_224 poolformer_s12 pvt_v2_b0 repvgg_a0 res2net50_26w_4s resmlp_12_224 rexnet_100 "
    "selecsls42 sequencer2d_s tiny_vit_5m_224 tnt_s_patch16_224 twins_svt_small visformer_tiny volo_d1_224 "
    "xcit_nano_12_p16_224"
)


class Named(nn.Module):
    """The first output of a model that is called with a keyword."""

    def __init__(self, model: nn.Module, keyword: str) -> None:
        super().__init__()
        self.model, self.keyword = model, keyword

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.model(**{self.keyword: x}, return_dict=False)[0]
        return made


class Step(nn.Module):
    """One step of a decoder: the logits, and the keys and values of all layers, which have grown."""

    def __init__(self, model: nn.Module, cache: Callable[[], Any]) -> None:
        super().__init__()
        self.model, self.cache = model, cache

    def forward(self, ids: Tensor, held: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        cache = self.cache()
        for layer in range(len(held) // 2):
            cache.update(held[2 * layer], held[2 * layer + 1], layer)
        found = self.model(input_ids=ids, past_key_values=cache, use_cache=True)
        return (found.logits, *(x for layer in found.past_key_values.layers for x in (layer.keys, layer.values)))


def _tokens(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(2, 99, shape))


def _noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def _configured(kind: str, chosen: dict[str, Any], maker: str) -> nn.Module:
    transformers: Any = importlib.import_module("transformers")
    config = transformers.AutoConfig.for_model(kind, **{**SMALL, **chosen}, attn_implementation="eager")
    made: nn.Module = getattr(transformers, maker).from_config(config)
    return made


def encoder(kind: str) -> Model:
    """A text encoder, with a dynamic batch and sequence."""
    axes = {0: torch.export.Dim("batch", min=1, max=64), 1: torch.export.Dim("sequence", min=2, max=64)}
    module = Named(_configured(kind, ENCODERS[kind], "AutoModel"), "input_ids")
    return module, (_tokens(2, 7),), (axes,), [(_tokens(3, 12, seed=1),), (_tokens(1, 5, seed=2),)]


def decoder(kind: str) -> Model:
    """A step of a decoder whose cache has a dynamic length."""
    transformers: Any = importlib.import_module("transformers")
    model: Any = _configured(kind, DECODERS[kind], "AutoModelForCausalLM")
    with torch.no_grad():
        first = model(input_ids=_tokens(1, 5), use_cache=True).past_key_values
    held = tuple(x for layer in first.layers for x in (layer.keys, layer.values))
    past = torch.export.Dim("past", min=1, max=500)
    later = [(_tokens(1, 1, seed=n), tuple(torch.cat([x, x], 2)[:, :, :n] for x in held)) for n in (6, 7, 8)]
    step = Step(model, transformers.DynamicCache)
    return step, (_tokens(1, 1), held), ({}, tuple({2: past} for _ in held)), later


def picture(kind: str) -> Model:
    """A model of transformers for pictures."""
    size = {} if kind in ("convnext", "segformer", "poolformer") else {"image_size": 32, "patch_size": 8 if kind != "swin" else 4}
    if kind in ("poolformer", "pvt"):
        size = {"image_size": 64} if kind == "pvt" else {}
    plain = kind not in ("convnext", "segformer", "poolformer", "swin", "pvt")
    small = SMALL if plain else {}
    if kind == "yolos":
        size = {"image_size": [32, 32], "patch_size": 8}
    transformers: Any = importlib.import_module("transformers")
    config = transformers.AutoConfig.for_model(kind, **{**small, **size, **VISION[kind]}, attn_implementation="eager")
    width = 32 if plain or kind == "swin" else 64
    return Named(transformers.AutoModel.from_config(config), "pixel_values"), (_noise(2, 3, width, width),), None, []


def vision(name: str) -> Model:
    """A model of torchvision."""
    torchvision: Any = importlib.import_module("torchvision")
    width = {"inception_v3": 96, "vit_b_32": 224}.get(name, 64)
    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    return torchvision.models.get_model(name, weights=None, **options), (_noise(1, 3, width, width),), None, []


def timm(name: str) -> Model:
    """A model of timm."""
    package: Any = importlib.import_module("timm")
    module = package.create_model(name, pretrained=False)
    return module, (_noise(1, *module.default_cfg["input_size"]),), None, []


def _declare() -> None:
    """Declare the operators of torchvision where its compiled part, which may want another torch, is not loaded."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError:  # "operator torchvision::nms does not exist"
        kept.append(library := torch.library.Library("torchvision", "DEF"))
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


kept: list[Any] = []  # libraries that were declared
CASES: dict[str, Callable[[], Model]] = {
    **{f"transformers {kind}": (lambda kind=kind: encoder(kind)) for kind in ENCODERS},
    **{f"transformers {kind}, a step": (lambda kind=kind: decoder(kind)) for kind in DECODERS},
    **{f"transformers {kind}": (lambda kind=kind: picture(kind)) for kind in VISION},
    **{f"torchvision {name}": (lambda name=name: vision(name)) for name in TORCHVISION.split()},
    **{f"timm {name}": (lambda name=name: timm(name)) for name in TIMM.split()},
}


def judged(name: str) -> str:
    """What is wrong with a model. Raises Rejected for one that is refused."""
    torch.manual_seed(0)
    _declare()
    with warnings.catch_warnings(action="ignore"):
        logging.disable(logging.CRITICAL)
        try:
            module, inputs, axes, later = CASES[name]()
            module = module.eval()
            program = ptir.from_torch(module, inputs, dynamic=axes)
        finally:
            logging.disable(logging.NOTSET)
    session = ptir.compile(program)
    for given in (inputs, *later):
        flat = [x for y in given for x in (y if isinstance(y, tuple) else (y,))]
        found = session([x.numpy() for x in flat])
        if wrong := off(found, bounds(_Flat(module, given), tuple(flat))):
            return f"{[list(x.shape) for x in flat]}: {wrong}"
    return ""


class _Flat(nn.Module):
    """A module that takes its tensors one by one."""

    def __init__(self, module: nn.Module, like: tuple[Any, ...]) -> None:
        super().__init__()
        self.module, self.like = module, like

    def forward(self, *flat: Tensor) -> Any:
        rest = iter(flat)
        return self.module(*(tuple(next(rest) for _ in y) if isinstance(y, tuple) else next(rest) for y in self.like))


def run(only: str = "", every: int = 1) -> Report:
    """Judge the models whose names contain `only`."""
    return report_of("transformers, torchvision, timm", [n for n in CASES if only in n][::every], judged)
