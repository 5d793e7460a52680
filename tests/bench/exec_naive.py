"""Contractions in Tiny's naive form next to the same computation written with `dot_general`: time of a call once both are made
ready, and peak memory of a whole run.

OPENBLAS_NUM_THREADS=1 python -m tests.bench exec_naive
"""

from __future__ import annotations

import tracemalloc
from functools import partial
from time import process_time

import numpy as np

from ptir_tools.core.builder import single_function
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.dtypes import F32
from ptir_tools.core.ir import Literal
from ptir_tools.core.source import Source
from ptir_tools.core.types import tensor
from ptir_tools.core.verify import verify
from ptir_tools.dialects import load_dialect, load_format
from ptir_tools.engines import RunOptions, native, run
from ptir_tools.engines.compiled import Compiled
from tests.bench.exec import measure
from tests.engines.naive_graphs import attention, convolution, product


def read(text):
    """The verified Tiny program of a text."""
    diagnostics = Diagnostics(Source("graph.json", text))
    program = load_format("tiny").read(diagnostics.source, diagnostics, Options())
    assert verify(program, diagnostics)
    return program


def written(*shapes):
    made, b = single_function(load_dialect("ptir"))
    return made, b, [b.param(tensor(F32, s), f"p{i}") for i, s in enumerate(shapes)]


def product_written(m, k, n):
    made, b, (x, y) = written((m, k), (k, n))
    b.results(b.op("dot_general", x, y, contract_lhs=(1,), contract_rhs=(0,)))
    return made


def convolution_written(channels, size, out):
    """Patches, and a dot_general of them with the filters."""
    made, b, (x, w) = written((1, channels, size, size), (out, channels, 3, 3))
    seen = b.op("extract_patches", b.op("transpose", x, perm=(0, 2, 3, 1)), window=(3, 3), padding=((1, 1), (1, 1)))
    taps = b.op("reshape", b.op("transpose", w, perm=(2, 3, 1, 0)), new_shape=(9 * channels, out))
    y = b.op("dot_general", seen, taps, contract_lhs=(3,), contract_rhs=(0,))
    b.results(b.op("transpose", y, perm=(0, 3, 1, 2)))
    return made


def attention_written(heads, length, width):
    made, b, (q, k, v) = written(*[(1, heads, length, width)] * 3)
    square, batch = (1, heads, length, length), {"batch_lhs": (0, 1), "batch_rhs": (0, 1)}
    scale = b.op("broadcast_to", Literal(tensor(F32), np.float32(0.125).tobytes()), result_shape=square)
    s = b.op("mul", b.op("dot_general", q, k, **batch, contract_lhs=(3,), contract_rhs=(3,)), scale)
    row = {"axes": (3,), "keepdims": True}
    e = b.op("exp", b.op("sub", s, b.op("broadcast_to", b.op("reduce_max", s, **row), result_shape=square)))
    p = b.op("div", e, b.op("broadcast_to", b.op("reduce_sum", e, **row), result_shape=square))
    b.results(b.op("dot_general", p, v, **batch, contract_lhs=(3,), contract_rhs=(2,)))
    return made


PAIRS = {
    "product 1024^3": (product(1024, 1024, 1024), product_written(1024, 1024, 1024)),
    "convolution 56x56x64, 3x3": (convolution(64, 56, 64), convolution_written(64, 56, 64)),
    "attention 12x512x512x64": (attention(12, 512, 64), attention_written(12, 512, 64)),
}


def peak(call):
    """Bytes at the peak of a call."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def rows(rounds=7):
    """Milliseconds of a call and MiB of a run, naive and written with dot_general."""
    rng = np.random.default_rng(0)
    for name, (text, plain) in PAIRS.items():
        naive = read(text)
        inputs = [rng.standard_normal(p.type.static_shape, np.float32) for p in plain.main.params]
        for engine in ("numpy", *["native"] * native.available()):
            options = RunOptions(engine=engine, threads=1)
            pair = {"naive": naive, "written": plain}
            ready = {key: partial(Compiled(p, options, reuse=True), inputs) for key, p in pair.items()}
            found = measure(ready, rounds, process_time)
            yield f"{name}, {engine}", found["naive"], found["written"], "ms"
            taken = {key: peak(partial(run, p, inputs, options)) / (1 << 20) for key, p in pair.items()}
            yield f"{name}, {engine}, peak", taken["naive"], taken["written"], "MiB"
