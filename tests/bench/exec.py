"""How fast programs run: this toolkit's engines against the plain NumPy expression, interleaved, medians of the rounds.

OPENBLAS_NUM_THREADS=1 python -m tests.bench exec
"""

from __future__ import annotations

from statistics import median
from time import perf_counter

import numpy as np

from ptir_tools.core.builder import single_function
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dtypes import F32
from ptir_tools.core.evaluate import Context
from ptir_tools.core.ir import Literal
from ptir_tools.core.types import tensor
from ptir_tools.dialects import load_dialect
from ptir_tools.engines import RunOptions, native
from ptir_tools.engines.choose import optimized
from ptir_tools.engines.compiled import Compiled
from ptir_tools.engines.native import Executable as Native
from ptir_tools.engines.numpy import Executable as Planned


def program(*shapes):
    made, b = single_function(load_dialect("ptir"))
    return made, b, [b.param(tensor(F32, s), f"p{i}") for i, s in enumerate(shapes)]


def full(b, number, shape):
    return b.op("broadcast_to", Literal(tensor(F32), np.float32(number).tobytes()), result_shape=shape)


def spread(b, x, shape):
    return b.op("broadcast_to", x, result_shape=shape)


def matmul(n):
    made, b, (x, y) = program((n, n), (n, n))
    b.results(b.op("dot_general", x, y, contract_lhs=(1,), contract_rhs=(0,)))
    return made, lambda x, y: x @ y


def gelu(shape=(1024, 4096)):
    made, b, (x,) = program(shape)
    inner = b.op("add", full(b, 1, shape), b.op("erf", b.op("mul", x, full(b, 0.5**0.5, shape))))
    b.results(b.op("mul", b.op("mul", x, full(b, 0.5, shape)), inner))
    return made, lambda x: 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * (x * x * x))))


def softmax(shape=(4096, 1024)):
    made, b, (x,) = program(shape)
    e = b.op("exp", b.op("sub", x, spread(b, b.op("reduce_max", x, axes=(1,), keepdims=True), shape)))
    b.results(b.op("div", e, spread(b, b.op("reduce_sum", e, axes=(1,), keepdims=True), shape)))

    def plain(x):
        e = np.exp(x - x.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    return made, plain


def layer_norm(rows=1024, n=768):
    made, b, (x, g, c) = program((rows, n), (n,), (n,))
    shape, column = (rows, n), (rows, 1)
    mean = b.op("mul", b.op("reduce_sum", x, axes=(1,), keepdims=True), full(b, 1 / n, column))
    d = b.op("sub", x, spread(b, mean, shape))
    var = b.op("mul", b.op("reduce_sum", b.op("mul", d, d), axes=(1,), keepdims=True), full(b, 1 / n, column))
    scale = b.op("rsqrt", b.op("add", var, full(b, 1e-5, column)))
    y = b.op("mul", b.op("mul", d, spread(b, scale, shape)), spread(b, g, shape))
    b.results(b.op("add", y, spread(b, c, shape)))

    def plain(x, g, c):
        d = x - x.mean(1, keepdims=True)
        return d / np.sqrt((d * d).mean(1, keepdims=True) + 1e-5) * g + c

    return made, plain


def mlp(rows=128, n=256):
    made, b, (x, w, c, v) = program((rows, n), (n, 4 * n), (4 * n,), (4 * n, n))
    wide = (rows, 4 * n)
    h = b.op("add", b.op("dot_general", x, w, contract_lhs=(1,), contract_rhs=(0,)), spread(b, c, wide))
    h = b.op("maximum", h, full(b, 0, wide))
    b.results(b.op("dot_general", h, v, contract_lhs=(1,), contract_rhs=(0,)))
    return made, lambda x, w, c, v: np.maximum(x @ w + c, 0) @ v


def chain(n=1000):
    made, b, (x, y) = program((16,), (16,))
    z = x
    for _ in range(n):
        z = b.op("add", z, y)
    b.results(z)

    def plain(x, y):
        for _ in range(n):
            x = x + y
        return x

    return made, plain


WORKLOADS = {
    "matmul 256": lambda: matmul(256),
    "matmul 512": lambda: matmul(512),
    "gelu 4M": gelu,
    "softmax 4M": softmax,
    "layer norm 1024x768": layer_norm,
    "mlp 128x256": mlp,
    "1000 adds of 16": chain,
}


def contenders(made, plain, inputs):
    """What to time, by name: calls without arguments."""
    ready = optimized(made, RunOptions(), Diagnostics(made.source))
    context = Context()
    calls = {"expression": lambda: plain(*inputs)}
    for name, engine in (("numpy", Planned), *[("native", Native)] * native.available()):
        bound = engine(ready, ready.main, RunOptions()).bind(inputs)
        calls[name] = lambda bound=bound: bound(context)
    return calls


def measure(calls, rounds, clock=perf_counter):
    """Median milliseconds of each call; the order is the same in every round."""
    times = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = clock()
            call()
            times[name].append(clock() - start)
    return {name: 1e3 * median(t[1:] or t) for name, t in times.items()}


def chain_rows(rounds=9, n=1000):
    """A program made ready by the Python API, microseconds for each of its ops; at most 1.5 are wanted."""
    made, plain = chain(n)
    inputs = [np.ones(16, np.float32), np.full(16, 0.001, np.float32)]
    for engine in ("numpy", *["native"] * native.available()):
        call = Compiled(made, RunOptions(engine=engine))
        found = measure({"ours": lambda call=call: call(inputs), "expression": lambda: plain(*inputs)}, rounds)
        yield f"an add of 16 in a compiled chain, {engine}", *(1e3 * found[key] / n for key in ("ours", "expression")), "us"


def rows(rounds=9):
    """Each workload on each engine next to the NumPy expression, milliseconds."""
    yield from chain_rows(rounds)
    rng = np.random.default_rng(0)
    for name, make in WORKLOADS.items():
        made, plain = make()
        inputs = [rng.standard_normal(p.type.static_shape).astype(np.float32) for p in made.main.params]
        with np.errstate(all="ignore"):
            found = measure(contenders(made, plain, inputs), rounds)
        base = found.pop("expression")
        yield from ((f"{name}, {engine}", ours, base, "ms") for engine, ours in found.items())
