"""Random inputs that an index is computed from: whatever the arithmetic, the run succeeds."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.dialects.ptir.ops.needs import known_range
from ptir_tools.engines.inputs import random_inputs

V = "tensor<si64, 4>"
INDICES = {  # an operand that is a number is a constant
    "sum": ["%k = add(%i, 3)"],
    "constants": [f"%c = constant() value[dense<[1, 0, 2, 3]>] -> {V}", "%k = add(%c, %i)"],
    "two sums": ["%s = add(%i, %j)", "%k = add(%s, %j)"],
    "difference": ["%k = sub(%i, 2)"],
    "from the end": ["%k = sub(4, %i)"],
    "difference of inputs": ["%k = sub(%i, %j)"],
    "product": ["%m = mul(%i, 2)", "%k = add(%m, -1)"],
    "product of inputs": ["%k = mul(%i, %j)"],
    "quotient": ["%k = div(%i, 3)"],
    "negation": ["%n = neg(%i)", "%k = add(%n, 4)"],
    "larger": ["%m = maximum(%i, %j)", "%k = minimum(%m, 3)"],
    "clamp": ["%k = clamp(%i, 1, 3)"],
    "joined": [
        "%a = slice(%i) starts[0] sizes[2] -> tensor<si64, 2>", "%b = slice(%j) starts[1] sizes[2] -> tensor<si64, 2>",
        "%k = concat(%a, %b) axis[0]",
    ],
    "looked up": ["%t = take(%i, 1)", "%k = add(%t, 1)"],
    "from the end where negative": [
        "%e = add(%i, 5)", "%f = compare_lt(%i, 0) -> tensor<i1, 4>", "%k = select(%f, %e, %i)",
    ],
    "turned and repeated": [
        "%c = constant() value[dense<[3, 2]>] -> tensor<si64, 2>", f"%t = tile(%c) repeats[2] -> {V}",
        f"%p = stop_gradient(%t) -> {V}", "%k = sub(%i, %p)",
    ],
    "flat": [
        "%r = iota() axis[0] -> tensor<si64, 2>", "%b = mul(%j, 0)", "%in = take(%r, %b)", "%m = mul(%i, 2)", "%k = add(%m, %in)",
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", INDICES)
def test_an_index_is_in_range_whatever_it_is_computed_from(name: str) -> None:
    number = re.compile(r"(?<=[(,])( ?)(-?\d+)(?=[,)])")
    lines = [line if "[" in line else number.sub(rf"\1dense<\2> : {V}", line) for line in INDICES[name]]
    lines = [line if "->" in line else f"{line} -> {V}" for line in lines]
    head = "func @f(%x: tensor<f32, 5>, %i: tensor<si64, 4>, %j: tensor<si64, 4>) -> tensor<f32, 4> {"
    tail = ["%y = take(%x, %k) -> tensor<f32, 4>", "return %y", "}", ""]
    program = ptir.read("\n".join([head, *lines, *tail]))
    drawn = set()
    for seed in range(40):
        inputs = random_inputs(program, seed)
        ptir.run(program, inputs, engine="reference")
        drawn |= {int(n) for n in inputs["i"]}
    assert len(drawn) > 1 or name == "product of inputs"  # a need leaves something to draw


def test_an_unsigned_index_is_not_below_zero() -> None:
    text = "func @f(%x: tensor<f32, 5>, %i: tensor<ui8, 4>) -> tensor<f32, 4> {\n  %w = cast(%i) -> tensor<si64, 4>\n"
    text += (
        "  %k = add(%w, dense<2> : tensor<si64, 4>) -> tensor<si64, 4>\n  %y = take(%x, %k) -> tensor<f32, 4>\n  return %y\n}\n"
    )
    program = ptir.read(text)
    for seed in range(20):
        inputs = random_inputs(program, seed)
        assert (inputs["i"] < 3).all() and inputs["i"].dtype == np.uint8


# Ops that give no 0 where no operand has one; `{}` is the value before.
KEEP_FROM_ZERO = [
    "neg({}) -> V", "abs({}) -> V", "sign({}) -> V", "stop_gradient({}) -> V", "reshape({}) new_shape[4] -> V",
    "select(%p, {}, %j) -> V", "select(%p, %j, {}) -> V", "maximum({}, %j) -> V", "minimum(%j, {}) -> V", "take({}, %at) -> V",
    "tile({}) repeats[1] -> V",
    "transpose({}) perm[0] -> V", "slice({}) starts[0] sizes[4] -> V", "concat({}) axis[0] -> V",
]  # fmt: skip


@pytest.mark.parametrize("last", KEEP_FROM_ZERO)
def test_a_divisor_is_not_zero_whatever_it_is_made_by(last: str) -> None:
    """Behind each of the ops, each of them."""
    head = "func @f(%x: V, %i: V, %j: V, %p: tensor<i1, 4>) -> V {\n  %at = constant() value[dense<[3, 1, 0, 2]>] -> V\n"
    for first in KEEP_FROM_ZERO:
        ops = f"  %a = {first.format('%i')}\n  %d = {last.format('%a')}\n  %y = div(%x, %d) -> V\n  return %y\n}}\n"
        program = ptir.read((head + ops).replace("V", V))
        inputs = [random_inputs(program, seed) for seed in range(12)]
        assert all((x["i"] != 0).all() for x in inputs), first
        if "%j" in first + last:
            assert all((x["j"] != 0).all() for x in inputs), first
        assert any((x["x"] == 0).any() for x in inputs)  # as it comes where nothing needs more


# Integers that are known before anything runs, and some that are not.
KNOWN = [
    "stop_gradient(%c)", "concat(%c, %d) axis[0]", "concat(%d, %c) axis[0]", "concat(%d, %i) axis[0]",
    "pad(%c) low[1] high[0] pad_value[9]", "pad(%c) low[0] high[1] pad_value[-9]", "slice(%c) starts[1] sizes[2]",
    "tile(%c) repeats[2]", "take(%c, %i)", "take(%i, %c)",
    "gather(%c, %i) axis[0]", "reshape(%c) new_shape[2, 2]", "transpose(%m) perm[1, 0]", "broadcast_to(%c) result_shape[3, 4]",
    "stop_gradient(%d)", "iota() axis[0]", "iota() axis[1]", "select(%p, %c, %d)", "dynamic_slice(%c, %s) sizes[2]",
]  # fmt: skip


@pytest.mark.parametrize("op", KNOWN)
def test_what_is_known_of_integers_holds_when_they_are_computed(op: str) -> None:
    shapes = {"con": "8", "pad": "5", "sli": "2", "til": "8", "res": "2x2", "tra": "2x2", "bro": "3x4", "iot": "3x5", "dyn": "2"}
    made = f"tensor<si64, {shapes.get(op[:3], '4')}>"
    text = (
        f"func @f(%i: {V}, %s: tensor<si64, 1>, %p: tensor<i1, 4>) -> {made} {{\n"
        f"  %c = constant() value[dense<[3, 1, 0, 2]>] -> {V}\n  %d = constant() value[dense<[-5, 7, 0, 0]>] -> {V}\n"
        "  %m = constant() value[dense<[[2, 3], [-1, 2]]>] -> tensor<si64, 2x2>\n"
        f"  %y = {op} -> {made}\n  return %y\n}}\n"
    )
    program = ptir.read(text)
    (y,) = program.main.results
    known = known_range(y)
    given = {"i": np.array([0, 1, 2, 3]), "s": np.array([1]), "p": np.array([True, False, True, False])}
    (found,) = ptir.run(program, given, engine="reference").values()
    unknown = op.startswith(("select", "take(%i")) or op.startswith("concat(%d, %i")
    assert unknown is (known is None)
    assert known is None or known[0] <= found.min() <= found.max() <= known[1]


SUMS = [
    "cumsum(%i) axis[0] -> {t}", "cumsum(%i) axis[0] reverse[true] -> {t}", "cumsum(%i) axis[0] exclusive[true] -> {t}",
    "reduce_sum(%i) axes[0] keepdims[true] -> tensor<si64, 1>", "reduce_max(%i) axes[0] keepdims[true] -> tensor<si64, 1>",
    "reduce_min(%i) axes[0] keepdims[true] -> tensor<si64, 1>", "cummax(%i) axis[0] -> {t}", "cummin(%i) axis[0] -> {t}",
]  # fmt: skip


# The empty sum is 0, which is inside where nothing is taken off.
OFFSETS = [(made, first) for made in SUMS for first in (-3, -1, 0, 1, 2) if first < 1 or "exclusive" not in made]


@pytest.mark.parametrize(("made", "first"), OFFSETS)
def test_an_index_made_by_a_sum_or_an_extreme_is_inside(made: str, first: int) -> None:
    """As positions that a mask makes: the sum of all flags so far, less one. Of 1 to 5 elements, in 24 rows."""
    for n in range(1, 6):
        t = f"tensor<si64, {n}>"
        op = made.format(t=t)
        kind = op.rpartition("-> ")[2]
        text = (
            f"func @f(%x: tensor<f32, 24>, %i: {t}) -> {kind.replace('si64', 'f32')} {{\n  %s = {op}\n"
            f"  %o = broadcast_to(dense<{first}> : tensor<si64>) result_shape[{kind[13:-1]}] -> {kind}\n"
            f"  %k = sub(%s, %o) -> {kind}\n  %y = take(%x, %k) -> {kind.replace('si64', 'f32')}\n  return %y\n}}\n"
        )
        program = ptir.read(text)
        drawn = set()
        for seed in range(12):
            inputs = random_inputs(program, seed)
            ptir.run(program, inputs, engine="reference")
            drawn |= {int(v) for v in inputs["i"]}
        assert len(drawn) > 1, (n, op)
