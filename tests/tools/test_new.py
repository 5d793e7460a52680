"""`ptir new`: every kind of plug-in that it writes works, and its test passes and can fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ptir_tools.tools import templates
from tests.conftest import run_ptir


@pytest.mark.parametrize("kind", templates.KINDS)
def test_what_is_written_works(kind: str, tmp_path: Path) -> None:
    ran = run_ptir("new", kind, "my-own", "-o", tmp_path)
    assert ran.status == 0 and f"ptir lit --load {tmp_path}/my_own.py" in ran.err
    (test,) = (tmp_path / "tests").iterdir()
    line = [sys.executable, "-m", "ptir_tools", "lit", "--load", tmp_path / "my_own.py", test]  # loaded in a process of its own
    assert subprocess.run(line, capture_output=True, text=True).stderr == "1 of 1 tests passed\n"
    test.write_text(test.read_text().replace("CHECK: ", "CHECK: not "))
    assert subprocess.run(line, capture_output=True).returncode == 1


def test_files_stay_and_names_are_names(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("old")
    ran = run_ptir("new", "pass", "mine", "-o", tmp_path)
    assert ran.status == 2 and "mine.py exists already" in ran.err
    assert (tmp_path / "mine.py").read_text() == "old" and not (tmp_path / "tests").exists()
    for name in ("../x", "A", "", "a b", "-a"):
        assert run_ptir("new", "pass", "-o", tmp_path, "--", name).status == 2
