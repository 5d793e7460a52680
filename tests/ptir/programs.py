"""Random PTIR programs: of the generator of `ptir gen`, its choices made by a seed, or made (and shrunk) by Hypothesis."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from hypothesis import strategies as st

from ptir_tools.core.choices import Seeded
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.dtypes import BF16, F32, I1, SI32
from ptir_tools.dialects import load_format
from ptir_tools.dialects.ptir.generate import generate as generated
from tests.ptir.grown import generate


class Drawn:
    """Choices that Hypothesis makes."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw

    def one(self, known: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(known))

    def flag(self) -> bool:
        return bool(self.draw(st.booleans()))

    def number(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))

    def shuffled(self, known: Sequence[Any]) -> Sequence[Any]:
        return list(self.draw(st.permutations(known)))


class Shown(Program):
    """A program that prints as text when a test fails."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "\n" + "".join(load_format("ptir").write(self, Diagnostics(), Options()))

    def _repr_pretty_(self, printer, cycle) -> None:
        printer.text(repr(self))


@st.composite
def programs(draw, **how) -> Program:
    """A verified program; keywords are those of `generate`."""
    program = generate(Drawn(draw), **how)
    return Shown(program.dialect, program.functions, program.regions, program.entry)


def regions(seed: int) -> Program:
    """A program with several loops and branches, of dtypes that no pass converts: the first that comes up from a seed on."""
    programs = (generated(Seeded(k), dtypes=(F32, F32, SI32, I1, BF16), size=16, symbols=False) for k in count(1000 * seed))
    return next(p for p in programs if sum(bool(op.regions) for block in p.blocks() for op in block.body) > 2)
