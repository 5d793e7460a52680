"""Every rule fires on random programs, and they keep their numbers: free ones, planted ones, loops and branches."""

from __future__ import annotations

from itertools import chain

import pytest

from ptir_tools.core.dialect import clone
from ptir_tools.dialects.ptir.rewrites.canonicalization import CANONICALIZATION
from ptir_tools.passes import Floats, PassContext, run_pipeline
from tests.ptir.loop_programs import loops
from tests.rewrite import planted_programs
from tests.rewrite.programs import grow
from tests.rewrite.test_rules_variants import equal

_LEAST, _MOST = 1200, 20_000  # programs
_DIVIDES = {"div", "reciprocal", "rsqrt"}


@pytest.mark.parametrize("mode", [Floats.STRICT, Floats.DEFAULT])
@pytest.mark.parametrize("start", range(3))
def test_planted_programs_keep_their_numbers(start: int, mode: Floats) -> None:
    for seed in range(start, 900, 9):
        before = planted_programs.grow(seed)
        after = clone(before)
        run_pipeline(after, "canonicalize,cse,dce", PassContext(floats=mode, expensive_checks=True))
        done = {op.defn.short for op in before.main.body}
        if mode is Floats.STRICT or not done & _DIVIDES:  # a zero of another sign becomes another infinity
            assert equal(before, after, mode, loose=mode is Floats.DEFAULT and bool(done & {"dot_general", "reduce_sum"})), seed


def test_random_programs_fire_every_rule() -> None:
    """A new rule changes what the programs are: they are drawn until every rule has fired, or there were very many."""
    missing = {p.name for p in CANONICALIZATION.patterns}
    programs = chain(map(grow, range(150)), map(loops, range(30)), map(planted_programs.grow, range(_MOST)))
    for k, program in enumerate(programs):
        if k >= _LEAST and not missing:
            break
        context = PassContext(floats=Floats.STRICT if k % 4 == 0 else Floats.DEFAULT if k % 4 == 1 else Floats.FAST)
        run_pipeline(program, "canonicalize", context)
        missing -= (+context.statistics["canonicalize"]).keys()
    assert not missing
