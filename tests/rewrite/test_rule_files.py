"""Rule lists are compiled once: what is in their files is used while it is right, and only then."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.dialects.ptir.rewrites import algebra, extensions, logic, movement
from ptir_tools.dialects.ptir.rewrites.helpers import HELPERS, splat
from ptir_tools.rewrite import rule_files
from ptir_tools.rewrite.rule_pattern import RulePattern
from ptir_tools.rewrite.rules import compiled, rules

TEXT = "double: neg(neg(x)) => x\nright: compare_lt(const c, var x) => compare_gt(x, c)\nzero: mul(x, 0.0) => 0 [range]"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The texts that were compiled, with files in a folder of the test's own."""
    texts: list[str] = []
    monkeypatch.setattr(rule_files, "HERE", str(tmp_path / "files"))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr("ptir_tools.rewrite.rules.compiled", lambda text, d: texts.append(text) or compiled(text, d))
    return texts


def listed(text: str = TEXT) -> list[tuple[object, ...]]:
    """The rows of a list, bytes of code apart from what Python says of them."""
    found = rules(text, DIALECT, HELPERS, splat)
    return [tuple(p.row) for p in found if isinstance(p, RulePattern)]


def test_a_second_start_compiles_nothing(made: list[str], tmp_path: Path) -> None:
    first = listed()
    assert listed() == first and made == [TEXT]
    assert len(list((tmp_path / "files").glob("*.py"))) == 1


@pytest.mark.parametrize("module", [algebra, extensions, logic, movement])
def test_rows_of_the_lists_survive_their_files(made: list[str], module: Any) -> None:
    assert listed(module.RULES) == listed(module.RULES) and len(made) == 1


def test_a_list_that_is_changed_is_compiled(made: list[str]) -> None:
    listed()
    assert listed(TEXT.replace("double", "twice"))[0][0] == "twice" and len(made) == 2


@pytest.mark.parametrize("content", [b"", b"not a file of ours", b"\0", b"STAMP = 0", b"ROWS = 1", b"ROWS = ((1, 2),)", b"1 / 0"])
def test_a_file_that_is_broken_or_of_another_version_is_written_anew(made: list[str], tmp_path: Path, content: bytes) -> None:
    first = listed()
    (file,) = (tmp_path / "files").glob("*.py")
    file.write_bytes(content)
    assert listed() == first and listed() == first and len(made) == 2


def test_a_file_is_stale_when_an_op_is_declared_otherwise(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(listed()) == 4
    monkeypatch.setattr(DIALECT.ops["mul"], "commutes", False)
    assert len(listed()) == 3 and len(made) == 2


def test_a_folder_that_cannot_be_written_does_no_harm(made: list[str], tmp_path: Path) -> None:
    (tmp_path / "files").write_text("in the way")
    assert listed() == listed() and len(made) == 2


def test_old_files_go(made: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_files, "KEPT", 2)
    for name in "abc":
        listed(f"{name}: neg(neg(x)) => x")
    assert len(list((tmp_path / "files").glob("*.py"))) == 2


def test_notation() -> None:
    found = rules("r: add(once mul(var x, const c), y := once exp(_)) => sub(x, y)", DIALECT, HELPERS, splat)
    assert {p.row.wants for p in found} == {("ptir.mul", "ptir.exp"), ("ptir.exp", "ptir.mul")}
    assert ("const", "ptir.mul", 1) in found[0].row.looks and found[0].row.looks_for_uses and found[0].depth == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("neg(x)", "not a rule"),
        ("r: x => x", "the left side is not an op"),
        ("r: nag(x) => x", "no op or family `nag`"),
        ("r: neg(x) => y", "`y` is not bound"),
        ("r: neg(x) => add(x, 1)", "a number inside"),
        ("r: neg(x, lo=2) => x", "no attribute `lo`"),
        ("r: transpose(x) => x", "needs its attribute `perm`"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rules(text, DIALECT, HELPERS, splat)
