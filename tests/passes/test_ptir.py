"""PTIR's passes other than canonicalize: golden before and after, equal numbers, a second run changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from ptir_tools.core.choices import Seeded
from ptir_tools.core.diagnostics import Severity
from ptir_tools.core.dialect import Program, clone
from ptir_tools.engines.compare import check
from ptir_tools.passes import Floats, PassContext, names, parse_pipeline, run_pipeline
from tests.conftest import TESTDATA
from tests.passes.cases import WITH_FILES, after, equal, parts
from tests.ptir.grown import ROWS, generate
from tests.ptir.loop_programs import drawing, loops
from tests.ptir.programs import regions
from tests.rewrite.programs import grow
from tests.rewrite.test_rules import read, write

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
    "raise-bytes",
    "dce{constants=true}",
    "min-peak",
)
BOUNDED = ("raise-contractions", "decompose{calls-only=true}", "elementwise-fusion,decompose{calls-only=true}",
           "recognize", "decompose", "lower-hints", "fusion-hints,lower-hints,decompose",
           "elementwise-fusion,decompose", "raise-contractions,canonicalize,recognize",
           "recognize,decompose,canonicalize,recognize",
           "licm,canonicalize,cse,dce,sink")  # fmt: skip
ELSEWHERE = {"canonicalize", "convert-float", *WITH_FILES, "inline-hints", "inference"}  # test_rules and so on, and below
_LISTED = ELSEWHERE | {step.name for pipeline in (*EXACT, *BOUNDED) for step in parse_pipeline(pipeline, "ptir")}
BOUNDED += tuple(name for name in names("ptir") if name not in _LISTED)  # a new pass: list it in EXACT where it keeps every bit


def settled(program: Program, pipeline: str) -> Program:
    """The program after a pipeline, which verifies after each pass and changes nothing the second time."""
    after = clone(program)
    run_pipeline(after, pipeline)
    again = clone(after)
    run_pipeline(again, pipeline.rpartition(",")[2])
    assert write(again) == write(after)
    return after


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("make", [loops, drawing, grow], ids=["loops", "drawing", "straight"])
def test_exact_passes_keep_every_bit_of_random_programs(name: str, make: Callable[[int], Program]) -> None:
    for seed in (*range(25), 144, 279, 287):
        program = make(seed)
        assert equal(program, settled(program, name), exact=name != "cse", seeds=2), seed


@pytest.mark.parametrize("pipeline", ["canonicalize", "canonicalize,cse,dce"])
@pytest.mark.parametrize("make", [loops, drawing, regions])
def test_a_second_run_of_the_default_pipeline_changes_nothing(make: Callable[[int], Program], pipeline: str) -> None:
    for seed in (*range(30), 2099):
        program = make(seed)
        run_pipeline(program, pipeline)
        once = write(program)
        run_pipeline(program, pipeline)
        assert write(program) == once, seed


@pytest.mark.parametrize("pipeline", BOUNDED)
def test_passes_stay_within_the_bound_on_random_programs(pipeline: str) -> None:
    for seed in range(8):
        for program in (loops(seed), generate(Seeded(seed), growers=ROWS)):
            assert not check(program, settled(program, pipeline), runs=1).diverged, seed


@pytest.mark.parametrize(
    "pipeline", ["canonicalize,cse,dce", "licm", "sink", "simplify-regions,dce", "licm,canonicalize,cse,dce,sink"]
)
def test_passes_keep_what_nested_loops_and_branches_compute(pipeline: str) -> None:
    for seed in range(30):
        program = regions(seed)
        assert not check(program, settled(program, pipeline), runs=1).diverged, seed


def test_an_order_that_could_be_bettered_again_is() -> None:
    settled(generate(Seeded(1004), growers=ROWS), "min-peak")


@pytest.mark.parametrize("seed", range(6))
def test_a_hint_stays_as_its_ops_are_or_goes_with_a_warning(seed: int) -> None:
    for program in (loops(seed), grow(seed), generate(Seeded(seed), growers=ROWS)):
        run_pipeline(program, "fusion-hints{policy=required}")
        for name in {*names("ptir")} - {*WITH_FILES, "inline-hints", "fusion-hints", "lower-hints"}:
            after, context = clone(program), PassContext(floats=Floats.FAST)
            run_pipeline(after, name, context)
            dropped = [d for d in context.diagnostics if (d.code, d.severity) == ("HintDropped", Severity.WARNING)]
            assert len(program.main.annotations) - len(after.main.annotations) == len(dropped), (seed, name)
            made = {v: op for op in after.main.body for v in op.results}
            for copy in (op for hint in after.main.annotations for op in hint.body):
                op = made[copy.results[0]]
                assert (op.defn, op.operands, op.attrs) == (copy.defn, copy.operands, copy.attrs), (seed, name)


def test_a_chain_of_branches_is_not_nested_without_end() -> None:
    row, n = "tensor<f32, 4>", 300
    lines = [f"    %e{i} = exp(%{f'c{i - 1}' if i else 'x'}) -> {row}\n    %c{i} = cond(%p, %e{i}, %x) true_region[^up] "
             f"false_region[^keep] -> {row}\n" for i in range(n)]  # fmt: skip
    program = read(
        "program @f (spec_version = ptir.v0.4) {\n"
        f"  func @f(%p: tensor<i1>, %x: {row}) -> {row} {{\n{''.join(lines)}    return %c{n - 1}\n  }}\n"
        f"  region ^up(%a: {row}, %b: {row}) -> {row} {{\n    %n = neg(%a) -> {row}\n    return %n\n  }}\n"
        f"  region ^keep(%a: {row}, %b: {row}) -> {row} {{\n    return %b\n  }}\n}}\n"
    )
    after = settled(program, "sink")
    assert len(after.main.body) == 1 and len(after.regions) < 30


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


STEPPING = (
    "licm", "sink", "elementwise-fusion", "decompose", "fusion-hints,lower-hints", "recognize", "canonicalize", "dce",
    "raise-contractions", "raise-strides",
)  # fmt: skip


@pytest.mark.parametrize("name", STEPPING)
def test_every_prefix_of_the_steps_leaves_the_same_meaning(name: str) -> None:
    for seed in range(4):
        for program in (loops(seed), generate(Seeded(seed), growers=ROWS)):
            log: list[dict[str, object]] = []
            run_pipeline(clone(program), name, whole := PassContext(log=log.append))
            assert whole.steps == sum(record["event"] != "erased" for record in log)
            for limit in range(0, whole.steps, max(whole.steps // 3, 1)):
                after = clone(program)
                run_pipeline(after, name, part := PassContext(step_limit=limit))
                assert part.steps == limit and not check(program, after, runs=1).diverged
