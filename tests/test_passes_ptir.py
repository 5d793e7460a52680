"""PTIR's passes other than canonicalize: golden before and after, equal numbers, a second run changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import TESTDATA
from loop_programs import loops
from pass_cases import after, equal, parts
from rewrite_programs import grow
from test_rules import write

from ptir_tools.core.choices import Seeded
from ptir_tools.core.ir import Program, clone
from ptir_tools.dialects.ptir.generate import ROWS, generate
from ptir_tools.engines.compare import check
from ptir_tools.passes import PassContext, run_pipeline

FILES = sorted((TESTDATA / "passes").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=[p.stem for p in FILES])
def test_golden_before_and_after(path: Path, bless: bool) -> None:
    found = [(case, write(after(case, path.stem))) for case, _ in parts(path)]
    text = "\n".join(f"// case {case.title}\n{case.before}// after\n{made}" for case, made in found)
    if bless:
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")


EXACT = (
    "fold",
    "cse",
    "dce",
    "licm",
    "sink",
    "simplify-regions",
    "elementwise-fusion",
    "elementwise-fusion,decompose",
    "fusion-hints",
    "raise-strides",
    "min-peak",
)
BOUNDED = ("raise-contractions", "decompose{calls-only=true}", "elementwise-fusion,decompose{calls-only=true}",
           "recognize", "decompose", "lower-hints", "fusion-hints,lower-hints,decompose",
           "elementwise-fusion,decompose", "raise-contractions,canonicalize,recognize",
           "recognize,decompose,canonicalize,recognize",
           "licm,canonicalize,cse,dce,sink")  # fmt: skip


def settled(program: Program, pipeline: str) -> Program:
    """The program after a pipeline, which verifies after each pass and changes nothing the second time."""
    after = clone(program)
    run_pipeline(after, pipeline)
    again = clone(after)
    run_pipeline(again, pipeline.rpartition(",")[2])
    assert write(again) == write(after)
    return after


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("make", [loops, grow], ids=["loops", "straight"])
def test_exact_passes_keep_every_bit_of_random_programs(name: str, make: Callable[[int], Program]) -> None:
    for seed in (*range(25), 144, 279, 287):
        program = make(seed)
        assert equal(program, settled(program, name), exact=name != "cse", seeds=2), seed


@pytest.mark.parametrize("pipeline", BOUNDED)
def test_passes_stay_within_the_bound_on_random_programs(pipeline: str) -> None:
    for seed in range(8):
        for program in (loops(seed), generate(Seeded(seed), growers=ROWS)):
            assert not check(program, settled(program, pipeline), runs=1).diverged, seed


def test_random_loops_exercise_the_passes() -> None:
    done: Counter[str] = Counter()
    for seed in range(25):
        for name in ("licm", "sink"):
            context = PassContext()
            run_pipeline(loops(seed), name, context)
            done.update(context.statistics[name])
    assert min(done["hoisted"], done["sunk into branches"], done["moved to first use"]) > 10


@pytest.mark.parametrize("seed", range(10))
def test_hints_go_as_they_came(seed: int) -> None:
    for program in (loops(seed), generate(Seeded(seed), growers=ROWS)):
        before = write(program)
        run_pipeline(program, "fusion-hints,inline-hints")
        assert write(program) == before


@pytest.mark.parametrize("name", ["licm", "sink", "elementwise-fusion", "decompose", "fusion-hints,lower-hints", "recognize"])
def test_every_prefix_of_the_steps_leaves_the_same_meaning(name: str) -> None:
    for seed in range(4):
        for program in (loops(seed), generate(Seeded(seed), growers=ROWS)):
            log: list[dict[str, object]] = []
            run_pipeline(clone(program), name, whole := PassContext(log=log.append))
            assert whole.steps == len(log)
            for limit in range(0, whole.steps, max(whole.steps // 3, 1)):
                after = clone(program)
                run_pipeline(after, name, part := PassContext(step_limit=limit))
                assert part.steps == limit and not check(program, after, runs=1).diverged
