"""Golden cases: every file under testdata/<command>/ names its own command; docs/testing.md tells the rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptir_tools.cli.commands import COMMANDS
from ptir_tools.core import render
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.source import Source
from ptir_tools.tools import runlines
from tests.conftest import ROOT, TESTDATA, in_process

_EXPECTATIONS = (".out", ".err")


def _command(path: Path) -> str:
    """What the first line of a case says to run; nothing for a file that only belongs to one."""
    first = path.read_bytes().partition(b"\n")[0].decode("utf-8", "replace")
    return "".join(line.text for line in runlines.lines(Source("", first)))


def _files() -> list[Path]:
    folders = [TESTDATA / command for command in COMMANDS]
    return sorted(f for folder in folders if folder.is_dir() for f in folder.rglob("*") if f.is_file())


CASES = [f for f in _files() if f.suffix not in _EXPECTATIONS and _command(f)]


@pytest.mark.parametrize("path", CASES, ids=[str(f.relative_to(TESTDATA)) for f in CASES])
def test_golden(path: Path, bless: bool, tmp_path: Path) -> None:
    source = Source(str(path.relative_to(ROOT)), path.read_bytes().decode("utf-8", "replace"))
    diagnostics = Diagnostics(source)
    runlines.run(source, str(tmp_path), in_process, diagnostics, bless=bless, trusted=True)
    assert not diagnostics.items, "\n".join(map(render.text, diagnostics)) + "\npytest --bless rewrites what is expected"


def test_every_file_belongs_to_a_case() -> None:
    lines = "\n".join(map(_command, CASES))
    stems = {f.with_suffix("") for f in CASES}
    for f in _files():
        of = f.with_suffix("")  # of the second command of a case: NAME.2
        of = of.with_suffix("") if of.suffix[1:].isdecimal() else of
        belongs = f in CASES or (f.suffix in _EXPECTATIONS and of in stems)
        named = any(str(p.relative_to(ROOT)) in lines for p in (f, f.parent, f.parent.parent) if TESTDATA in p.parent.parents)
        assert belongs or named, f"{f} belongs to no case"
