"""cse of PTIR: what is cheap to make again is merged only where memory allows it."""

from __future__ import annotations

import random

import numpy as np
from test_rules import write

from ptir_tools.core.arrays import to_literal
from ptir_tools.core.builder import Builder, single_function
from ptir_tools.core.dialect import Program, clone
from ptir_tools.core.dtypes import F32
from ptir_tools.core.ir import Value
from ptir_tools.core.types import tensor
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.engines.compare import check
from ptir_tools.passes import run_pipeline
from ptir_tools.plan.record import Method, plan

SHAPES = ((4, 4), (4, 64), (16, 16), (32,))


def masked(seed: int) -> Program:
    """A program in which no data is computed twice, but masks are, of four shapes."""
    rng = random.Random(seed)
    program, b = single_function(DIALECT)
    values = {s: [b.param(tensor(F32, s))] for s in SHAPES}
    for n in range(rng.randint(4, 16)):
        shape = rng.choice(SHAPES)
        own = to_literal(np.full(shape, n, np.float32), tensor(F32, shape))
        x = b.op("add", rng.choice(values[shape]), own)
        if rng.random() < 0.6:
            x = b.op(rng.choice(("add", "mul")), *rng.sample([x, mask(b, rng.randrange(8), shape)], 2))
        if len(shape) == 2 and rng.random() < 0.3:
            y = rng.choice(values[shape])
            x = b.op("dot_general", x, y, contract_lhs=(1,), contract_rhs=(1,), batch_lhs=(), batch_rhs=())
        values.setdefault(x.type.shape, []).append(b.op("exp", x))
    b.results(*(v[-1] for v in values.values()))
    run_pipeline(program, "dce")
    return program


def mask(b: Builder, kind: int, shape: tuple[int, ...]) -> Value:
    """One of eight: positions along an axis, negated or not, seen as a row and back or not."""
    made = b.op("iota", shape=shape, dtype=F32, axis=kind & 1 & len(shape) - 1)
    if kind & 2:
        made = b.op("neg", made)
    return b.op("reshape", b.op("reshape", made, new_shape=(-1,)), new_shape=shape) if kind & 4 else made


def peak(program: Program) -> int:
    return plan(program, method=Method("greedy")).functions["main"].lower_bound


def test_masks_are_merged_where_that_raises_no_peak() -> None:
    kept = merged = 0
    for seed in range(150):
        program = masked(seed)
        after, every = clone(program), clone(program)
        run_pipeline(after, "cse")
        run_pipeline(every, "cse{keep-peak=false}")
        assert peak(after) <= peak(program), seed
        again = clone(after)
        run_pipeline(again, "cse")
        assert write(again) == write(after), seed
        merged += len(program.main.body) - len(after.main.body)
        kept += len(after.main.body) - len(every.main.body)
        assert seed % 10 or not check(program, after, runs=1).diverged, seed
    assert min(kept, merged) > 30
