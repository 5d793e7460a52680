"""The models of testdata/models and what they become in Tiny and in MIND: milliseconds of a run once both are made ready, next to
the original on the same engine, and by how many ops more they are. A ratio below 1.5 is the aim: the engines raise what the
translation lowered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import numpy as np
from safetensors.numpy import load_file

import ptir_tools
from ptir_tools.core.arrays import Array, from_literal
from ptir_tools.core.diagnostics import Rejected
from ptir_tools.core.dialect import Program, clone
from ptir_tools.core.ir import Literal
from ptir_tools.core.symbols import bind
from ptir_tools.engines import signature
from tests.bench.ir import Row

FOLDER = Path(__file__).parent.parent.parent / "testdata" / "models"
SYMBOLS = {"gpt2_prefill": {"B": 2, "T": 16}, "quantized_mlp": {"N": 7}}
SECONDS = 0.5  # at least, of each side, interleaved
TARGETS = ("tiny", "mind")


def arguments(program: Program, given: dict[str, Array], constants: dict[str, Literal]) -> dict[str, Array]:
    """What `program` takes: inputs by name, in its own dtypes, and the constants that it keeps outside."""
    known = {**given, **{name: from_literal(x) for name, x in constants.items()}}
    return {p.name: known[p.name].astype(dtype_of(p)) for p in signature.signature(program)}


def dtype_of(port: signature.Port) -> np.dtype:
    """The dtype of a port's arrays."""
    return np.dtype(port.type.dtype.numpy)  # type: ignore[union-attr]


def quickest(calls: list[ptir_tools.Compiled], given: list[dict[str, Array]]) -> list[float]:
    """The least seconds of a call of each, interleaved."""
    best = [float("inf")] * len(calls)
    end = perf_counter() + SECONDS * len(calls)
    while perf_counter() < end or best[0] == float("inf"):
        for i, call in enumerate(calls):
            start = perf_counter()
            call(given[i])
            best[i] = min(best[i], perf_counter() - start)
    return best


def rows() -> Iterator[Row]:
    """A row per model and target that takes it."""
    for path in sorted(FOLDER.glob("*.ptir")):
        name = path.stem
        original = clone(ptir_tools.read(path))
        bind(original, SYMBOLS.get(name, {}))
        inputs = load_file(FOLDER / f"{name}.inputs.safetensors")
        for target in TARGETS:
            constants: dict[str, Literal] = {}
            try:
                made = ptir_tools.translate(original, target, constants=constants, lossy=target == "mind")
            except Rejected:
                continue
            if constants:  # weights are constants again, as in the original
                made, constants = ptir_tools.translate(made, "ptir", constants=constants), {}
            given = [arguments(original, inputs, {}), arguments(made, inputs, constants)]
            for engine in ("numpy", "native"):
                calls = [ptir_tools.compile(p, engine=engine) for p in (original, made)]
                for call, x in zip(calls, given, strict=True):
                    call(x)
                before, after = quickest(calls, given)
                yield f"{name} in {target}, {engine}", 1e3 * after, 1e3 * before, "ms"
