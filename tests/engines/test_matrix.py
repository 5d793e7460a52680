"""Every op on every dtype of the table, over a spread of shapes, on every engine, held to an oracle with no code of ours.

Always run are a few cases of each op and dtype; all of them are `slow`.
"""

from __future__ import annotations

import re
from itertools import islice

import numpy as np
import pytest

from ptir_tools.dialects.ptir import DIALECT
from tests.conftest import ROOT
from tests.oracles.cases import DRAW, Case, cases
from tests.oracles.running import hold
from tests.oracles.table import REAL, ROWS, Row
from tests.ptir.oracle import ALL, COMPLEX, DTYPES, FLOATS, INTEGERS, NUMERIC, NUMPY, SIGNED, code, typed

SHARE = 3
MATRIX = [(row, dtype) for row in ROWS if row.op in DRAW for dtype in row.dtypes]


@pytest.mark.parametrize(("row", "dtype"), MATRIX, ids=str)
def test_a_share_of_every_op_and_dtype(row: Row, dtype: str) -> None:
    hold(list(islice(cases(row, dtype), SHARE)))


@pytest.mark.slow
@pytest.mark.parametrize(("row", "dtype"), MATRIX, ids=str)
def test_every_op_dtype_and_shape(row: Row, dtype: str) -> None:
    hold(list(islice(cases(row, dtype), SHARE, None)))


def substituted(case: Case, dtype: str) -> Case:
    """The case with another dtype for its data: for the operands of that dtype, or for the result where there is none."""
    if not case.operands:
        return case._replace(attrs={**case.attrs, "dtype": DTYPES[dtype]})

    def changed(x):
        return [changed(a) for a in x] if isinstance(x, list) else np.zeros(x.shape, NUMPY[dtype]) if x.dtype == data else x

    data = (case.operands[0][0] if isinstance(case.operands[0], list) else case.operands[case.op == "select"]).dtype
    return case._replace(operands=tuple(map(changed, case.operands)))


@pytest.mark.parametrize("row", [row for row in ROWS if row.op in DRAW and row.op != "constant"], ids=str)
def test_any_other_dtype_is_refused(row: Row) -> None:
    drawn = next(cases(row, row.dtypes[-1]))
    for dtype in ALL:
        case = substituted(drawn, dtype)
        types = [[typed(a) for a in x] if isinstance(x, list) else typed(x) for x in case.operands]
        expected = None if dtype in row.dtypes else "DTypeNotSupported"
        assert code(case.op, *types, **case.attrs) == expected, dtype


INDEXED = {
    "take": 1,
    "gather": 1,
    "dynamic_slice": 1,
    "dynamic_update_slice": 2,
    "scatter_add": 1,
    "scatter_reduce": 1,
    "segment_reduce": 1,
}


@pytest.mark.parametrize("row", [row for row in ROWS if row.op in INDEXED], ids=str)
def test_indices_are_si32_or_si64(row: Row) -> None:
    case = next(cases(row, row.dtypes[0]))
    types = [typed(x) for x in case.operands]
    for dtype in ALL:
        at = INDEXED[row.op]
        given = [t.with_dtype(DTYPES[dtype]) if i == at else t for i, t in enumerate(types)]
        assert code(case.op, *given, **case.attrs) == (None if dtype in ("si32", "si64") else "DTypeNotSupported"), dtype


RESULTS = {  # the dtypes that an attribute may name
    ("argmax", "output_dtype"): ("si32", "si64"),
    ("top_k", "indices_dtype"): ("si32", "si64"),
    ("quantize", "output_dtype"): REAL,
    ("requantize", "output_dtype"): INTEGERS,
    ("dequantize", "output_dtype"): FLOATS,
}


@pytest.mark.parametrize(("op", "attr"), RESULTS, ids=str)
def test_dtypes_that_attributes_may_name(op: str, attr: str) -> None:
    row = next(row for row in ROWS if row.op == op)
    *_, case = cases(row, row.dtypes[-1])
    for dtype in ALL:
        attrs = {**case.attrs, attr: DTYPES[dtype]}
        expected = None if dtype in RESULTS[op, attr] else "DTypeNotSupported"
        assert code(op, *map(typed, case.operands), **attrs) == expected, dtype


def test_every_op_has_a_row() -> None:
    """Those without cases are held to their oracles in test_special.py, custom calls in tests/ptir/test_ops_custom.py."""
    assert {row.op for row in ROWS} == {*DIALECT.ops} - {"custom_call"}
    assert {row.op for row in ROWS} - DRAW.keys() == {"cond", "while", "scan", "rng_uniform", "rng_normal"}


def test_the_table_is_the_one_of_the_documentation() -> None:
    """docs/ptir.md says the same dtypes, word for word."""
    words = {
        "i1": ("i1",),
        "int": INTEGERS,
        "float": FLOATS,
        "complex": COMPLEX,
        "signed": SIGNED,
        "all": ALL,
        "all but i1": NUMERIC,
    }
    page = (ROOT / "docs" / "ptir.md").read_text("utf-8")
    said = {}
    for ops, dtypes in re.findall(r"^\| [^|]* \| ((?:`\w+`[ ;]*)+) \| ([^|]*) \|$", page, re.MULTILINE):
        for names, kinds in zip(ops.split(";"), dtypes.split(";")[: ops.count(";") + 1], strict=True):
            found = [d for kind in kinds.split(",") for d in words.get(kind.strip(), ())]
            said |= {op: set(found) for op in re.findall(r"\w+", names)}
    rows = {row.op: set(row.dtypes) for row in ROWS if not row.attrs and row.op in said and said[row.op]}
    assert len(rows) >= 45
    assert {op: said[op] for op in rows} == rows
