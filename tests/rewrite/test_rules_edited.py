"""Every rule on programs near its case: another number, dtype or word in an attribute, or another operand. A rule that forgot a
condition of its pattern fires there, too, and the numbers change."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.core.dialect import Program, clone
from ptir_tools.core.dtypes import SI4, SI8, UI4, UI8, DType
from ptir_tools.passes import Floats, PassContext, run_pipeline
from tests.rewrite.edited import DTYPES, near
from tests.rewrite.test_rules import FILES, parts, read, write
from tests.rewrite.test_rules_variants import equal, program

# Programs near the cases of a file. There are fewer where rules are texts, whose conditions other tests change, and of loops.
MOST = {"algebra": 150, "logic": 150, "folds": 150, "extensions": 100, "control": 80, "loops": 80}
OTHERS = 500


def check(edited: Program, mode: Floats, pipeline: str = "canonicalize,dce") -> bool:
    """Whether the pipeline changed a program, whose numbers stay."""
    after, context = clone(edited), PassContext(floats=mode)
    run_pipeline(after, pipeline, context)
    sums = any(op.defn.short in ("dot_general", "reduce_sum") for op in edited.main.body)
    assert not context.edits or equal(edited, after, mode, mode is Floats.DEFAULT and sums), (mode, write(edited), write(after))
    return context.edits > 0


def _otherwise(rng: random.Random, text: str) -> str:
    """A case in another dtype, with another extent, or as it is."""
    if rng.randrange(2):
        text = re.sub(r"(tensor<|out_dtype\[)(f32|si32|ui8)\b", rf"\g<1>{rng.choice(DTYPES)}", text)
    if rng.randrange(2):
        old, new = rng.choice("234"), rng.choice("01239")
        text = re.sub(rf"(?<=[<x, \[]){old}(?=[x>,\]])", new, text)
    return text


@pytest.mark.parametrize("path", FILES, ids=[p.stem for p in FILES])
def test_rules_keep_the_numbers_of_programs_near_their_cases(path: Path) -> None:
    ran = fired = 0
    cases = [case for case, _ in parts(path) if " = while(" not in case.before]  # which might not end
    for case in cases:
        rng = random.Random(case.before)
        for _ in range(max(2, min(60, MOST.get(path.stem, OTHERS) // len(cases)))):
            base = program(_otherwise(rng, case.before)) or program(case.before)
            for edited in near(base, 1, rng.random()) if base is not None else ():
                ran, fired = ran + 1, fired + check(edited, rng.choice((Floats.STRICT, Floats.DEFAULT)))
    assert fired > ran / 4 > 1


LAST = {
    "axis": ("top_k(%x) k[1] axis[{axis}] -> (tensor<f32, {one}>, tensor<si32, {one}>)", "%y[0]", "{one}"),
    "feature_axis": ("layer_norm(%x, %g, %g) epsilon[0.5] feature_axis[{axis}] -> tensor<f32, {shape}>", "%y", "{shape}"),
}


@pytest.mark.parametrize("name", LAST)
def test_the_last_axis_is_the_default_whatever_was_seen_before(name: str) -> None:
    """The same number is the last axis of one tensor and another of the next one."""
    call, result, extents = LAST[name]
    for rank in (3, 2, 1, 4):
        for axis in range(-rank, rank):
            shape = "x".join("2" * rank)
            one = "x".join("1" if i == axis % rank else "2" for i in range(rank))
            head = "func @f(%x: tensor<f32, {shape}>, %g: tensor<f32, 2>)"
            text = f"{head} -> tensor<f32, {extents}> {{{{\n  %y = {call}\n  return {result}\n}}}}\n"
            program = read(text.format(shape=shape, one=one, axis=axis))
            run_pipeline(program, "canonicalize", PassContext())
            (op,) = program.main.body
            assert op.attr(name) == (-1 if axis % rank == rank - 1 else axis % rank), (rank, axis)


@pytest.mark.parametrize("kind", [SI4, UI4, SI8, UI8], ids=str)
def test_counters_near_the_end_of_their_dtype(kind: DType) -> None:
    """A counter that is longer than its dtype counts begins again at the least number: compared, cast, cut, in another shape."""
    for n in (kind.max, kind.max + 1, kind.max + 2, 2 * kind.max + 5):
        wide = [f"cast(%i) -> tensor<{d}, {n}>" for d in ("si32", "f32", "si8", "ui8", "i1")]
        lines = [
            *wide,
            f"reshape(%i) new_shape[{n}, 1] -> tensor<{kind}, {n}x1>",
            f"slice(%i) starts[0] sizes[2] -> tensor<{kind}, 2>",
        ]
        for number in sorted({kind.min, kind.min + 1, 0, 1, kind.max - 1, kind.max}):
            constant = f"dense<{number}> : tensor<{kind}, {n}>"
            lines += [f"compare_{name}(%i, {constant}) -> tensor<i1, {n}>" for name in ("lt", "le", "eq", "ge", "gt", "ne")]
        body = [f"%r{k} = {line}" for k, line in enumerate(lines)]
        types, results = (", ".join(x) for x in ([line.split("-> ")[1] for line in lines], [f"%r{k}" for k in range(len(lines))]))
        text = "\n  ".join((f"%i = iota() axis[0] -> tensor<{kind}, {n}>", *body, f"return {results}"))
        check(read(f"func @f() -> ({types}) {{\n  {text}\n}}\n"), Floats.STRICT)


WINDOWS = [(row, column) for row in (0, 1) for column in (0, 1, 2)]


@pytest.mark.parametrize("axis", [0, 1])
def test_two_windows_of_one_tensor_side_by_side(axis: int) -> None:
    """They are one window only where they are neighbors along the axis and at the same place along the other."""
    shape = "4x2" if axis == 0 else "2x4"
    for first, second in itertools.product(WINDOWS, repeat=2):
        lines = [f"%{n} = slice(%x) starts{[*at]} sizes[2, 2] -> tensor<f32, 2x2>" for n, at in (("a", first), ("b", second))]
        lines += [f"%z = concat(%a, %b) axis[{axis}] -> tensor<f32, {shape}>", "return %z"]
        text = "\n  ".join(lines)
        check(read(f"func @f(%x: tensor<f32, 3x4>) -> tensor<f32, {shape}> {{\n  {text}\n}}\n"), Floats.STRICT)


# Ops after a transpose, as functions of NumPy: of two arrays and an axis.
BEHIND: list[Callable[..., Any]] = [
    lambda a, b, k: np.concatenate([a, b], k),
    lambda a, b, k: np.stack([a, b], k),
    lambda a, b, k: a[(*[slice(None)] * k, slice(1, None))],
    lambda a, b, k: np.pad(a, [(i == k, 2 * (i == k)) for i in range(3)]),
    lambda a, b, k: np.sum(a, k),
    lambda a, b, k: np.max(a, k, keepdims=True),
    lambda a, b, k: np.sum(a, (k - 1, k)),
    lambda a, b, k: a * 2 - b,
    lambda a, b, k: np.flip(a, k),
    lambda a, b, k: np.tile(a, [1 + (i == k) for i in range(3)]),
    lambda a, b, k: np.take(a, [1, 0, 1], k),
    lambda a, b, k: np.expand_dims(a, k),
    lambda a, b, k: np.reshape(a, (-1, a.shape[2])),
    lambda a, b, k: np.broadcast_to(a, (2, *a.shape)),
    lambda a, b, k: np.transpose(a, [k, (k + 1) % 3, (k + 2) % 3]),
    lambda a, b, k: np.cumsum(a, k),
    lambda a, b, k: np.argmax(a, k),
    lambda a, b, k: a @ np.arange(6, dtype=np.float32).reshape(1, 6).repeat(a.shape[2], 0),
    lambda a, b, k: np.where(a > b, a, np.float32(0)).astype(np.float16),
    lambda a, b, k: a[:, None, ::-1][..., k : k + 1],
]


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("perm", [*itertools.permutations(range(3))], ids=str)
def test_axes_that_are_turned_in_any_way_are_those_of_numpy(perm: tuple[int, ...], axis: int) -> None:
    """Most cases exchange two axes, where an order and its inverse are one."""
    rng = np.random.default_rng(0)
    given = [rng.permutation(24).astype(np.float32).reshape(2, 3, 4) for _ in range(2)]

    def function(x: Any, y: Any) -> Any:
        return tuple(f(np.transpose(x, perm), np.transpose(y, perm), axis) for f in BEHIND)

    program, context = ptir.trace(function, *given), PassContext(floats=Floats.DEFAULT)
    run_pipeline(program, "canonicalize,dce", context)
    assert context.edits
    for found, wanted in zip(ptir.run(program, given, engine="reference").values(), function(*given), strict=True):
        np.testing.assert_array_equal(found, wanted)
