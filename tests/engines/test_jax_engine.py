"""The engine `xla`, held to the oracles by hand: every op on every dtype. Skipped where jax is not installed (extra `xla`)."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

import ptir_tools as ptir
from tests.oracles.cases import DRAW, cases
from tests.oracles.running import hold
from tests.oracles.table import ROWS, Row
from tests.ptir.oracle import NUMPY

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


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_xla_rounds_each_op_and_keeps_nan(dtype: str) -> None:
    """Of ops that it fuses, too."""
    pytest.importorskip("jax")
    own = np.dtype(NUMPY[dtype])
    text = f"tensor<{dtype}, 4096>"
    ops = "mul(%x, %y) add(%a, %z) mul(%b, %x) sub(%c, %y) maximum(%d, %z) minimum(%e, %x)".replace(") ", ")|").split("|")
    body = "".join(f"  %{name} = {op} -> {text}\n" for name, op in zip("abcdef", ops, strict=True))
    program = ptir.read(f"func @f(%x: {text}, %y: {text}, %z: {text}) -> {text} {{\n{body}  return %f\n}}\n")
    x, y, z = (np.random.default_rng(i).standard_normal(4096).astype(own) for i in range(3))
    x[5::97], z[11::89] = np.nan, np.nan
    wanted = (x * y).astype(own)
    for op, other in ((np.add, z), (np.multiply, x), (np.subtract, y), (np.maximum, z), (np.minimum, x)):
        wanted = op(wanted, other).astype(own)
    x64, y64, z64 = (v.astype(np.float64) for v in (x, y, z))
    fused = (x64 * y64 + z64).astype(own)  # where the processor has arithmetic of f16, a product and a sum are rounded once
    fused = (fused.astype(np.float64) * x64 - y64).astype(own)
    fused = np.minimum(np.maximum(fused, z), x).astype(np.float64)
    found = ptir.run(program, {"x": x, "y": y, "z": z}, engine="xla")["f"].astype(np.float64)
    if not (dtype == "f16" and np.array_equal(found, fused, equal_nan=True)):
        np.testing.assert_array_equal(found, wanted.astype(np.float64))
