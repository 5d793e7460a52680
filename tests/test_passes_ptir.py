"""PTIR's passes other than canonicalize: golden before and after, equal numbers, a second run changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import TESTDATA
from pass_cases import after, parts
from test_rules import write

FILES = sorted((TESTDATA / "passes").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=[p.stem for p in FILES])
def test_golden_before_and_after(path: Path, bless: bool) -> None:
    found = [(case, write(after(case, path.stem))) for case, _ in parts(path)]
    text = "\n".join(f"// case {case.title}\n{case.before}// after\n{made}" for case, made in found)
    if bless:
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")
