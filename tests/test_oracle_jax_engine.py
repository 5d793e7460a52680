"""The engine `xla`, held to the oracles by hand: every op on every dtype. Skipped where jax is not installed (extra `xla`)."""

from __future__ import annotations

from itertools import islice

import pytest
from oracles.cases import DRAW, cases
from oracles.running import hold
from oracles.table import ROWS, Row

MATRIX = [(row, dtype) for row in ROWS if row.op in DRAW for dtype in row.dtypes]
SHARE = 2


@pytest.mark.parametrize(("row", "dtype"), MATRIX, ids=str)
def test_xla_gives_what_every_engine_gives(row: Row, dtype: str) -> None:
    hold(list(islice(cases(row, dtype), SHARE)), engines=("xla",))


@pytest.mark.slow
@pytest.mark.parametrize(("row", "dtype"), MATRIX, ids=str)
def test_xla_on_every_shape(row: Row, dtype: str) -> None:
    hold(list(islice(cases(row, dtype), SHARE, None)), engines=("xla",))
