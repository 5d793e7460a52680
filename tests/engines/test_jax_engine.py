"""The engine `xla`, held to the oracles by hand: every op on every dtype. Skipped where jax is not installed (extra `xla`)."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.oracles.cases import DRAW, cases
from tests.oracles.running import hold
from tests.oracles.table import ROWS, Row

MATRIX = [(row, dtype) for row in ROWS if row.op in DRAW for dtype in row.dtypes]
USUAL = ("f32", "si32", "cf32", "i1", "bf16")  # one of these always runs
SHARE = 2
# XLA computes fp8_e5m2 in f16: a NaN that it moves may come out with another payload.
PAYLOADS = {
    "select",
    "concat",
    "pad",
    "dynamic_update_slice",
    "extract_patches",
    "nextafter",
    "sort",
    "scatter",
    "scatter_reduce",
}


def usual(row: Row) -> str:
    """The first of the usual dtypes that a row has, or its own first."""
    return next((d for d in USUAL if d in row.dtypes), row.dtypes[0])


@pytest.mark.parametrize(("row", "dtype"), [(row, usual(row)) for row in ROWS if row.op in DRAW], ids=str)
def test_xla_gives_what_every_engine_gives(row: Row, dtype: str) -> None:
    hold(list(islice(cases(row, dtype), SHARE)), engines=("xla",))


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.parametrize(("row", "dtype"), [(r, d) for r, d in MATRIX if d != "fp8_e5m2" or r.op not in PAYLOADS], ids=str)
def test_xla_on_every_shape(row: Row, dtype: str) -> None:
    """A campaign: some functions of XLA (sinh and cosh of large operands, log1p, atanh) are further off than the bounds allow."""
    hold(list(cases(row, dtype)), engines=("xla",))
