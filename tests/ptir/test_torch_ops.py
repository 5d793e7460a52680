"""PTIR's ops, held to torch. Skipped where torch is not installed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.oracles.cases import Case, cases
from tests.oracles.check import Want
from tests.oracles.in_torch import MEANING, said, takes
from tests.oracles.running import by_hand, hold
from tests.oracles.table import ROWS, Row
from tests.ptir.oracle import INTEGERS, NAME, wrap

# torch has no unsigned integers of 64 bits to compute with.
MATRIX = [(row, dtype) for row in ROWS if row.op in MEANING for dtype in row.dtypes if dtype != "ui64"]


def alike(want: Any, value: Any) -> Any:
    """torch's numbers, with the bounds of the oracle by hand."""
    if isinstance(want, tuple):
        return tuple(map(alike, want, value))
    if isinstance(want, Want):
        return replace(want, value=value.astype(object) if want.dtype in INTEGERS else value)
    return wrap(value.astype(object), NAME[want.dtype]) if NAME[want.dtype] in INTEGERS else value.astype(want.dtype)


def told(case: Case) -> Want | np.ndarray | tuple[Any, ...]:
    """What torch says of a case."""
    return alike(by_hand(case), said(case))


@pytest.mark.parametrize(("row", "dtype"), MATRIX, ids=str)
def test_torch_agrees(row: Row, dtype: str) -> None:
    batch = [case for case in cases(row, dtype) if takes(case)]
    if batch:
        hold(batch, told, ("reference",))
