"""A translation proven by running: both sides on the same inputs, there and back."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field

import numpy as np

from ptir_tools.convert import translate
from ptir_tools.core.arrays import from_literal
from ptir_tools.core.choices import Seeded
from ptir_tools.core.diagnostics import Diagnostics, Severity
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.dtypes import BF16, F16, F32, F64, SI32, SI64
from ptir_tools.core.ir import Literal
from ptir_tools.core.source import Source
from ptir_tools.core.verify import verify
from ptir_tools.dialects import load_format
from ptir_tools.engines import compare
from ptir_tools.engines.options import RunOptions

IRS = ("ptir", "mind", "tiny")
REFUSALS = {"NotTranslatable", "E6001", "E6006"}


@dataclass(slots=True)
class Translated:
    """What became of a program: None and the errors when it was refused; the values of constants that Tiny keeps outside."""

    program: Program | None
    diagnostics: Diagnostics
    constants: dict[str, Literal] = field(default_factory=dict)

    @property
    def errors(self) -> list[tuple[str, str]]:
        return [(d.code, d.message) for d in self.diagnostics if d.severity is Severity.ERROR]

    @property
    def notes(self) -> list[str]:
        return [d.code for d in self.diagnostics if d.severity is Severity.NOTE]


def translated(
    before: Program, target: str, *, lossy: bool = False, constants: dict[str, Literal] | None = None, pool: bool = True
) -> Translated:
    """The translation, verified, and read again from its text."""
    diagnostics = Diagnostics(before.source)
    kept = dict(constants or {})
    made = translate(before, target, diagnostics, Options(lossy=lossy, constants=kept if pool else None))
    if made is None:
        return Translated(None, diagnostics, kept)
    found = Diagnostics()
    assert verify(made, found), [(d.code, d.message) for d in found]
    return Translated(reread(made), diagnostics, kept)


def text(program: Program, form: str | None = None) -> str:
    """The text of a program."""
    return "".join(load_format(form or program.dialect.name).write(program, Diagnostics(), Options()))


def parse(source: str, form: str) -> Program:
    """The verified program of a text."""
    diagnostics = Diagnostics(Source("t", source))
    program = load_format(form).read(diagnostics.source, diagnostics, Options())
    assert program is not None, [(d.code, d.message) for d in diagnostics]
    assert verify(program, diagnostics), [(d.code, d.message) for d in diagnostics]
    return program


def reread(program: Program) -> Program:
    """A program from its own text."""
    return parse(text(program), program.dialect.name)


def agree(before: Program, after: Program, constants: dict[str, Literal], runs: int = 1, seed: int = 0) -> None:
    """Both sides give the same: integers bit for bit, floats within the computed bound."""
    arrays = {name: from_literal(x) for name, x in constants.items()}
    with np.errstate(all="ignore"):
        found = compare.check(before, after, runs, seed, RunOptions(), arrays, carried=True)
    assert not found.diverged, (str(found.diverged[0]), text(before), text(after))


def prove(before: Program, target: str, seed: int = 0) -> str:
    """Translate, run both; translate back, run again. What came of it: refused, there, or there and back."""
    there = translated(before, target)
    if there.program is None:
        assert {code for code, _ in there.errors} <= REFUSALS, there.errors
        return "refused"
    agree(before, there.program, there.constants, seed=seed)
    back = translated(there.program, before.dialect.name, constants=there.constants)
    if back.program is None:
        assert {code for code, _ in back.errors} <= REFUSALS, back.errors
        return "there"
    agree(before, back.program, back.constants, seed=seed)
    return "there and back"


# Per IR and target: what a generator keeps to so that the target accepts a good share.
DTYPES = {"mind": (F32, F32, F64, SI32, SI64), "tiny": (F32, F32, F16, BF16, SI32)}


def generated(ir: str, target: str, seed: int) -> Program:
    """A random program; every other one keeps to what `target` can mostly say."""
    module = importlib.import_module(f"grown_{ir}")
    choices = Seeded(seed)
    if seed % 2:
        return module.generate(choices, size=8)
    both = (F32, F32, SI32) if "mind" in (ir, target) and "tiny" in (ir, target) else None
    common = getattr(module, "COMMON", None) if ir != "ptir" else getattr(module, target.upper(), None)
    dtypes = both or DTYPES.get(ir if target == "ptir" else target)
    return module.generate(choices, dtypes=dtypes, size=8, growers=common)
