"""What decides from outside: a command on the text of a program, and comments that list expected diagnostics."""

from __future__ import annotations

import sys
import time

import pytest

from ptir_tools.core.diagnostics import Diagnostics, Severity, UsageError
from ptir_tools.core.source import Source, Span
from ptir_tools.tools import check_command, expectations
from ptir_tools.tools.check_command import CheckCommand

TEXT = "func @f\nexp\n"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("grep exp", ["grep", "exp", "{}"]),
        ("grep -f {} exp", ["grep", "-f", "{}", "exp"]),
        ("x --file={} 'a b'", ["x", "--file={}", "a b"]),
        ("grep exp | cat", ["sh", "-c", "grep exp | cat"]),
        ("! grep exp", ["sh", "-c", "! grep exp"]),
        ("grep ! exp", ["grep", "!", "exp", "{}"]),
        ("a && b {}", ["sh", "-c", "a && b {}"]),
        ("a > b", ["sh", "-c", "a > b"]),
        ("grep 'a;b'", ["grep", "a;b", "{}"]),
    ],
)
def test_a_command_with_operators_is_one_of_the_shell(command: str, words: list[str]) -> None:
    assert CheckCommand(command, "ptir").words == words


@pytest.mark.parametrize("command", ["", "  ", "grep 'a", 'grep "a'])
def test_a_command_that_is_none_is_wrong_usage(command: str) -> None:
    with pytest.raises(UsageError, match="--check"):
        CheckCommand(command, "ptir")


@pytest.mark.parametrize(
    ("command", "good"),
    [
        ("grep -q exp", True), ("grep -q log", False), ("! grep -q log", True), ("grep -q exp {} && grep -q func", True),
        ("sh -c 'grep -q exp'", True), ("sh -c 'exit 3'", False), ("sh -c 'kill -9 $$'", False),
        ("sh -c 'test \"$(wc -l)\" -eq 2'", True), ("sh -c 'case $0 in *.ptir) exit 0;; esac; exit 1' {}", True),
    ],
)  # fmt: skip
def test_a_program_is_good_where_the_command_exits_with_0(command: str, good: bool) -> None:
    """Its text is on standard input, and in the file of the last word, whose name has the format's suffix."""
    check = CheckCommand(command, "ptir")
    assert check(TEXT) is good and check.runs == 1 and check(TEXT) is good and check.runs == 2


def test_what_the_command_prints_for_the_first_program_is_kept() -> None:
    check = CheckCommand("sh -c 'cat; echo wrong >&2; exit 3'", "ptir")
    assert check.said == "" and not check("one\n")
    assert check.said == "the command ended with exit code 3 and printed this\none\nwrong"
    assert not check("two\n") and "one" in check.said
    silent = CheckCommand("true", "ptir")
    assert silent(TEXT) and silent.said == "the command ended with exit code 0 and printed nothing"
    named = CheckCommand("echo", "ptir")
    assert named(TEXT) and named.said.endswith("printed this\nprogram.ptir")


def test_only_the_end_of_what_it_prints_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    check = CheckCommand(f"{sys.executable} -c \"[print('line', i) for i in range(2000)]\"", "ptir")
    assert check(TEXT)
    assert check.said.splitlines()[1:] == [f"line {i}" for i in range(1992, 2000)]
    monkeypatch.setattr(check_command, "_SHOWN", 12)
    again = CheckCommand("sh -c 'echo first; echo second'", "ptir")
    assert again(TEXT) and again.said.splitlines()[1:] == ["first"[1:], "second"]


def test_a_command_that_takes_too_long_is_ended() -> None:
    check, start = CheckCommand("sh -c 'sleep 60; true'", "ptir", 0.2), time.monotonic()
    assert not check(TEXT) and time.monotonic() - start < 30
    assert check.said == "the command did not end in time and printed nothing"


def test_a_refused_first_program_is_explained_by_the_output() -> None:
    for runs, help in ((1, None), (2, None), (1, "own help"), (0, None)):
        check = CheckCommand("sh -c 'echo why'", "ptir")
        for _ in range(runs):
            check(TEXT)
        with pytest.raises(UsageError) as caught, check.explained():
            raise UsageError("refused", help)
        assert caught.value.help == (check.said if runs == 1 and help is None else help)


def test_a_command_that_is_not_there_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="--check no-such-command: no such file"):
        CheckCommand("no-such-command", "ptir")(TEXT)


# ---- expected diagnostics


def compared(text: str, *found: tuple[Severity, str, str, str | None]) -> list[tuple[str, str, int]]:
    """The mismatches of a text with comments, where diagnostics are at words of it: code, message, line."""
    diagnostics = Diagnostics(source := Source("f", text))
    for severity, code, message, word in found:
        at = None if word is None else Span(text.index(word), text.index(word) + 1)
        diagnostics.report(severity, code, message, at)
    expectations.compare(source, diagnostics)
    assert diagnostics.errors == len(diagnostics.items)
    return [(d.code, d.message, d.where[1]) for d in diagnostics.items]


E, W, N = Severity.ERROR, Severity.WARNING, Severity.NOTE
LINES = "// expected-error@+1 {{Bad: n.}}\none\ntwo // expected-warning {{odd}} expected-note@-1 {{Fact}}\n"


def test_expected_diagnostics_are_met_by_severity_line_and_words() -> None:
    good = ((E, "Bad", "no", "one"), (W, "X", "odd", "two"), (N, "Fact", "so", "one"))
    assert compared(LINES, *good) == []
    missing = ("MissingDiagnostic", "no error on line 2 matches 'Bad: n.'", 1)
    assert compared(LINES, *good[1:]) == [missing]
    for wrong in ((E, "Bad", "no", "two"), (W, "Bad", "no", "one"), (E, "Worse", "no", "one"), (E, "Bad", "yes", "one")):
        line = 2 if wrong[3] == "one" else 3
        unexpected = ("UnexpectedDiagnostic", f"unexpected {wrong[0]}: {wrong[1]}: {wrong[2]}", line)
        assert sorted(compared(LINES, wrong, *good[1:])) == sorted([unexpected, missing])


def test_each_expectation_is_met_once() -> None:
    text = "one // expected-error {{Bad}}\n"
    assert compared(text, (E, "Bad", "a", "one")) == []
    twice = [("UnexpectedDiagnostic", "unexpected error: Bad: b", 1)]
    assert compared(text, (E, "Bad", "a", "one"), (E, "Bad", "b", "one")) == twice
    assert (
        compared(text.replace("{{Bad}}", "{{Bad}} expected-error {{Bad}}"), (E, "Bad", "a", "one"), (E, "Bad", "b", "one")) == []
    )


def test_a_diagnostic_without_a_place_is_on_the_first_line_and_comments_of_json_are_none() -> None:
    assert compared("// expected-error {{Bad}}\none\n", (E, "Bad", "a", None)) == []
    assert compared("one\n", (W, "JsonComment", "a", "one")) == []
    assert compared("one\n", (W, "JsonComments", "a", "one")) == [
        ("UnexpectedDiagnostic", "unexpected warning: JsonComments: a", 1)
    ]


def test_an_expectation_that_is_no_expression_is_told() -> None:
    ((code, message, line),) = compared("\none // expected-error {{(}}\n")
    assert code == "InvalidExpectation" and "{{(}} is not a regular expression" in message and line == 2
