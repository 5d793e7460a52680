"""The manual pages hold what is declared: in their source, and in what a formatter shows, where there is one."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ptir_tools.cli import man
from ptir_tools.cli.commands import COMMANDS, subcommand_of
from ptir_tools.cli.report import meanings
from tests.conftest import run_ptir

FORMATTERS = {
    "mandoc": ("mandoc", "-Tutf8", "-Owidth=100"),
    "groff": ("groff", "-man", "-Tutf8", "-ww", "-P-c", "-rcR=1", "-rHY=0", "-rLL=100n"),
}
FOUND = next((words for name, words in FORMATTERS.items() if shutil.which(name)), None)
MACROS = {".TH", ".SH", ".SS", ".TP", ".PP", ".B", ".BR", ".nf", ".fi"}
SECTIONS = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "EXAMPLES", "SEE ALSO"]


def squeezed(text: str) -> str:
    """The text without what layout changes."""
    return re.sub(r"[\s`]", "", text.replace("−", "-").replace("‐", "-"))


def declared(name: str) -> list[str]:
    """What a page must say: the help, its options with theirs, the exit codes."""
    command = subcommand_of(name)
    texts = (inspect.getdoc(command.function) or "").replace("\b\nExamples:\n", "").split("\n\n")
    for p in command.parameters:
        if not p.is_argument and not p.settings.get("hidden"):
            texts.append(p.settings["help"])
        if not p.is_argument:
            texts += [word for word in p.words if word.startswith("-") and "/" not in word]
    return [squeezed(text) for text in (*texts, *(meaning for _, meaning in meanings()))]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_page_is_of_the_macros_of_man_alone(name: str) -> None:
    lines = man.page(name).splitlines()
    assert lines[0].startswith(f".TH PTIR\\-{name.upper()} 1 ") and lines[1:3] == [".SH NAME", lines[2]]
    assert lines[2].startswith(f"ptir\\-{name} \\- ")
    assert [line[4:] for line in lines if line.startswith(".SH ")] == SECTIONS
    assert {line.split()[0] for line in lines if line[:1] in (".", "'")} <= MACROS
    assert all(line.isascii() and line for line in lines)
    titled = [lines[i + 1] for i, line in enumerate(lines) if line == ".TP"]
    for p in subcommand_of(name).parameters:
        for flag in () if p.is_argument or p.settings.get("hidden") else p.words:
            shown = [f"\\fB{one}\\fR".replace("-", "\\-") for one in flag.split("/") if one.startswith("-")]
            assert all(any(one in title for title in titled) for one in shown), flag


@pytest.mark.skipif(FOUND is None, reason="neither mandoc nor groff is here")
@pytest.mark.parametrize("name", ["verify", "opt", "run", "ops"])
def test_a_formatter_shows_all_that_is_declared(name: str) -> None:
    ran = subprocess.run([*(FOUND or ())], input=man.page(name), capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    shown = squeezed(re.sub(r".\x08", "", ran.stdout))
    assert [text for text in declared(name) if text not in shown] == []


def test_text_that_roff_would_take_for_its_own() -> None:
    made = man.Page()
    made.write(".SH it's `a\\b` – ~^\n'x")
    made.write_unfilled([".", "'"])
    assert made.getvalue() == ("\\&.SH it\\(aqs \\fBa\\eb\\fR \\[u2013] \\(ti\\(ha\n\\(aqx\n.nf\n\\&.\n\\(aq\n.fi\n")


def test_the_command_writes_a_page_of_each(tmp_path: Path) -> None:
    folder = tmp_path / "share" / "man1"
    ran = run_ptir("man", folder)
    assert (ran.status, ran.out, ran.err) == (0, b"", "")
    assert sorted(p.name for p in folder.iterdir()) == sorted(["ptir.1", *(f"ptir-{name}.1" for name in COMMANDS)])
    whole = (folder / "ptir.1").read_text("ascii")
    assert all(f".TP\n\\fB{name}\\fR\n" in whole and f".BR ptir\\-{name} (1)" in whole for name in COMMANDS)
    assert (folder / "ptir-run.1").read_text("ascii") == man.page("run")
    assert run_ptir("man", folder / "ptir.1").status == 4
    assert run_ptir("man").status == 2
    with pytest.raises(KeyError):
        man.page("no-such")
