"""How diagnostics look: carets under wide characters and tabs, labels, cut lines, the machine-readable forms."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

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


@pytest.mark.parametrize("severity", Severity)
def test_each_part_has_its_color(severity: Severity) -> None:
    """The place has that of the severity, a further place that of the frame."""
    found = Diagnostic(severity, "C", "m", Source("f", "abc de"), Span(0, 3), (Label(Span(4, 6), "here"),))
    lines = render.text(found, color=True).splitlines()
    codes = [re.findall(r"\x1b\[([0-9;]+)m", line) for line in lines]
    (title, *_), (frame, *_) = codes[0], codes[2]
    places = {mark: next(c for line, c in zip(lines, codes, strict=True) if mark in line) for mark in ("^^^", "-- here")}
    assert title != frame and places["^^^"][-2] == title and places["-- here"][-2] == frame
    assert re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(lines)) == render.text(found)


def test_sarif_has_further_places_and_edits() -> None:
    source = Source("f", "abc\nde\n")
    fix = Fix(Span(0, 2), "x", (Fix(Span(4, 4), "y"),), safe=True)
    full = Diagnostic(Severity.WARNING, "C", "m", source, Span(0, 3), (Label(Span(4, 6), "there"),), ("n",), "h", fix)
    bare = Diagnostic(Severity.ERROR, "C", "m", source, Span(4, 6), fix=Fix(Span(4, 6), ""))
    first, second, third = json.loads(render.sarif([full, bare, Diagnostic(Severity.NOTE, "D", "no place")], "1"))["runs"][0][
        "results"
    ]
    assert (first["level"], first["message"]["text"]) == ("warning", "m\nn\nhelp: h")
    (related,) = first["relatedLocations"]
    assert related["message"]["text"] == "there" and related["physicalLocation"]["region"]["startLine"] == 2
    (mended,) = first["fixes"]
    (change,) = mended["artifactChanges"]
    assert mended["description"]["text"] == "h" and mended["properties"] == {"safe": True}
    assert [r["insertedContent"]["text"] for r in change["replacements"]] == ["x", "y"]
    assert [r["deletedRegion"]["startLine"] for r in change["replacements"]] == [1, 2]
    assert change["artifactLocation"]["uri"] == "f"
    assert "relatedLocations" not in second and second["fixes"][0]["description"]["text"] == "m"
    assert second["fixes"][0]["properties"] == {"safe": False} and not {"locations", "fixes"} & set(third)


def test_junit_has_errors_apart_from_the_rest() -> None:
    source = Source("f<&", "abc\n")
    found = [Diagnostic(s, f"C{i}", "<m>", source, Span(0, 1)) for i, s in enumerate(Severity)]
    (suite,) = ElementTree.fromstring(render.junit(found, {"f<&": True, "g": False})).iter("testsuite")
    cases = {case.get("name"): {part.tag: part.text or "" for part in case} for case in suite}
    assert set(cases) == {"f<&", "g"} and cases["g"] == {}
    assert "error[C0]: <m>" in cases["f<&"]["failure"] and "C1" not in cases["f<&"]["failure"]
    assert "C1" in cases["f<&"]["system-out"] and "C2" in cases["f<&"]["system-out"] and "C0" not in cases["f<&"]["system-out"]
