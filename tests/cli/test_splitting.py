"""`--split-input` of verify, fmt, opt, canonicalize and translate; what standard input gives."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptir_tools.core.source import Source
from tests.conftest import EVERY_FORMAT, Ran

Ptir = Callable[..., Ran]
GOOD = "func @f(%x: tensor<f32, 2>) -> tensor<f32, 2> {\n  %y = exp(%x) -> tensor<f32, 2>\n  return %y\n}\n"
BAD = GOOD.replace("exp(%x)", "exp(%gone)")
HUGE = GOOD.replace(" 2>", f" {'x'.join('1' * 65)}>")  # a rank over the limit
LINE = "// -----\n"
NEXT = "\n// -----\n\n"
ALL = [("verify",), ("fmt",), ("opt",), ("canonicalize",), ("translate", "--to", "ptir")]
WRITERS = ALL[1:]
VERIFIERS = [ALL[0], *ALL[2:4], ("translate", "--to", "tiny")]


@pytest.mark.parametrize("args", ALL)
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_programs_are_treated_one_by_one(ptir: Ptir, args: tuple[str, ...], ends: str) -> None:
    text = f"// first\n{LINE}{GOOD}{LINE}{LINE}{GOOD}{LINE}".replace("\n", ends)
    assert ptir(*args, stdin=text.encode()).status == (args != ("fmt",))  # `fmt` does not ask whether a name is there twice
    ran = ptir(*args, "--split-input", stdin=b"\xef\xbb\xbf" + text.encode())
    assert ran.status == 0 and ran.err == ""
    assert ran.text.count(GOOD) == 2 * (args in WRITERS)


@pytest.mark.parametrize("args", WRITERS)
def test_what_is_printed_splits_into_the_same(ptir: Ptir, args: tuple[str, ...]) -> None:
    text = f"{GOOD}{LINE}{GOOD.replace('exp', 'tanh')}  #-----\n{GOOD}"
    once = ptir(*args, "--split-input", stdin=text.encode())
    assert once.text == NEXT.join([GOOD, GOOD.replace("exp", "tanh"), GOOD])
    assert ptir(*args, "--split-input", stdin=once.out).out == once.out


@pytest.mark.parametrize("args", VERIFIERS)
def test_places_are_those_of_the_file_in_every_form(ptir: Ptir, args: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "in.ptir"
    path.write_text(f"// 𝔘\n{GOOD}{LINE}{BAD}\n\n{LINE}{GOOD}{LINE}{BAD}", "utf-8")
    for form, pattern in (
        ("short", r"in\.ptir:(\d+):(\d+): error\[UndefinedValue\]"),
        ("text", r"--> .*in\.ptir:(\d+):(\d+)\n"),
        ("json", r'"line": (\d+), "column": (\d+)'),
        ("sarif", r'"startLine": (\d+),\s*"startColumn": (\d+)'),
    ):
        ran = ptir(*args, "--split-input", "--diagnostics", form, path)
        assert ran.status == 1
        assert re.findall(pattern, ran.text + ran.err) == [("8", "12"), ("20", "12")]
        if form == "text":
            assert "\n8 |   %y = exp(%gone)" in ran.err and "\n20 |   %y = exp(%gone)" in ran.err


def test_a_refused_program_leaves_its_place_empty_and_a_file_as_it_was(ptir: Ptir, tmp_path: Path) -> None:
    text = f"{GOOD}{LINE}{BAD}{LINE}{GOOD}".encode()
    ran = ptir("opt", "--split-input", stdin=text)
    assert ran.status == 1 and ran.text == GOOD + NEXT + NEXT + GOOD
    assert ptir("opt", "--split-input", stdin=ran.out).text == GOOD + NEXT + GOOD
    (tmp_path / "out").write_text("old")
    assert ptir("opt", "--split-input", "-o", tmp_path / "out", stdin=text).status == 1
    assert (tmp_path / "out").read_text() == "old"


def test_the_exit_code_is_the_highest(ptir: Ptir) -> None:
    for args in VERIFIERS:
        ran = ptir(*args, "--split-input", stdin=f"{HUGE}{LINE}{BAD}{LINE}{GOOD}".encode())
        assert ran.status == 3 and "rank" in ran.err and "UndefinedValue" in ran.err


def test_a_wrong_pipeline_is_told_once(ptir: Ptir) -> None:
    ran = ptir("opt", "--split-input", "-p", "cze", stdin=f"{GOOD}{LINE}{GOOD}".encode())
    assert ran.status == 2 and ran.err.count("unknown pass") == 1 and ran.out == b""


@pytest.mark.parametrize("text", ["", "// nothing\n", LINE, f"// a\n{LINE}// b\n"])
def test_no_program_at_all_is_an_error(ptir: Ptir, text: str) -> None:
    for args in VERIFIERS:
        ran = ptir(*args, "--split-input", stdin=text.encode())
        assert ran.status == 1 and ran.err.count("error[UnknownFormat]") == 1


def test_what_comments_alone_expect_is_looked_for(ptir: Ptir) -> None:
    text = f"{GOOD}{LINE}// expected-error@1 {{{{Undefined}}}}\n// expected-error@+0 {{{{Undefined}}}}\n"
    ran = ptir("verify", "--split-input", "--verify-diagnostics", stdin=text.encode())
    assert ran.status == 1 and "MissingDiagnostic" in ran.err
    empty = f"{GOOD}{LINE}// expected-error@+1 {{{{UnknownFormat: .* empty}}}}\n"
    assert ptir("verify", "--split-input", "--verify-diagnostics", stdin=empty.encode()).status == 0


def test_passes_of_all_programs_are_watched_together(ptir: Ptir, tmp_path: Path) -> None:
    text = f"{GOOD}{LINE}{GOOD}".encode()
    tree, trace = tmp_path / "tree", tmp_path / "trace.json"
    assert ptir("opt", "--split-input", "-p", "cse,dce", "--print-ir-tree", tree, "--trace", trace, stdin=text).status == 0
    assert sorted(p.name for p in tree.iterdir()) == [f"000{i}_{p}.ptir" for i, p in enumerate(["cse", "dce"] * 2, 1)]
    events = json.loads(trace.read_text())["traceEvents"]
    assert [e["name"] for e in events if e["cat"] == "pass"] == ["cse", "dce"] * 2
    assert all(a["ts"] + a["dur"] <= b["ts"] + 1 for a, b in pairwise(events))


def test_files_of_one_program_are_refused(ptir: Ptir) -> None:
    for args in (("opt", "--weights-to", "w.npz"), ("translate", "--to", "tiny", "--constants", "c.npz")):
        ran = ptir(*args, "--split-input", stdin=GOOD.encode())
        assert ran.status == 2 and f"{args[-2]} is for one program" in ran.err


def test_many_programs_take_linear_time(ptir: Ptir) -> None:
    assert ptir("verify", "--split-input", stdin=(GOOD + LINE).encode() * 2000).status == 0


@settings(max_examples=50, deadline=None)
@given(st.text("ab\n", max_size=40), st.data())
def test_a_part_has_the_places_of_the_whole(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    whole, part = Source("f", text), Source("f", text).part(start, end)
    assert part.text == text[start:end]
    for offset in range(end - start + 1):
        assert part.position(offset) == whole.position(start + offset)
        assert part.line_text(part.position(offset)[0]) == whole.line_text(whole.position(start + offset)[0])


def test_files_after_one_that_is_refused_are_looked_at(ptir: Ptir, tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("func @f( {\n")
    (tmp_path / "binary").write_bytes(b"\x80\xff")
    (tmp_path / "wide").write_text(GOOD.replace("  ", "      "))
    ran = ptir("fmt", "--check", tmp_path / "bad", tmp_path / "binary", tmp_path / "none", tmp_path / "wide")
    assert ran.status == 4 and ran.text == f"{tmp_path}/wide\n"
    assert "SyntaxError" in ran.err and "InvalidEncoding" in ran.err and "/none\n" in ran.err


def test_standard_input_is_read_once(ptir: Ptir, tmp_path: Path) -> None:
    path = tmp_path / "p.ptir"
    path.write_text(GOOD)
    for args in (("verify", "-", "-"), ("diff", "-", "-"), ("opt", "-p", "@-")):
        ran = ptir(*args, stdin=GOOD.encode())
        assert ran.status == 2 and "standard input can be read once only" in ran.err
    assert ptir("opt", "-p", "@-", path, stdin=b"cse\n# and\ndce\n").text == GOOD
    ran = ptir("opt", "-p", "@-", path, stdin=b"cse\nxyz")
    assert ran.status == 2 and ran.err.startswith("error: <stdin>: unknown pass `xyz`")
    assert "not UTF-8" in ptir("opt", "-p", "@-", path, stdin=b"\xff").err


@pytest.mark.parametrize("path", EVERY_FORMAT)
def test_every_format_splits(ptir: Ptir, path: str) -> None:
    text = Path(path).read_text("utf-8")
    mark = "#" if ".mind." in path else "//"
    twice = f"{text}\n{mark} -----\n{text}"
    form = {"json": "tiny" if "tiny" in path else "ptir-json", "ir": "mind", "pto": "pto"}.get(path.rpartition(".")[2], "ptir")
    for args in (("opt",), ("canonicalize",), ("translate", "--to", form)):
        one, both = ptir(*args, stdin=text.encode()), ptir(*args, "--split-input", stdin=twice.encode())
        assert one.status == both.status == 0 and both.text == f"{one.text}\n{mark} -----\n\n{one.text}"
        again = ptir(*args, "--split-input", stdin=both.out)
        assert (again.status, again.text) == (0, ptir(*args, "--split-input", stdin=again.out).text)
