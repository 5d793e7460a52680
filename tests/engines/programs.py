"""Small programs for tests of engines, and holding every engine to the reference."""

from __future__ import annotations

from ptir_tools.core.builder import single_function
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.types import tensor
from ptir_tools.core.verify import verify
from ptir_tools.dialects import load_dialect
from ptir_tools.engines import RunOptions, compare, native, run
from ptir_tools.engines.inputs import random_inputs

FAST = ["numpy", *["native"] * native.available()]


def build(*params):
    """(program, builder, parameters) of a function over tensors (dtype, shape)."""
    program, b = single_function(load_dialect("ptir"))
    return program, b, [b.param(tensor(d, s), f"p{i}") for i, (d, s) in enumerate(params)]


def agree(program, seed=0, engines=FAST):
    """Run every engine on random inputs and hold it to the reference."""
    assert verify(program, found := Diagnostics()), list(found)
    inputs = random_inputs(program, seed)
    expected, bounds = compare.reference_outputs(program, inputs, RunOptions())
    for engine in engines:
        actual = run(program, inputs, RunOptions(engine=engine))
        assert list(actual) == list(expected)
        assert compare.compare(expected, actual, bounds) == []
    return inputs, expected
