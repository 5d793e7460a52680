"""Real models reach PTO: the programs of testdata/models, tiled for both targets, run as torch does, in every order."""

import numpy as np
import pytest

from ptir_tools.convert import translate
from ptir_tools.convert.options import CONSTANTS
from ptir_tools.core import arrays, symbols
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, clone
from ptir_tools.core.ir import result_names
from ptir_tools.engines import RunOptions, run
from tests import models
from tests.convert.ptir_to_pto.programs import TARGETS, reread

QUICK = ("llama", "quantized_mlp", "gpt2_prefill")


def bound(name):
    """The program of a model with the extents of its stored inputs."""
    before = models.program(name)
    if not symbols.symbols(before):
        return before
    given = models.inputs(name).values()
    pairs = [(d, n) for p, x in zip(before.main.params, given, strict=True) for d, n in zip(p.type.shape, x.shape, strict=True)]
    before = clone(before)
    symbols.bind(before, {d.name: n for d, n in pairs if not isinstance(d, int)})
    return before


def executed(name, before, after, constants, order):
    """What the tiled program leaves in the memory of its results."""
    known = {k: arrays.from_literal(x) for k, x in constants.items()} | models.inputs(name)
    given = {}
    for p in after.main.params:
        zeros = np.zeros(p.type.shape, arrays.numpy_dtype(p.type.dtype))
        given[p.name] = known[p.name].reshape(zeros.shape) if p.name in known else zeros
    left = list(run(after, given, RunOptions(engine="reference", order=order)).values())
    names = result_names(before.main)
    shapes = [models.torch(name)[n].shape for n in names]
    return {n: x.reshape(shape) for n, x, shape in zip(names, left[-len(names) :], shapes, strict=True)}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in models.MODULES])
def test_a_model_runs_on_tiles_as_torch_does(name, target):
    before = bound(name)
    options = Options(target=target, constants={})
    after = translate(before, "pto", found := Diagnostics(before.source), options)
    assert after is not None and not found.items, found.items
    after = reread(after)
    for order in ("sequential", "adversarial"):
        models.hold(name, executed(name, before, after, options[CONSTANTS], order), "f32")
