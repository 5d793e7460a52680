"""Golden cases: every file under testdata/<command>/ names its own command; docs/testing.md tells the rules."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import pytest

from ptir_tools.cli.commands import COMMANDS
from tests.conftest import ROOT, TESTDATA, run_line

_COMMAND = re.compile(rb"^(?://|#)\s*(?:RUN|FAIL\[(\d+)\]): (ptir .*)$", re.MULTILINE)
_EXPECTATIONS = (".out", ".err")


def _command(path: Path) -> tuple[int, str] | None:
    """(expected exit status, command line) of a case, or None for a file that only belongs to one."""
    first = _COMMAND.match(path.read_bytes())
    return (int(first[1] or 0), first[2].decode()) if first else None


def _files() -> list[Path]:
    folders = [TESTDATA / command for command in COMMANDS]
    return sorted(f for folder in folders if folder.is_dir() for f in folder.rglob("*") if f.is_file())


CASES = [f for f in _files() if f.suffix not in _EXPECTATIONS and _command(f)]


@pytest.mark.parametrize("path", CASES, ids=[str(f.relative_to(TESTDATA)) for f in CASES])
def test_golden(path: Path, bless: bool, tmp_path: Path) -> None:
    status, line = _command(path) or (0, "")
    ran = run_line(line, path, tmp_path)
    assert ran.status == status, f"exit status {ran.status}, expected {status}\n{ran.err}{ran.text}"
    for suffix, found in ((".out", ran.text), (".err", ran.err)):
        expectation = path.with_suffix(suffix)
        if bless:
            _bless(expectation, found)
        expected = expectation.read_text("utf-8") if expectation.exists() else ""
        shown = "".join(difflib.unified_diff(expected.splitlines(True), found.splitlines(True), str(expectation), "found"))
        assert found == expected, f"{shown}\npytest --bless rewrites it; read the diff"


def _bless(expectation: Path, found: str) -> None:
    if found:
        expectation.write_text(found, "utf-8")
    else:
        expectation.unlink(missing_ok=True)


def test_every_file_belongs_to_a_case() -> None:
    lines = "\n".join((_command(f) or (0, ""))[1] for f in CASES)
    stems = {f.with_suffix("") for f in CASES}
    for f in _files():
        belongs = f in CASES or (f.suffix in _EXPECTATIONS and f.with_suffix("") in stems)
        named = any(str(p.relative_to(ROOT)) in lines for p in (f, f.parent, f.parent.parent) if TESTDATA in p.parent.parents)
        assert belongs or named, f"{f} belongs to no case"
