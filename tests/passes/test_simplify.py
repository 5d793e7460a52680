"""The pass `simplify` of MIND and Tiny: each rule before and after, what it may change, and equal numbers on random programs."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from ptir_tools.core.choices import Seeded
from ptir_tools.core.dialect import Program, clone
from ptir_tools.core.symbols import specialize
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.mind import DIALECT as MIND
from ptir_tools.dialects.mind import rewrites as mind_rewrites
from ptir_tools.dialects.mind.generate import generate as grow_mind
from ptir_tools.dialects.tiny import DIALECT as TINY
from ptir_tools.dialects.tiny import rewrites as tiny_rewrites
from ptir_tools.dialects.tiny.generate import generate as grow_tiny
from ptir_tools.passes import Floats, PassContext, run_pipeline
from ptir_tools.rewrite.patterns import Effect
from tests.conftest import TESTDATA
from tests.mind import programs as mind_programs
from tests.rewrite.programs import agree
from tests.rewrite.test_rules import Case, parts
from tests.tiny import graphs as tiny_graphs

FILES = {d: TESTDATA / "rules" / d / "simplify.txt" for d in ("mind", "tiny")}
PATTERNS = {"mind": mind_rewrites.SIMPLIFICATION.patterns, "tiny": tiny_rewrites.SIMPLIFICATION.patterns}
FOLDS = {d.name: {o.short for o in d.ops.values() if o.fold is not None} for d in (MIND, TINY)}
PROGRAMS = {"mind": mind_programs, "tiny": tiny_graphs}
CASES = [(d, case) for d, path in FILES.items() for case, _ in parts(path)]


def read(dialect: str, text: str) -> Program:
    return PROGRAMS[dialect].good(text)


def write(dialect: str, program: Program) -> str:
    return mind_programs.show(program) if dialect == "mind" else tiny_graphs.printed(program)


def simplified(dialect: str, case: Case) -> tuple[Program, Program, PassContext]:
    """(before, after, context) of a case, with expensive checks."""
    before = read(dialect, case.before)
    after = clone(before)
    context = PassContext(floats=Floats(case.mode or "default"), expensive_checks=True)
    run_pipeline(after, "simplify", context)
    return before, after, context


def inputs_of(dialect: str, program: Program, seed: int, special: bool) -> list[np.ndarray]:
    """Inputs; `special` mixes in NaN, infinities and signed zeros, else they are positive."""
    if dialect == "tiny":
        found = tiny_graphs.inputs_of(program, seed, special)
    else:
        found, rng = mind_programs.inputs_of(program, seed), np.random.default_rng(seed)
        for i, x in enumerate(found):
            if special and x.dtype.kind == "f":
                odd = rng.choice([np.nan, np.inf, -np.inf, -0.0, 0.0], x.shape)
                found[i] = np.where(rng.random(x.shape) < 0.2, odd, x).astype(x.dtype)
    return found if special else [np.abs(x) + (x.dtype.kind != "b") for x in found]


def equal(dialect: str, before: Program, after: Program, seed: int, mode: Floats) -> bool:
    """Whether both give the same, as `mode` demands."""
    fast = mode is Floats.FAST
    given = inputs_of(dialect, before, seed, not fast)
    run = PROGRAMS[dialect].run
    return all(
        agree(np.asarray(x), np.asarray(y), mode is Floats.STRICT, fast)
        for x, y in zip(run(before, given), run(after, given), strict=True)
    )


@pytest.mark.parametrize("dialect", FILES)
def test_golden_before_and_after(dialect: str, bless: bool) -> None:
    path: Path = FILES[dialect]
    found = [(case, write(dialect, simplified(dialect, case)[1])) for case, _ in parts(path)]
    text = "\n".join(f"// {c.kind} {c.name}{' ' * bool(c.mode)}{c.mode}\n{c.before}// after\n{after}" for c, after in found)
    if bless:
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")


@pytest.mark.parametrize("dialect", FILES)
def test_every_rule_and_fold_has_a_case(dialect: str) -> None:
    cases = [case for d, case in CASES if d == dialect]
    assert {c.name for c in cases if c.kind == "rule"} == {p.name for p in PATTERNS[dialect]}
    assert {c.name for c in cases if c.kind == "fold"} == FOLDS[dialect]


@pytest.mark.parametrize(("dialect", "case"), CASES, ids=[f"{d}-{c.kind}-{c.name}" for d, c in CASES])
def test_rule_fires_and_keeps_numbers(dialect: str, case: Case) -> None:
    before, after, context = simplified(dialect, case)
    done = context.statistics["simplify"]
    assert done[case.name] > 0 if case.kind == "rule" else (done["folds"], done["rewrites"]) == (1, 0)
    assert len(after.main.body) <= len(before.main.body)
    for seed in range(6):
        assert equal(dialect, before, after, seed, Floats(case.mode or "default"))


@pytest.mark.parametrize(("dialect", "case"), CASES, ids=[f"{d}-{c.kind}-{c.name}" for d, c in CASES])
def test_rule_needs_the_mode_of_its_label(dialect: str, case: Case) -> None:
    effects = {p.name: p.effect for p in PATTERNS[dialect]}
    effect = effects.get(case.name, Effect.EXACT) if case.kind == "rule" else Effect.EXACT
    assert case.mode == ("strict" if effect is Effect.EXACT else "" if effect <= Effect.ORDER else "fast")
    if case.mode != "strict":
        context = PassContext(floats=Floats.STRICT if not case.mode else Floats.DEFAULT)
        run_pipeline(read(dialect, case.before), "simplify", context)
        assert context.statistics["simplify"][case.name] == 0


class Kind(NamedTuple):
    """What random programs are made of."""

    dialect: str
    only: tuple[str, ...]


KINDS = [
    Kind(
        "mind", tuple(o.short for o in MIND.ops.values() if o.short != "Gather" and o.own is None)
    ),  # an input may be out of its bounds
    Kind("mind", ("Reshape", "ExpandDims", "Squeeze", "Transpose", "Slice", "Neg")),
    Kind("mind", ("Add", "Sub", "Mul", "Neg", "Relu", "ConstTensor")),
    Kind("tiny", ()),
    Kind("tiny", ("RESHAPE", "PERMUTE", "FLIP", "SHRINK", "PAD", "EXPAND", "CAST")),
    Kind("tiny", ("ADD", "SUB", "MUL", "NEG", "RELU", "MAX", "MIN", "CAST")),
]


def grown(kind: Kind, seed: int, symbols: bool = False) -> Program:
    grow = grow_mind if kind.dialect == "mind" else grow_tiny
    return read(kind.dialect, write(kind.dialect, grow(Seeded(seed), size=20, only=kind.only, symbols=symbols)))


@pytest.mark.parametrize("mode", [Floats.STRICT, Floats.DEFAULT])
@pytest.mark.parametrize("kind", KINDS, ids=lambda k: f"{k.dialect}-{len(k.only)}")
def test_random_programs_keep_their_numbers(kind: Kind, mode: Floats) -> None:
    for seed in range(40):
        before = grown(kind, seed)
        after = clone(before)
        run_pipeline(after, "simplify", PassContext(floats=mode, expensive_checks=True))
        assert len(after.main.body) <= len(before.main.body), seed
        assert [v.type for v in after.main.results] == [v.type for v in before.main.results]
        assert equal(kind.dialect, before, after, seed, mode), (seed, write(kind.dialect, before))
        again = read(kind.dialect, write(kind.dialect, after))
        assert equal(kind.dialect, after, again, seed, Floats.STRICT)


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: f"{k.dialect}-{len(k.only)}")
def test_simplify_is_idempotent(kind: Kind) -> None:
    for seed in range(20):
        program = grown(kind, seed, symbols=True)
        run_pipeline(program, "simplify")
        once = write(kind.dialect, program)
        run_pipeline(program, "simplify")
        assert write(kind.dialect, program) == once, seed


def test_random_programs_fire_rules_of_every_kind() -> None:
    fired: Counter[str] = Counter()
    for kind in KINDS:
        for seed in range(120):
            context = PassContext()
            run_pipeline(grown(kind, seed), "simplify", context)
            fired += context.statistics["simplify"]
    assert fired.keys() >= {
        "neg-neg",
        "reshape-chain",
        "transpose-chain",
        "permute-chain",
        "slice-chain",
        "flip-chain",
        "cast-chain",
        "folds",
    }


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize(("low", "high"), [(0, 3), (0, 6), (3, 0), (1, 2), (2, 1), (1, 5)])
@pytest.mark.parametrize("pipeline", ["canonicalize", "simplify"])
def test_a_part_of_what_is_padded_is_that_part(low: int, high: int, step: int, pipeline: str) -> None:
    """Every start and step, those among them that take as many elements as there were before the padding."""
    x = np.arange(3, dtype=np.float32) + 1
    padded = [-7.0] * low + list(x) + [-7.0] * high
    for lo in range(len(padded)):
        shape = {"lo": [lo], "hi": [len(padded)], "step": [step]}
        text = tiny_graphs.graph(
            tiny_graphs.source([3]), tiny_graphs.node("PAD", id="p", pad=[[low, high]], value=-7.0),
            tiny_graphs.node("SHRINK", "p", id="y", **shape), tiny_graphs.node("NEG", "y", id="z"), outputs=["z"],
        )  # fmt: skip
        program = tiny_graphs.good(text)
        run_pipeline(program, pipeline, PassContext())
        assert tiny_graphs.run(program, [x])[0].tolist() == [-n for n in padded[lo::step]], (lo, text)


@pytest.mark.parametrize("seed", range(8))
def test_a_chain_of_reshapes_gives_its_symbols_when_it_is_one(seed: int) -> None:
    """Whatever is paired, divided or next to a 0: what the chain settles is settled after it was shortened."""
    rng, shorter = random.Random(seed), 0
    numbers = {"a": 2, "b": 3, "c": 2, "d": 1, "e": 0}
    ways = {6: [(2, 3), (3, 2), (6,), (1, 6), (2, 1, 3)], 12: [(2, 2, 3), (3, 4), (2, 6), (12,)], 0: [(0,), (2, 0), (3, 0, 2)]}
    for _ in range(60):
        chosen = [rng.choice(ways[count]) for count in [rng.choice([6, 12, 0])] * 3]
        shapes = [[rng.choice([d, d, *(n for n in numbers if numbers[n] == d)]) for d in shape] for shape in chosen]
        nodes = [tiny_graphs.source(shapes[0]), tiny_graphs.node("RESHAPE", result_shape=shapes[1])]
        nodes += [tiny_graphs.node("RESHAPE", "y", id="z", result_shape=shapes[2]), tiny_graphs.node("NEG", "z", id="n")]
        program, diagnostics = tiny_graphs.read(tiny_graphs.graph(*nodes))
        if program is None or diagnostics.errors:
            continue
        before = clone(program)
        run_pipeline(program, "canonicalize", PassContext())
        shorter += len(program.main.body) < len(before.main.body)
        wanted = {n: numbers[n] for n in shapes[0] if isinstance(n, str)}
        found = dict(wanted)
        try:
            specialize(before, wanted)
        except Violation:
            continue
        specialize(program, found)
        assert found.items() <= wanted.items(), shapes
        assert program.main.result_types == before.main.result_types, shapes
    assert shorter > 5


@pytest.mark.parametrize("uop", ["RESHAPE", "PERMUTE", "CAST", "SHRINK", "PAD", "FLIP", "EXPAND"])
def test_what_does_nothing_goes_and_an_output_keeps_its_node(uop: str) -> None:
    """The node that a graph gives back keeps its id; one that others read, and one that is not named, does not."""
    args = {"RESHAPE": {"result_shape": [2, 3]}, "PERMUTE": {"perm": [0, 1]}, "CAST": {"to": "fp32"}, "FLIP": {"axes": []},
            "SHRINK": {"lo": [0, 0], "hi": [2, 3]}, "PAD": {"pad": [[0, 0]] * 2}, "EXPAND": {"result_shape": [2, 3]}}  # fmt: skip
    text = tiny_graphs.graph(
        tiny_graphs.source([2, 3]), tiny_graphs.node(uop, id="a", **args[uop]), tiny_graphs.node("NEG", "a", id="b"),
        tiny_graphs.node(uop, "b", id="c", **args[uop]), outputs=["c"],
    )  # fmt: skip
    program = tiny_graphs.good(text)
    run_pipeline(program, "canonicalize", PassContext())
    assert [(op.result.name, op.defn.short) for op in program.main.body] == [("b", "NEG"), ("c", uop)]
