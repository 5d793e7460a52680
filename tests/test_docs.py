"""The documents are true: every console example prints what it says, every Python example runs, generated pages are fresh."""

from __future__ import annotations

import ast
import doctest
import math
import re
import shlex
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools import convert
from ptir_tools.cli.commands import COMMANDS
from ptir_tools.dialects.ptir.ops import shape
from tests.conftest import ROOT, TESTDATA, Ran, run_ptir

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SMALL = re.compile(r"\d\.\d+e-\d+")
_LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")
GENERATED = {"docs/ops.md": ["ops", "--markdown"], "docs/codes.md": ["explain", "--markdown"]}


SUM = """func @main(%x: tensor<f32, 2>, %w: tensor<f32, 2>) -> tensor<f32, 2> {
  %y = add(%x, %w) -> tensor<f32, 2>
  return %y
}
"""
# What the text around the examples of a page speaks of.
GIVEN: dict[str, dict[str, object]] = {
    "engines.md": {"program": ptir.read(SUM), "batches": np.eye(2, dtype=np.float32), "w": np.ones(2, np.float32)},
    "plan.md": {"program": ptir.read(SUM)},
    "translation.md": {"my_convert": lambda program, diagnostics, options: program},
}


def examples(block: str) -> Iterator[tuple[str, str]]:
    """(command line, what it prints) of a console block: each command follows `$ `."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        yield command, printed


def printed(line: str) -> str:
    """What a line of `ptir` commands prints: diagnostics and results, and the exit code when it is not 0."""
    out, said, status = b"", "", 0
    for part in line.partition("  # ")[0].split(" | "):
        words = shlex.split(part)
        assert words[0] == "ptir", f"{line}: only ptir runs here"
        ran = (run_apart if "--load" in words else run_ptir)(*words[1:], stdin=out)
        out, said, status = ran.out, said + ran.err, max(status, ran.status)
    return said + out.decode()


def run_apart(*args: str, stdin: bytes) -> Ran:
    """Run `ptir` in a process of its own, where what a plug-in adds may stay."""
    ran = subprocess.run([sys.executable, "-m", "ptir_tools", *args], input=stdin, capture_output=True, check=False)
    return Ran(ran.returncode, ran.stdout, ran.stderr.decode())


def _matches(wanted: str, found: str) -> bool:
    """Whether both are equal. A line `...` matches any lines; a bound such as `9.75e-08` may differ by 2 % between processors."""
    pieces = re.split(r"^\.\.\.\n", wanted, flags=re.MULTILINE)
    exact = [rf"({_SMALL.pattern})".join(map(re.escape, _SMALL.split(piece))) for piece in pieces]
    if (match := re.fullmatch(r"(?:.*\n)*?".join(exact), found)) is None:
        return False
    return all(
        math.isclose(float(a), float(b), rel_tol=0.02) for a, b in zip(_SMALL.findall(wanted), match.groups(), strict=True)
    )


def _shortened(wanted: str, found: str) -> str:
    """`found`, with what the first `...` of `wanted` left out left out again: as many lines stay before and after it."""
    if _matches(wanted, found):
        return wanted
    first, dots, last = wanted.partition("...\n")
    lines, before, after = found.splitlines(True), first.count("\n"), last.count("\n")
    return "".join([*lines[:before], dots, *lines[len(lines) - after :]]) if dots else found


@pytest.mark.parametrize("page", PAGES, ids=[p.name for p in PAGES])
def test_no_merge_is_left_open(page: Path) -> None:
    assert not re.search(r"^(<{7}|={7}$|>{7})", page.read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=[p.name for p in PAGES])
def test_console_examples(page: Path, bless: bool) -> None:
    text = page.read_text("utf-8")
    for block in _CONSOLE.finditer(text):
        made = ""
        for command, wanted in examples(block[1]):
            if not command.startswith("ptir "):
                made += f"$ {command}\n{wanted}"
                continue
            found = printed(command)
            made += f"$ {command}\n{_shortened(wanted, found) if bless else wanted}"
            assert bless or _matches(wanted, found), f"{page.name}: $ {command}\n{found}\npytest --bless rewrites it"
        text = text.replace(block[1], made)
    if bless:
        page.write_text(text, "utf-8")


def _said(*error: Any) -> list[str]:
    """What an exception says, its notes included, as one piece: doctest before Python 3.11.5 takes the last one alone."""
    return ["".join(traceback.format_exception_only(*error))]


@pytest.mark.parametrize("page", PAGES, ids=[p.name for p in PAGES])
def test_python_examples(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session prints what it shows; what is no session runs, block after block."""
    monkeypatch.setattr(convert, "_TARGETS", dict(convert._TARGETS))
    monkeypatch.setattr(doctest, "traceback", SimpleNamespace(**vars(traceback) | {"format_exception_only": _said}))
    space = {"__name__": page.name, "ptir": ptir, **GIVEN.get(page.name, {})}
    for number, block in enumerate(_PYTHON.findall(page.read_text("utf-8"))):
        if ">>>" in block:
            test = doctest.DocTestParser().get_doctest(block, {}, f"{page.name}[{number}]", str(page), 0)
            said: list[str] = []
            doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append)
            assert not said, "".join(said)
        elif page.name == "adding.md":
            source = Path(shape.__file__).read_text("utf-8")
            assert not [part for part in block.strip().split("\n\n\n") if part not in source]
        elif page.name == "plugins.md":  # what it adds would stay in this process
            assert block == (TESTDATA / "plugins" / "mine.py").read_text("utf-8")
        else:
            exec(compile(block, str(page), "exec"), space)


@pytest.mark.parametrize("page", PAGES, ids=[p.name for p in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    for target in _LINK.findall(page.read_text("utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("name", GENERATED)
def test_generated_pages_are_fresh(name: str, bless: bool) -> None:
    ran = run_ptir(*GENERATED[name])
    assert ran.status == 0, ran.err
    if bless:
        (ROOT / name).write_bytes(ran.out)
    assert (ROOT / name).read_text("utf-8") == ran.text, "pytest --bless rewrites it"


def commands_page() -> str:
    """The help of every command; what all of them share once, at the end."""
    helps = {name: run_ptir(name, "--help").text for name in COMMANDS}
    shared = "Common options:"
    pages = [(name, text.partition(shared)[0]) for name, text in helps.items()]
    pages.append(("What commands share", shared + helps["verify"].partition(shared)[2]))
    head = "# Commands\n\nMade from `ptir COMMAND --help`; a test compares. Do not edit.\n\n"
    return head + "\n".join(f"## {title}\n\n```\n{text.strip()}\n```\n" for title, text in pages)


def test_the_page_of_commands_is_fresh(bless: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    page = ROOT / "docs" / "commands.md"
    if bless:
        page.write_text(commands_page(), "utf-8")
    assert page.read_text("utf-8") == commands_page(), "pytest --bless rewrites it"


def test_every_command_is_in_the_table_of_the_readme() -> None:
    rows = re.findall(r"^\| (`ptir [^|]*) \|", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`ptir (\w+)`", row)} == set(COMMANDS)


def test_the_contributing_words_are_real() -> None:
    """Targets that the documents name exist in the Makefile."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for page in PAGES:
        for target in " ".join(re.findall(r"`make ([\w ]+)`", page.read_text("utf-8"))).split():
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page.name} names `make {target}`"


_SHOWN = re.compile(r"`(?:([\w/]*\btest_\w+\.py)(?:::(\w+))?|((?:mind|tiny)/[\w/]+))`")


@pytest.mark.parametrize("page", ["mind.md", "tiny.md", "ptir.md"])
def test_clauses_are_shown(page: str) -> None:
    """Every row of the table names tests or conformance cases, and each of them is there."""
    table = (ROOT / "docs" / page).read_text("utf-8").partition(", clause by clause\n")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]
    assert len(rows) > 30 and not [row for row in rows if not _SHOWN.search(row)]
    for file, name, case in _SHOWN.findall(table):
        if case:
            assert (TESTDATA / "conformance" / f"{case}.yaml").is_file(), case
        else:
            tree = ast.parse((ROOT / "tests" / file).read_text("utf-8"))
            assert not name or name in {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}, f"{file}::{name}"


LONGEST = 30  # words of a sentence
# Phrases that plain English says otherwise.
BANNED = (
    r"\b(?:is|are|was) told\b", r"\b[Ss]tands? (?:in|for)\b", r"\bbeside\b", r"\bnobody\b", r"\bbut for\b", r"\bclusters?\b",
    r"\btranspositions?\b", r"none of its business", r"\b[Ff]acts (?:section )?\d", r"\b[Ss]eed \d+(?:\.\d|, step)",
    r"as one would think",
)  # fmt: skip


def sentences(page: str) -> Iterator[str]:
    """The sentences of a page, code blocks, tables and headings left out; a piece of code is one word."""
    blank = "\n\n"
    text = re.sub(r"^```.*?^```$", blank, page, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(?:\||#|    ).*$", blank, text, flags=re.MULTILINE)
    text = re.sub(r"^ *(?:[-*]|\d+\.) ", blank, text, flags=re.MULTILINE)
    text = re.sub(r"`[^`]*`", "CODE", text)
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).replace("*", "")
    for paragraph in re.split(r"\n\s*\n", text):
        yield from re.split(r"(?<=[.!?])[\")”]?\s+", paragraph.strip())


@pytest.mark.parametrize("page", PAGES, ids=[p.name for p in PAGES])
def test_sentences_are_short_and_plain(page: Path) -> None:
    text = page.read_text("utf-8")
    long = [s for s in sentences(text) if len(s.split()) > LONGEST]
    assert not long, f"more than {LONGEST} words: {long}"
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    assert not [m[0] for phrase in BANNED for m in re.finditer(phrase, prose)]


@pytest.mark.parametrize("page", [p for p in PAGES if p.stem not in ("codes", "ops")], ids=lambda p: p.name)
def test_no_sentence_is_there_twice(page: Path) -> None:
    """As two changes of one paragraph leave it when both are merged."""
    found = Counter(" ".join(s.split()) for s in sentences(page.read_text("utf-8")) if len(s.split()) >= 6 and s[-1] != ":")
    assert not [s for s, times in found.items() if times > 1]


def test_docstrings_are_short_and_plain() -> None:
    """Manuals of modules, classes and functions; a clause that a colon or a semicolon ends counts as a sentence."""
    found = []
    for path in (p for room in ("ptir_tools", "passes", "grammars") for p in sorted((ROOT / room).rglob("*.py"))):
        for n in ast.walk(ast.parse(path.read_text("utf-8"))):
            text = ast.get_docstring(n) if isinstance(n, (ast.Module, ast.ClassDef, ast.FunctionDef)) else None
            prose = re.sub("\b.*?(\n\n|$)", "\n\n", text or "", flags=re.DOTALL)  # click lays out what is after a \\b
            clauses = [c for s in sentences(prose) for c in re.split(r"(?<=[:;])\s", s)]
            found += [f"{path}: {c}" for c in clauses if len(c.split()) > LONGEST]
            found += [f"{path}: {m[0]}" for phrase in BANNED if (m := re.search(phrase, prose)) and "luster" not in m[0]]
    assert not found


def test_a_long_sentence_and_its_exceptions_are_seen() -> None:
    long = "word " * 31
    assert [len(s.split()) for s in sentences(f"Short. {long}\n\n{long}")] == [1, 31, 31]
    assert not [s for s in sentences(f"```\n{long}\n```\n| {long} |\n\n    {long}\n\n`{long}`\n") if len(s.split()) > 1]


def test_messages_are_plain() -> None:
    """What the package prints: string literals that are no docstrings."""
    found = []
    for path in (p for room in ("ptir_tools", "passes", "grammars") for p in sorted((ROOT / room).rglob("*.py"))):
        tree = ast.parse(path.read_text("utf-8"))
        manuals = {n.value for n in ast.walk(tree) if isinstance(n, ast.Expr)}
        for n in ast.walk(tree):
            if isinstance(n, ast.Constant) and isinstance(n.value, str) and " " in n.value and n not in manuals:
                found += [f"{path}:{n.lineno}: {m[0]}" for phrase in BANNED if (m := re.search(phrase, n.value))]
    assert not found
