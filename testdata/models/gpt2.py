"""GPT-2: token and position embedding, blocks of causal attention and a GELU network, logits tied to the embedding.

Three programs on one set of weights: the logits of whole sequences; greedy decoding as a `while` that computes every
position again; greedy decoding as a `scan` over positions that caches keys and values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from common import Constants, Weights, causal, linear, softmax

from ptir_tools import Graph, Program, Tensor


@dataclass(frozen=True)
class Config:
    """The sizes of a model; GPT-2's own are 50257, 1024, 768, 12, 12."""

    vocabulary: int = 96
    context: int = 16
    width: int = 48
    heads: int = 4
    layers: int = 2
    epsilon: float = 1e-5

    @property
    def head(self) -> int:
        """The width of a head."""
        return self.width // self.heads


CONFIG = Config()
BATCH, PROMPT = 2, 5


def weights(c: Config = CONFIG) -> dict[str, np.ndarray]:
    """Parameters under GPT-2's names."""
    w, d = Weights(2), c.width
    w.add("wte", c.vocabulary, d, within=0.3)
    w.add("wpe", c.context, d, within=0.5)
    for i in range(c.layers):
        for norm in ("ln_1", "ln_2"):
            w.add(f"h{i}.{norm}.weight", d, within=0.3, about=1.0)
            w.add(f"h{i}.{norm}.bias", d, within=0.1)
        shapes = {"attn.c_attn": (d, 3 * d), "attn.c_proj": (d, d), "mlp.c_fc": (d, 4 * d), "mlp.c_proj": (4 * d, d)}
        for name, shape in shapes.items():
            w.add(f"h{i}.{name}.weight", *shape)
            w.add(f"h{i}.{name}.bias", shape[1], within=0.1)
    w.add("ln_f.weight", d, within=0.3, about=1.0)
    w.add("ln_f.bias", d, within=0.1)
    return w.arrays


def inputs() -> dict[str, dict[str, np.ndarray]]:
    """What the stored results were computed on, by program."""
    tokens = np.random.RandomState(3).randint(0, CONFIG.vocabulary, (BATCH, CONFIG.context)).astype(np.int32)
    prompt = tokens[:, :PROMPT].copy()
    return {"gpt2_prefill": {"tokens": tokens}, "gpt2_greedy": {"prompt": prompt}, "gpt2_cached": {"prompt": prompt}}


class Model:
    """The parts of the network, over constants of one dtype."""

    def __init__(self, c: Config, dtype: str) -> None:
        self.c = c
        self.w = Constants(weights(c), dtype)

    def norm(self, x: Tensor, name: str) -> Tensor:
        """Layer norm over the last axis."""
        return x.layer_norm(self.w(x, f"{name}.weight"), self.w(x, f"{name}.bias"), self.c.epsilon)

    def dense(self, x: Tensor, name: str) -> Tensor:
        """A linear layer."""
        return linear(x, self.w(x, f"{name}.weight"), self.w(x, f"{name}.bias"))

    def projections(self, x: Tensor, name: str) -> list[Tensor]:
        """Query, key and value: a third each of the columns of one layer."""
        d = self.c.width
        weight, bias = self.w(x, f"{name}.weight"), self.w(x, f"{name}.bias")
        return [linear(x, weight.slice([0, at], [d, d]), bias.slice([at], [d])) for at in (0, d, 2 * d)]

    def mlp(self, x: Tensor, layer: str) -> Tensor:
        """Two linear layers with GELU (by tanh) between them."""
        h = self.dense(x, f"{layer}.mlp.c_fc")
        gelu = h * 0.5 * ((h + h * h * h * 0.044715) * (2 / np.pi) ** 0.5).tanh().add(1)
        return self.dense(gelu, f"{layer}.mlp.c_proj")

    def logits(self, x: Tensor) -> Tensor:
        """Scores of the vocabulary, tied to the embedding."""
        return self.norm(x, "ln_f").dot_general(self.w(x, "wte"), contract_lhs=[x.rank - 1], contract_rhs=[1])

    def attention(self, x: Tensor, name: str) -> Tensor:
        """Causal attention over `[batch, time, width]`."""
        batch, time, _ = x.shape
        q, k, v = (
            part.reshape([batch, time, self.c.heads, self.c.head]).transpose([0, 2, 1, 3])
            for part in self.projections(x, f"{name}.c_attn")
        )
        mixed = softmax(causal(q @ k.transpose([0, 1, 3, 2]) * self.c.head**-0.5)) @ v
        return self.dense(mixed.transpose([0, 2, 1, 3]).reshape(x.shape), f"{name}.c_proj")

    def sequence(self, tokens: Tensor) -> Tensor:
        """The logits `[batch, time, vocabulary]` of tokens `[batch, time]`."""
        x = self.w(tokens, "wte").take(tokens)
        places = self.w(tokens, "wpe").take(tokens.block.iota(tokens.shape[1:], "si32", 0))
        x = x + places.broadcast_like(x)
        for i in range(self.c.layers):
            x = x + self.attention(self.norm(x, f"h{i}.ln_1"), f"h{i}.attn")
            x = x + self.mlp(self.norm(x, f"h{i}.ln_2"), f"h{i}")
        return self.logits(x)

    def cached(self, x: Tensor, name: str, place: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Attention of one position `[batch, width]` to those before it and itself; the caches with it."""
        b, one = x.block, [BATCH, self.c.heads, 1, self.c.head]
        q, k, v = (part.reshape(one) for part in self.projections(x, f"{name}.c_attn"))
        zero = b.constant([0], "si32")
        start = b.concat([zero, zero, place.reshape([1]), zero], axis=0)
        keys, values = (cache.dynamic_update_slice(new, start, one) for cache, new in ((keys, k), (values, v)))
        scores = q @ keys.transpose([0, 1, 3, 2]) * self.c.head**-0.5
        seen = b.iota(scores.shape, "si32", 3) <= place.broadcast_to(scores.shape)
        mixed = softmax(seen.select(scores, float("-inf"))) @ values
        return self.dense(mixed.reshape(x.shape), f"{name}.c_proj"), keys, values

    def step(self, token: Tensor, place: Tensor, caches: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """The logits `[batch, vocabulary]` of one token `[batch]` at a place, and the caches with it."""
        x = self.w(token, "wte").take(token)
        x = x + self.w(token, "wpe").take(place).broadcast_like(x)
        kept: list[Tensor] = []
        for i in range(self.c.layers):
            mixed, *pair = self.cached(self.norm(x, f"h{i}.ln_1"), f"h{i}.attn", place, *caches[2 * i : 2 * i + 2])
            kept += pair
            x = x + mixed
            x = x + self.mlp(self.norm(x, f"h{i}.ln_2"), f"h{i}")
        return self.logits(x), kept


def prefill(dtype: str = "f32", c: Config = CONFIG) -> Program:
    """The logits of tokens `[?B, ?T]`."""
    g = Graph()
    return g.returns(Model(c, dtype).sequence(g.input("tokens", "si32", ("B", "T"))).named("logits"))


def greedy(dtype: str = "f32", c: Config = CONFIG) -> Program:
    """A prompt continued to the length of the context, every position computed again for each token."""
    g, model = Graph(), Model(c, dtype)
    prompt = g.input("prompt", "si32", (BATCH, PROMPT))

    def unfinished(place: Tensor, tokens: Tensor) -> tuple[Tensor, ...]:
        return place < c.context, place, tokens

    def extend(place: Tensor, tokens: Tensor) -> tuple[Tensor, ...]:
        b = place.block
        zero = b.constant([0], "si32")
        before, here = (b.concat([zero, at.reshape([1])], axis=0) for at in (place - 1, place))
        best = model.sequence(tokens).argmax(2).dynamic_slice(before, [BATCH, 1])
        return place + 1, tokens.dynamic_update_slice(best, here, [BATCH, 1])

    padded = prompt.pad([0, 0], [0, c.context - PROMPT])
    done = g.while_([g.constant(PROMPT, "si32").named("start"), padded], unfinished, extend).named("done")
    return g.returns(done[1])


def cached(dtype: str = "f32", c: Config = CONFIG) -> Program:
    """The same, one position a step; also the logits of every step."""
    g, model = Graph(), Model(c, dtype)
    prompt = g.input("prompt", "si32", (BATCH, PROMPT))
    steps = c.context - 1
    empty = g.constant(np.zeros((BATCH, c.heads, c.context, c.head)), dtype).named("empty")
    forced = prompt.transpose([1, 0]).pad([0, 0], [steps - PROMPT, 0]).named("forced")
    first = prompt.slice([0, 0], [BATCH, 1]).reshape([BATCH])

    def step(token: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        *caches, place, given = rest
        token = (place < PROMPT).broadcast_like(token).select(given, token)
        logits, kept = model.step(token, place, caches)
        return logits.argmax(1), *kept, token, logits

    places = g.iota([steps], "si32", 0).named("places")
    last, *_, tokens, logits = g.scan([first, *[empty] * (2 * c.layers)], [places, forced], step)
    whole = g.concat([tokens, last.reshape([1, BATCH])], axis=0).transpose([1, 0])
    return g.returns(whole.named("tokens"), logits.transpose([1, 0, 2]).named("logits"))


PROGRAMS = {"gpt2_prefill": prefill, "gpt2_greedy": greedy, "gpt2_cached": cached}
