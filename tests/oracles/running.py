"""Running cases on our engines and holding what comes out to an oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from ptir_tools.core.arrays import to_literal
from ptir_tools.core.builder import single_function
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Program
from ptir_tools.core.verify import verify
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.engines import RunOptions, native, run
from tests.oracles import extension_by_hand, extension_cases, movement_by_hand, movement_cases
from tests.oracles.by_hand import MEANING
from tests.oracles.cases import Case
from tests.oracles.check import check
from tests.ptir.oracle import typed

assert movement_by_hand and movement_cases and extension_by_hand and extension_cases  # which declare theirs

ENGINES = ("reference", "numpy", *["native"] * native.available())


def by_hand(case: Case) -> Any:
    """What the oracle by hand says."""
    more = {"name": case.op} if case.op in ("reduce_sum", "reduce_max", "reduce_min") else {}
    return MEANING[case.op](*case.operands, **case.attrs, **more)


def written(batch: Sequence[Case]) -> Program:
    """A program that runs all cases, each on parameters of its own."""
    found, b = single_function(DIALECT)
    values = []
    for case in batch:
        operands = [[b.param(typed(a)) for a in x] if isinstance(x, list) else b.param(typed(x)) for x in case.operands]
        attrs = {k: to_literal(v, typed(v)) if isinstance(v, np.ndarray) else v for k, v in case.attrs.items()}
        values.append(b.op(case.op, *operands, **attrs))
    b.results(*values)
    diagnostics = Diagnostics()
    assert verify(found, diagnostics), [d.message for d in diagnostics]
    return found


def hold(batch: Sequence[Case], oracle: Callable[[Case], Any] = by_hand, engines: Sequence[str] = ENGINES) -> None:
    """Run the cases on every engine and compare."""
    wants, ready = [oracle(case) for case in batch], written(batch)
    arrays = [a for case in batch for x in case.operands for a in (x if isinstance(x, list) else [x])]
    for engine in engines:
        outputs = iter(run(ready, arrays, RunOptions(engine=engine)).values())
        for case, want in zip(batch, wants, strict=True):
            found = tuple(islice(outputs, len(want))) if isinstance(want, tuple) else next(outputs)
            try:
                check(found, want, engine == "reference")
            except AssertionError as error:
                raise AssertionError(f"{engine}: {case}") from error
