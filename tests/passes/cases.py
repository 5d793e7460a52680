"""Golden cases of passes: a file per pass, programs before and after, run and compared."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ptir_tools.core.dialect import Program, clone
from ptir_tools.core.evaluate import Context, run_block
from ptir_tools.core.symbols import specialize, symbols
from ptir_tools.core.types import flatten
from ptir_tools.engines.compare import check
from ptir_tools.passes import Floats, PassContext, run_pipeline
from tests.rewrite.programs import agree, sample
from tests.rewrite.test_rules import read, write

WITH_FILES = {"param-fold", "quantize"}  # passes that need one
_CASE = re.compile(r"^// case ([^\n]+)\n(.*?)// after\n", re.MULTILINE | re.DOTALL)


@dataclass(slots=True, frozen=True)
class Case:
    """`title` says what the case shows; words in it count: `strict`, `fast`, `loose` (a rounding may differ), `random` (so may
    what overflows: numbers that are no limits are compared within the bound), `pipeline=…`."""

    title: str
    before: str

    @property
    def words(self) -> list[str]:
        return self.title.split()[1:]

    def pipeline(self, name: str) -> str:
        return next((w.removeprefix("pipeline=") for w in self.words if w.startswith("pipeline=")), name)

    def context(self) -> PassContext:
        return PassContext(floats=Floats(next((w for w in self.words if w in ("strict", "fast")), "default")))


def parts(path: Path) -> list[tuple[Case, str]]:
    """The cases of a file with the texts expected after."""
    pieces = _CASE.split(path.read_text("utf-8"))[1:]
    return [(Case(*pieces[i : i + 2]), pieces[i + 2].strip() + "\n") for i in range(0, len(pieces), 3)]


def after(case: Case, name: str) -> Program:
    """The program after the pass, which computes the same and is left alone by a second run."""
    before = read(case.before)
    program = clone(before)
    run_pipeline(program, case.pipeline(name), case.context())
    text = write(program)
    again = clone(program)
    run_pipeline(again, case.pipeline(name), case.context())
    assert write(again) == text, f"{case.title}: a second run changes it"
    if "random" in case.words:
        assert not check(before, program, finite="fast" in case.words).diverged, case.title
    else:
        assert equal(before, program, exact="loose" not in case.words), case.title
    return program


def equal(before: Program, program: Program, exact: bool = True, seeds: int = 4) -> bool:
    """Whether both compute the same on random inputs full of special numbers; not `exact`: up to a rounding."""
    return all(
        agree(a, b, exact=exact, loose=not exact)
        for seed in range(seeds)
        for a, b in zip(results(before, seed), results(program, seed), strict=True)
    )


def results(program: Program, seed: int) -> list[np.ndarray]:
    """What the program computes on random inputs, by the declared bodies; tuples are taken apart."""
    if numbers := {name: 3 + i for i, name in enumerate(symbols(program))}:
        program = clone(program)
        specialize(program, numbers)
    rng = random.Random(seed)
    inputs = [sample(rng, p.type) for p in program.main.params]
    return list(flatten(run_block(program.main, inputs, Context(streams=program.streams()))))
