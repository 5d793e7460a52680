"""Tests that say in comments what to run: `RUN: ptir opt %s`, whose output meets checks or equals a file."""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Callable, Sequence

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.files import open_data
from ptir_tools.core.lazy import regex
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.source import Source, Span
from ptir_tools.tools import filecheck

_SHELL = ("&&", "||", ";", "&", ">", ">>", "<")
_LINE = regex(r"^[ \t]*(?://|#|;)[ \t]*(?:RUN|FAIL\[(\d{1,3})\]):(.*)$", re.MULTILINE)
EXPECTED = (".out", ".err")  # suffixes of files with what a test prints
_TOOL = "ptir"
_CHECKERS = ("filecheck", "FileCheck")
# What a test does not run, except with --allow-writes: these commands run others, serve, or write many files.
_REFUSED = ("reduce", "bisect", "fuzz", "lit", "lsp", "man", "new")


class Ran(NamedTuple):
    """The end of a command: its exit code, standard output and standard error."""

    status: int
    out: bytes
    err: str


Execute = Callable[[Sequence[str], bytes], Ran]  # of the words after `ptir`, and standard input


class Line(NamedTuple):
    """A line to run: the exit code that it expects, and its text."""

    status: int
    text: str
    span: Span


class _Invalid(Exception):
    """A line is not of the form that a test has."""


def lines(source: Source) -> list[Line]:
    """The lines of a file that say what to run."""
    found = list[Line]()
    for m in _LINE.finditer(source.text):
        line = Line(int(m[1] or 0), m[2].strip(), Span(*m.span(2)))
        if found and found[-1].text.endswith("\\"):  # the line continues there
            first = found.pop()
            line = Line(first.status, f"{first.text[:-1]} {line.text}", Span(first.span.start, line.span.end))
        found.append(line)
    return found


def stages(text: str, names: dict[str, str]) -> list[list[str]]:
    """The words of the commands of a line, `names` (`%s` …) replaced. Raises ValueError."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|")
    lexer.whitespace_split, lexer.commenters = True, ""
    commands = list[list[str]]([[]])
    for word in lexer:
        if word in _SHELL:
            raise ValueError(f"`{word}` is for a shell, and none runs this; write another `RUN:` line, or `-o`")
        if word == "|":
            commands.append([])
        else:
            commands[-1].append(re.sub(r"%[sSt]\b", lambda m: names[m[0]], word))
    return commands


def may_be_test(path: str) -> bool:
    """Whether a file of a folder is a text with lines that say what to run. Raises OSError."""
    with open_data(path) as file:
        data = file.read()
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return "RUN" in text or "FAIL" in text


def run(source: Source, folder: str, execute: Execute, diagnostics: Diagnostics, *, bless: bool, trusted: bool) -> None:
    """Run the lines of a test, and report what differs. `%s` is the file, `%S` its folder, `%t` is `folder`.

    If no line has filecheck, the checks of the file are for standard output. Without checks, standard output and standard error
    of a line equal the files NAME.out and NAME.err (NAME.2.out for the second line); `bless` writes them. Raises OSError.
    """
    diagnostics.source = source
    names = {"%s": source.name, "%S": os.path.dirname(source.name) or ".", "%t": folder}
    given = lines(source)
    wanted = [] if any(f"| {name}" in line.text for name in _CHECKERS for line in given) else list(filecheck.checks(source))
    for number, line in enumerate(given, 1):
        errors = diagnostics.errors
        try:
            ran, checked = _run(source, line, names, execute, diagnostics, trusted)
        except (_Invalid, ValueError) as error:
            diagnostics.error("InvalidTest", str(error), line.span)
            continue
        if ran.status != line.status:
            said = [f"standard error: {x}" for x in ran.err.splitlines()[:5]]
            diagnostics.error(
                "TestFailed", f"the exit code is {ran.status}, and {line.status} is expected", line.span, notes=said
            )
        if checked or diagnostics.errors > errors:
            continue
        if wanted:
            filecheck.compare(wanted, ran.out.decode("utf-8", "replace"), diagnostics)
        else:
            _compare_files(source, line, ran, folder, f".{number}" if number > 1 else "", diagnostics, bless)


def _run(
    source: Source, line: Line, names: dict[str, str], execute: Execute, diagnostics: Diagnostics, trusted: bool
) -> tuple[Ran, bool]:
    """What a line came to, and whether it had checks."""
    out, said, status, checked = b"", "", 0, False
    for words in stages(line.text, names):
        negated = words[:1] == ["not"]
        words = words[negated:]
        if checked or not words or words[0] not in (_TOOL, *_CHECKERS):
            raise _Invalid("a test runs only `ptir`, and `filecheck` at the end")
        if words[0] != _TOOL:
            filecheck.compare(_wanted(source, words[1:]), out.decode("utf-8", "replace"), diagnostics)
            checked = True
            continue
        both, words = "2>&1" in words, [w for w in words[1:] if w != "2>&1"]
        if not trusted and (refused := _refused(words)):
            raise _Invalid(f"`{refused}` is not for tests; --allow-writes allows it, if you trust the file")
        ran = execute(words, out)
        out = ran.out + ran.err.encode() if both else ran.out
        said += "" if both else ran.err
        status = max(status, int(not ran.status) if negated else ran.status)
    return Ran(status, out, said), checked


def _refused(words: Sequence[str]) -> str | None:
    return next((w for w in words[:1] if w in _REFUSED), next((w for w in words if w.startswith("--load")), None))


def _wanted(source: Source, words: Sequence[str]) -> list[filecheck.Check]:
    """The checks that `filecheck FILE --check-prefix=P` takes. Raises _Invalid."""
    prefixes, files, left = ["CHECK"], list[str](), iter(words)
    for word in left:
        name, joined, value = word.partition("=")
        if name.lstrip("-") in ("check-prefix", "check-prefixes") and word.startswith("-"):
            prefixes = (value if joined else next(left, "")).split(",")
        elif word.startswith("-"):
            raise _Invalid(f"filecheck has the option --check-prefix, and not {word}")
        else:
            files.append(word)
    if files != [source.name]:
        raise _Invalid("filecheck reads the checks of this file: write `filecheck %s`")
    if not (found := list(filecheck.checks(source, prefixes))):
        raise _Invalid(f"the file has no line `{prefixes[0]}:`")
    return found


def _compare_files(source: Source, line: Line, ran: Ran, folder: str, part: str, diagnostics: Diagnostics, bless: bool) -> None:
    stem = os.path.splitext(source.name)[0] + part
    for suffix, text in ((".out", ran.out.decode("utf-8", "replace")), (".err", ran.err)):
        found, path = text.replace(folder, "%t"), stem + suffix
        expected = _read(path)
        if found == expected:
            continue
        if bless:
            _write(path, found)
            continue
        shown = difflib.unified_diff(expected.splitlines(), found.splitlines(), path, "found", lineterm="")
        what = "standard output" if suffix == ".out" else "standard error"
        message = f"{what} is not that of {path}" if expected else f"{what} is not empty, and there is no {path}"
        diagnostics.error(
            "TestFailed", message, line.span, notes=list(shown), help="--bless writes the file; read the difference"
        )


def _read(path: str) -> str:
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


def _write(path: str, text: str) -> None:
    """Write the file, or remove it if the text is empty."""
    if text:
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(text)
    else:
        os.unlink(path)
