"""MIND programs for tests: read from text, run by the declarations, made at random."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ptir_tools.core.arrays import numpy_dtype, to_literal
from ptir_tools.core.builder import Builder, single_function
from ptir_tools.core.diagnostics import Diagnostics, Violation
from ptir_tools.core.dialect import Options
from ptir_tools.core.dtypes import DType
from ptir_tools.core.evaluate import Context, run_block
from ptir_tools.core.ir import Program, Value
from ptir_tools.core.source import Source
from ptir_tools.core.types import tensor
from ptir_tools.core.verify import verify
from ptir_tools.dialects.mind import DIALECT
from ptir_tools.dialects.mind.text import FORMAT
from ptir_tools.dialects.mind.types import DTYPES

SAMPLES = sorted((Path(__file__).parent.parent / "testdata" / "mind").glob("*.ir"))


def read(text: str) -> tuple[Program, Diagnostics]:
    """The verified program of `text` and what was found."""
    diagnostics = Diagnostics(Source("test.mind.ir", text))
    program = FORMAT.read(diagnostics.source, diagnostics, Options())
    verify(program, diagnostics)
    return program, diagnostics


def good(text: str) -> Program:
    """The program of a text that must be right."""
    program, diagnostics = read(text)
    assert not diagnostics.errors, [(d.code, d.message) for d in diagnostics]
    return program


def codes(text: str) -> list[str]:
    """The codes found in `text`, in order of position."""
    return [d.code for d in read(text)[1].sorted()]


def show(program: Program) -> str:
    return "".join(FORMAT.write(program, Diagnostics(), Options()))


def run(program: Program, inputs: list[Any]) -> tuple[Any, ...]:
    """The outputs by the declared bodies."""
    return run_block(program.main, inputs, Context())


def evaluate(text: str, *inputs: Any) -> Any:
    """The lone output of a program in text."""
    (output,) = run(good(text), list(inputs))
    return output


def array(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], high: int | None = None) -> Any:
    """Random elements: floats in [-2, 2), integers from the whole range or, with `high`, in [0, high)."""
    if dtype.is_float:
        return rng.uniform(-2, 2, shape).astype(numpy_dtype(dtype))
    low, end = (0, max(high, 1)) if high is not None else (dtype.min, dtype.max)
    return rng.integers(low, end, shape, numpy_dtype(dtype))


def inputs_of(program: Program, seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [array(rng, p.type.dtype, p.type.static_shape) for p in program.main.params]


Step = Callable[[random.Random, Builder, list[Value]], Value]


def random_program(seed: int, length: int = 12) -> Program:
    """A verified program of about `length` operations on a few inputs, with several outputs."""
    r = random.Random(seed)
    program, builder = single_function(DIALECT)
    pool: list[Value] = []
    for i in range(r.randint(1, 3)):
        shape = tuple(r.randint(1, 4) for _ in range(r.randint(0, 4)))
        pool.append(builder.param(tensor(r.choice(list(DTYPES.values())), shape), f"in{i}"))
    program.main.attrs["input_names"] = [p.name for p in pool]
    while len(program.main.body) < length:
        try:
            pool.append(r.choice(STEPS)(r, builder, pool))
        except Violation:
            continue
    builder.results(*r.sample(pool, min(len(pool), 3)))
    return program


def _shape(v: Value) -> tuple[int, ...]:
    return v.type.static_shape


def _alike(r: random.Random, pool: list[Value]) -> tuple[Value, Value]:
    """Two values, often of one dtype."""
    x = r.choice(pool)
    return x, r.choice([v for v in pool if v.type.dtype is x.type.dtype])


def _binary(r: random.Random, b: Builder, pool: list[Value]) -> Value:
    return b.op(r.choice(["Add", "Sub", "Mul"]), *_alike(r, pool))


def _product(r: random.Random, b: Builder, pool: list[Value]) -> Value:
    x, y = _alike(r, pool)
    if len(_shape(x)) > 1 and r.random() < 0.5:
        y = b.op("Transpose", x, permutation=(*range(len(_shape(x)) - 2), len(_shape(x)) - 1, len(_shape(x)) - 2))
    return b.op(r.choice(["Dot", "MatMul"]), x, y)


def _unary(r: random.Random, b: Builder, pool: list[Value]) -> Value:
    return b.op(r.choice(["Neg", "Relu", "Exp", "Log"]), r.choice(pool))


def _reduction(r: random.Random, b: Builder, pool: list[Value]) -> Value:
    x = r.choice([v for v in pool if 0 not in _shape(v)])
    rank = len(_shape(x))
    axes = tuple(a - rank * r.randint(0, 1) for a in r.sample(range(rank), r.randint(0, rank)))
    return b.op(r.choice(["Sum", "Mean"]), x, axes=axes, keepdims=r.random() < 0.5)


def _movement(r: random.Random, b: Builder, pool: list[Value]) -> Value:
    x = r.choice(pool)
    rank = len(_shape(x))
    ones = [i for i, d in enumerate(_shape(x)) if d == 1]
    return r.choice(
        [
            lambda: b.op("Transpose", x, permutation=tuple(r.sample(range(rank), rank))),
            lambda: b.op("ExpandDims", x, axes=tuple(r.sample(range(rank + 1), r.randint(0, min(rank, 2))))),
            lambda: b.op("Squeeze", x, axes=tuple(r.sample(ones, r.randint(0, len(ones))))),
            lambda: b.op("Reshape", x, new_shape=(*sorted(_shape(x))[:1], -1)),
        ]
    )()


def _indexing(r: random.Random, b: Builder, pool: list[Value]) -> Value:
    x = r.choice(pool)
    shape = _shape(x)
    if r.random() < 0.3 and 0 not in shape:
        return b.op("Index", x, indices=tuple(r.randrange(d) for d in shape))
    if r.random() < 0.3 and 0 not in shape[:1]:
        dtype = r.choice([DTYPES["i32"], DTYPES["i64"]])
        wanted = tuple(r.randint(1, 3) for _ in range(r.randint(0, 2)))
        rows = np.array(r.choices(range(shape[0] if shape else 1), k=int(np.prod(wanted)))).reshape(wanted)
        return b.op("Gather", x, b.op("ConstTensor", value=to_literal(rows.astype(numpy_dtype(dtype)), tensor(dtype, wanted))))
    bounds = [(r.randint(-1, d), r.randint(-1, d + 2), r.randint(1, 3)) for d in shape]
    starts, ends, steps = (tuple(x[i] for x in bounds) for i in range(3))
    return b.op("Slice", x, starts=starts, ends=ends, steps=steps)


def _convolution(r: random.Random, b: Builder, pool: list[Value]) -> Value:
    x = r.choice([v for v in pool if len(_shape(v)) == 4] or pool)
    if len(_shape(x)) != 4:
        x = b.op("Reshape", x, new_shape=(1, 1, -1, 1))
    dtype, channels = x.type.dtype, _shape(x)[3]
    shape = (r.randint(1, 3), r.randint(1, 3), channels, r.randint(1, 3))
    weights = array(np.random.default_rng(r.randrange(1 << 30)), dtype, shape)
    f = b.op("ConstTensor", value=to_literal(weights, tensor(dtype, shape)))
    custom = tuple((r.randint(0, 2), r.randint(0, 2)) for _ in range(2))
    return b.op("Conv2d", x, f, strides=(r.randint(1, 3), r.randint(1, 3)), padding=r.choice(["Valid", "Same", custom]))


STEPS: list[Step] = [_binary, _binary, _product, _unary, _reduction, _movement, _indexing, _convolution]
