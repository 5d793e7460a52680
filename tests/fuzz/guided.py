"""Coverage-guided fuzzing of a reader, by atheris. Needs the extra `fuzz`."""

from __future__ import annotations

import random
import sys

import atheris

with atheris.instrument_imports(include=["ptir_tools", "lark"]):
    from .harness import read
    from .mutations import _WAYS, corpus


def run(form: str, arguments: list[str]) -> int:
    """Fuzz the reader of `form` until it fails or libFuzzer's arguments say to stop."""

    def mutate(data: bytes, size: int, seed: int) -> bytes:
        draw = random.Random(seed)
        if draw.random() < 0.3:
            return bytes(atheris.Mutate(data, size))
        return draw.choice(_WAYS)(data or draw.choice(corpus()[form]), form, draw)[:size]

    atheris.Setup(
        [sys.argv[0], "-timeout=5", "-rss_limit_mb=1500", *arguments], lambda data: read(form, data), custom_mutator=mutate
    )
    atheris.Fuzz()
    return 0
