"""MIND programs for tests: read from text, run by the declarations, made at random."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ptir_tools.core.arrays import numpy_dtype
from ptir_tools.core.choices import Seeded
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.dtypes import DType
from ptir_tools.core.evaluate import Context, run_block
from ptir_tools.core.source import Source
from ptir_tools.core.verify import verify
from ptir_tools.dialects.mind.generate import generate
from ptir_tools.dialects.mind.text.format import FORMAT
from ptir_tools.engines.inputs import random_inputs

SAMPLES = sorted((Path(__file__).parents[2] / "testdata" / "mind").glob("*.ir"))


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
    """Ordinary numbers; indices that the program can take."""
    rng, params = np.random.default_rng(seed), program.main.params
    fitting = dict(zip(params, random_inputs(program, seed).values(), strict=True))
    indices = {x for op in program.main.body if op.defn.short == "Gather" for x in op.operands[1:]}
    drawn = {p: array(rng, p.type.dtype, p.type.static_shape) for p in params}
    return [fitting[p] if p in indices else drawn[p] for p in params]


def random_program(seed: int, length: int = 20) -> Program:
    """A verified program of up to `length` steps."""
    program = generate(Seeded(seed), size=length)
    diagnostics = Diagnostics()
    assert verify(program, diagnostics), [d.message for d in diagnostics]
    return program
