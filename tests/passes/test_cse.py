"""cse of PTIR: what is cheap to make again is merged only where memory allows it."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ptir_tools.core.arrays import to_literal
from ptir_tools.core.builder import Builder, single_function
from ptir_tools.core.dialect import Program, clone
from ptir_tools.core.dtypes import F32
from ptir_tools.core.ir import Literal, Value
from ptir_tools.core.types import Sym, tensor
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.engines import RunOptions, run
from ptir_tools.engines.compare import check
from ptir_tools.passes import run_pipeline
from ptir_tools.plan.record import Method, plan
from ptir_tools.rewrite.constants import same_operand
from tests.convert.translations import parse
from tests.rewrite.test_rules import write

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


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("cast(%x) -> tensor<f16, 3>", "cast(%x) -> tensor<bf16, 3>"),
        ("iota() axis[0] -> tensor<si32, 3>", "iota() axis[0] -> tensor<si64, 3>"),
        ("iota() axis[0] -> tensor<si32, 3>", "iota() axis[0] -> tensor<si32, 4>"),
        ("constant() value[dense<[1, 2, 3]>] -> tensor<si32, 3>", "constant() value[dense<[1, 2, 3]>] -> tensor<ui32, 3>"),
        ("constant() value[dense<0.0>] -> tensor<f32, 3>", "constant() value[dense<-0.0>] -> tensor<f32, 3>"),
        ("add(%x, dense<0.0> : tensor<f32, 3>) -> tensor<f32, 3>", "add(%x, dense<-0.0> : tensor<f32, 3>) -> tensor<f32, 3>"),
        ("bitcast(%x) dtype[si32] -> tensor<si32, 3>", "bitcast(%x) dtype[ui32] -> tensor<ui32, 3>"),
        ("top_k(%x) k[3] -> (tensor<f32, 3>, tensor<si32, 3>)", "top_k(%x) k[2] -> (tensor<f32, 2>, tensor<si32, 2>)"),
    ],
)
def test_ops_of_one_kind_on_the_same_operand_stay_apart_by_type_and_attribute(one: str, other: str) -> None:
    types = [text.rpartition("-> ")[2] for text in (one, other)]
    results = ", ".join(f"({t[1:-1]})" if t.startswith("(") else t for t in types)

    def ran(first: str, second: str, *passes: str) -> tuple[int, list[np.ndarray]]:
        body = f"  %a = {first}\n  %b = {second}\n  return %a, %b\n"
        program = parse(f"func @f(%x: tensor<f32, 3>) -> ({results}) {{\n{body}}}\n", "ptir")
        for name in passes:
            run_pipeline(program, name)
        outputs = run(program, [np.array([2.5, -1, 0], np.float32)], RunOptions(engine="reference"))
        return len(program.main.body), list(outputs.values())

    (_, before), (count, after) = ran(one, other), ran(one, other, "cse")
    assert count == 2
    assert [(x.dtype, x.shape, x.tobytes()) for x in before] == [(x.dtype, x.shape, x.tobytes()) for x in after]
    if types[0] == types[1]:
        assert ran(one, one, "cse")[0] == 1


def test_ops_whose_extents_are_equal_expressions_are_equal() -> None:
    """Both extents are 2 N: the second symbol is the first."""
    text = """func @f(%x: tensor<f32, ?N>) -> (tensor<f32, ?A>, tensor<f32, ?B>) {
  %a = concat(%x, %x) axis[0] -> tensor<f32, ?A>
  %b = concat(%x, %x) axis[0] -> tensor<f32, ?B>
  %p = exp(%a) -> tensor<f32, ?A>
  %q = exp(%b) -> tensor<f32, ?B>
  return %p, %q
}
"""
    program = parse(text, "ptir")
    run_pipeline(program, "cse")
    assert not check(parse(text, "ptir"), parse(write(program), "ptir")).diverged
    assert sum(op.defn.short == "concat" for op in program.main.body) == 1


def test_equal_ops_are_those_of_one_type_whose_bits_are_known() -> None:
    """A constant without its bits equals no other. Nor does an op of which more is known than of another."""
    t = tensor(F32, (2, 3))
    _, b = single_function(DIALECT)
    x = b.param(t)
    unknown, known = Literal(t, None), to_literal(np.ones((2, 3), np.float32), t)
    made = [b.op(*op, **attrs) for op, attrs in 2 * [
        (("constant",), {"value": unknown}), (("constant",), {"value": known}), (("exp", x), {}),
    ]]  # fmt: skip
    assert [same_operand(v, w) for v, w in zip(made[:3], made[3:], strict=True)] == [False, True, True]
    made[5].type = tensor(F32, (Sym("N"), 3))
    assert not same_operand(made[2], made[5]) and same_operand(made[2], made[2])
