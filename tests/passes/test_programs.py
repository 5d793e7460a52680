"""Programs of nested loops and branches, written by hand: every pass, and passes after each other, keep what they compute."""

from __future__ import annotations

from collections import Counter

import pytest

from ptir_tools.core.dialect import clone
from ptir_tools.engines.compare import check
from ptir_tools.passes import Floats, PassContext, measured, names, run_pipeline
from tests.conftest import TESTDATA
from tests.passes.cases import WITH_FILES
from tests.rewrite.test_rules import read, write

PROGRAMS = {
    text.splitlines()[0].removeprefix("// "): text
    for text in (TESTDATA / "passes" / "programs.ptir").read_text("utf-8").split("// -----\n")
}
ALONE = sorted(name for name in names("ptir") if name not in WITH_FILES and not measured(name, "ptir"))
TOGETHER = (
    "canonicalize,cse,dce",
    "licm,canonicalize,cse,dce,sink",
    "sink,licm,sink",
    "fixpoint{n=6}(canonicalize,cse,dce,licm,simplify-regions)",
    "fusion-hints,licm,sink,canonicalize,cse,dce,lower-hints",
    "recognize,elementwise-fusion,licm,sink,dce,decompose",
)


@pytest.mark.parametrize("title", PROGRAMS)
def test_passes_keep_what_a_program_computes(title: str) -> None:
    before = read(PROGRAMS[title])
    for pipeline in (*ALONE, *TOGETHER):
        floats = Floats.FAST if pipeline == "recognize" else Floats.DEFAULT
        after = clone(before)
        run_pipeline(after, pipeline, PassContext(floats=floats))
        once = write(after)
        assert not check(before, after, runs=1, finite=floats is Floats.FAST).diverged, pipeline
        if pipeline in (*ALONE, TOGETHER[0]):
            run_pipeline(after, pipeline, PassContext(floats=floats))
            assert write(after) == once, pipeline


def test_the_programs_exercise_the_passes() -> None:
    done: Counter[str] = Counter()
    for text in PROGRAMS.values():
        for name in ("licm", "sink", "canonicalize", "simplify-regions"):
            run_pipeline(read(text), name, context := PassContext())
            done.update(context.statistics.get(name, {}))
    wanted = ("hoisted", "sunk into branches", "moved to first use", "pruned", "merged")
    assert len(PROGRAMS) == 40 and min(done[name] for name in wanted) > 3
