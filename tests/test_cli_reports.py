"""What goes to standard error in the forms that programs read: whatever goes wrong, it is whole and valid."""

from __future__ import annotations

import json

import pytest
from conftest import run_ptir

OK = "testdata/verify/ok.ptir"
WRONG = "testdata/verify/unknown_op.ptir"
# A command line, and the codes that it reports.
LINES = {
    f"verify {OK}": [],
    f"verify {WRONG}": ["UnknownOp"],
    f"verify {WRONG} no/a {OK} no/b": ["UnknownOp", "IOError", "IOError"],
    f"verify -j 2 {WRONG} no/a {OK} no/b": ["UnknownOp", "IOError", "IOError"],
    f"fmt --check no/a {WRONG}": ["IOError", "UnknownOp"],
    f"verify --max-file-bytes 10 {OK} {WRONG}": ["LimitExceeded", "LimitExceeded"],
    f"opt -p nonsense {OK}": ["UsageError"],
    "verify --nonsense": ["UsageError"],
    f"run {WRONG} --random 0": ["UnknownOp"],
}


@pytest.mark.parametrize("line", LINES)
def test_sarif_is_one_document(line: str) -> None:
    ran = run_ptir(*line.split(), "--diagnostics", "sarif")
    results = json.loads(ran.err)["runs"][0]["results"]
    assert [r["ruleId"] for r in results] == LINES[line]


@pytest.mark.parametrize("line", LINES)
def test_json_is_an_object_a_line(line: str) -> None:
    ran = run_ptir(*line.split(), "--diagnostics", "json")
    assert [json.loads(found)["code"] for found in ran.err.splitlines()] == LINES[line]
