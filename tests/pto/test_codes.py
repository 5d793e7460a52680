"""Every code: the wrong program of `ptir explain` provokes it alone, the right one provokes nothing."""

import re
from pathlib import Path

import pytest

import ptir_tools.dialects.pto
from ptir_tools.dialects.pto import DIALECT
from tests.pto.programs import SAMPLES, codes

CODES = {c.code: c for c in DIALECT.explain()}
PROVOKED = [c for c in CODES.values() if c.wrong and c.code not in ("Deadlock", "IntegerDivideByZero", "TargetOverridden")]
# Told by a run or by the command line; tests/pto/test_run.py, tests/pto/test_fifos.py and tests/pto/test_targets.py provoke them.
ELSEWHERE = {
    "Deadlock",
    "UndefinedElement",
    "IntegerDivideByZero",
    "UnboundSymbol",
    "TargetOverridden",
    "Unproved",
}


@pytest.mark.parametrize("code", PROVOKED, ids=lambda c: c.code)
def test_wrong_and_right(code):
    assert set(codes(code.wrong)) == {code.code}
    assert set(codes(code.right)) <= {"UnwaitedEvent"} - {code.code}


def test_every_code_is_explained():
    folder = Path(ptir_tools.dialects.pto.__file__).parent
    sources = "".join(p.read_text() for p in folder.rglob("*.py") if p.name != "codes.py")
    raised = set(re.findall(r'"((?:[A-Z][a-z]+){2,}|Misaligned)"', sources))
    raised -= {
        "AtomicNone",
        "AtomicAdd",
        "AtomicMax",
        "AtomicMin",
        "ScaleLeft",
        "ScaleRight",
        "NotTranslatable",
    }  # the last is of all formats
    raised -= set(re.findall(r"^class (\w+)", sources, re.MULTILINE))  # a type that is quoted
    assert raised <= set(CODES)
    assert set(CODES) == {c.code for c in PROVOKED} | ELSEWHERE


REFUSED = {
    "11_target_a3_bf16_add": "IllegalOnTarget",
    "20_bad_subview_oob": "OutOfBounds",
    "22_bad_rank_mismatch": "RankMismatch",
    "24_bad_valid_zero": "InvalidValid",
    "25_bad_ub_overflow_a3": "CapacityExceeded",
    "26_bad_missing_wait": "MissingWait",
    "28_bad_matmul_loc": "InvalidLocation",
    "30_bad_matmul_rank": "RankMismatch",
    "32_bad_alignment_a3": "Misaligned",
    "34_bad_extract_bounds": "OutOfBounds",
    "36_bad_use_before_def": "UndefinedValue",
    "38_bad_syntax": "ParseError",
}


@pytest.mark.parametrize("name", REFUSED)
def test_samples(name):
    assert REFUSED[name] in codes((SAMPLES / f"{name}.pto").read_text())
