"""PTIR's ops, held to StableHLO's reference interpreter. Skipped where jax is not installed (extra `oracle`)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.oracles import movement_in_stablehlo
from tests.oracles.cases import Case, cases
from tests.oracles.check import Want, saturated
from tests.oracles.in_stablehlo import MEANING, said, takes
from tests.oracles.running import by_hand, hold
from tests.oracles.table import ROWS, Row
from tests.ptir.oracle import INTEGERS, NAME

assert movement_in_stablehlo  # which declares its own

MATRIX = [(row, dtype) for row in ROWS if row.op in MEANING for dtype in row.dtypes]


def interpreted(case: Case) -> Want | np.ndarray:
    """The numbers of the interpreter, with the bounds of the oracle by hand; what an accumulator held is cast to the result."""
    want, value = by_hand(case), said(case)
    dtype = want.dtype if isinstance(want, Want) else NAME[want.dtype]
    if dtype in INTEGERS:
        return saturated(value.astype(object), dtype)
    return replace(want, value=value) if isinstance(want, Want) else value.astype(want.dtype)


@pytest.mark.parametrize(("row", "dtype"), MATRIX, ids=str)
def test_the_interpreter_agrees(row: Row, dtype: str) -> None:
    batch = [case for case in cases(row, dtype) if takes(case)]
    hold(batch, interpreted, ("reference",))
