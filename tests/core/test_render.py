"""How diagnostics look: carets under wide characters and tabs, labels, cut lines, the machine-readable forms."""

from __future__ import annotations

import json

import pytest

from ptir_tools.core import render
from ptir_tools.core.diagnostics import Diagnostic, Diagnostics, Fix, Label, Severity
from ptir_tools.core.source import Source, Span


def found(text: str, start: int, end: int, **more: object) -> Diagnostic:
    return Diagnostic(Severity.ERROR, "Code", "message", Source("f.ptir", text), Span(start, end), **more)  # type: ignore[arg-type]


def test_carets_stand_under_the_span() -> None:
    assert render.text(found("abc def\n", 4, 7)).splitlines() == [
        "error[Code]: message",
        " --> f.ptir:1:5",
        "  |",
        "1 | abc def",
        "  |     ^^^",
    ]


@pytest.mark.parametrize(
    ("text", "start", "end", "line", "marks"),
    [
        ("\tx = y", 1, 2, "    x = y", "    ^"),
        ("a\tx", 2, 3, "a   x", "    ^"),
        ("漢字 x", 3, 4, "漢字 x", "     ^"),
        ("漢字 x", 0, 2, "漢字 x", "^^^^"),
        ("e\u0301 x", 3, 4, "e\u0301 x", "  ^"),
        ("a\x1b[31mb", 6, 7, "a\\x1b[31mb", "         ^"),
        ("a\u202eb", 2, 3, "a\\u{202e}b", "         ^"),
    ],
)
def test_columns_on_the_terminal(text: str, start: int, end: int, line: str, marks: str) -> None:
    shown = render.text(found(text, start, end)).splitlines()
    assert shown[3] == f"1 | {line}"
    assert shown[4] == f"  | {marks}"


def test_column_numbers_count_code_points() -> None:
    assert "f.ptir:1:4" in render.text(found("漢字 x", 3, 4))


def test_a_second_place_and_help_with_several_lines() -> None:
    text = "one\ntwo\nthree\nfour\n"
    label = Label(Span(0, 3), "first here")
    shown = render.text(found(text, 14, 18, labels=(label,), notes=("so it is",), help="do this\nor that"))
    assert shown.splitlines() == [
        "error[Code]: message",
        " --> f.ptir:4:1",
        "  |",
        "1 | one",
        "  | --- first here",
        "...",
        "4 | four",
        "  | ^^^^",
        "  = note: so it is",
        "  = help: do this",
        "          or that",
    ]


def test_two_marks_on_one_line_show_it_once() -> None:
    shown = render.text(found("x = f(a, a)", 9, 10, labels=(Label(Span(6, 7), "first"),))).splitlines()
    assert shown[3:] == ["1 | x = f(a, a)", "  |          ^", "  |       - first"]


def test_a_span_over_lines_is_marked_to_the_end_of_the_first() -> None:
    assert render.text(found("ab cd\nef", 3, 8)).splitlines()[3:] == ["1 | ab cd", "  |    ^^"]


@pytest.mark.parametrize("at", [0, 2, 3])
def test_an_empty_span_is_one_caret(at: int) -> None:
    assert render.text(found("abc", at, at)).splitlines()[4] == "  | " + " " * at + "^"


def test_a_long_line_is_cut_round_the_place() -> None:
    shown = render.text(found("x" * 1000 + "HERE" + "y" * 1000, 1000, 1004)).splitlines()
    assert len(shown[3]) < 200
    at = shown[4].index("^")
    assert shown[3][at : at + 4] == "HERE"
    assert shown[3][4] == "…" and shown[3].endswith("…")


@pytest.mark.parametrize("filler", ["\x1b", "\u202e", "漢", "x", "\t"])
def test_a_cut_line_has_about_160_columns(filler: str) -> None:
    shown = render.text(found(filler * 1000 + "HERE" + filler * 1000, 1000, 1004)).splitlines()
    columns = sum(2 if c == "漢" else 1 for c in shown[3])
    assert 140 < columns <= 4 + 162
    before = shown[3][: shown[3].index("HERE")]
    assert sum(2 if c == "漢" else 1 for c in before) == shown[4].index("^")
    assert shown[3][4] == "…" and shown[3].endswith("…")


def test_no_control_character_of_a_program_reaches_the_terminal() -> None:
    diagnostic = Diagnostic(Severity.ERROR, "Code", "bad \x1b[2J name", Source("f\x1b.ptir", "\x1b]0;x\x07"), Span(0, 1))
    assert "\x1b" not in render.text(diagnostic) + render.short(diagnostic)
    assert "\x07" not in render.text(diagnostic)


def test_color_is_only_there_when_asked_for() -> None:
    assert "\x1b" not in render.text(found("abc", 0, 1))
    assert render.text(found("abc", 0, 1), color=True).startswith("\x1b[1;31merror[Code]\x1b[0m")


def test_short() -> None:
    assert render.short(found("ab\ncd", 4, 5)) == "f.ptir:2:2: error[Code]: message"


def test_json_record() -> None:
    fix = Fix(Span(0, 2), "zz")
    record = json.loads(
        render.json_line(found("ab\ncd", 0, 4, help="h", notes=("n",), fix=fix, labels=(Label(Span(3, 4), "l"),)))
    )
    assert record == {
        "severity": "error", "code": "Code", "message": "message", "file": "f.ptir",
        "line": 1, "column": 1, "end_line": 2, "end_column": 2, "notes": ["n"], "help": "h",
        "labels": [{"message": "l", "line": 2, "column": 1, "end_line": 2, "end_column": 2}],
        "fix": {"replacement": "zz", "line": 1, "column": 1, "end_line": 1, "end_column": 3, "safe": False},
    }  # fmt: skip


def test_sarif_counts_utf16_code_units() -> None:
    log = json.loads(render.sarif([found("😀 x", 2, 3)], "1.0"))
    region = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 1, "startColumn": 4, "endLine": 1, "endColumn": 5}
    assert log["runs"][0]["tool"]["driver"]["rules"] == [{"id": "Code"}]


def test_order_is_that_of_positions() -> None:
    collector = Diagnostics(Source("f", "abc"))
    collector.error("B", "later", Span(2, 3))
    collector.error("A", "file")
    collector.error("C", "first", Span(0, 1))
    assert [d.code for d in collector.sorted()] == ["C", "B", "A"]


def test_the_further_edits_of_a_fix_are_in_its_record() -> None:
    fix = Fix(Span(0, 2), "zz", (Fix(Span(3, 3), "y"),))
    record = json.loads(render.json_line(found("ab\ncd", 0, 4, fix=fix)))
    assert record["fix"]["also"] == [{"replacement": "y", "line": 2, "column": 1, "end_line": 2, "end_column": 1}]
