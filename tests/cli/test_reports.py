"""What is written in the forms that programs read: whatever goes wrong, it is whole and valid."""

from __future__ import annotations

import errno
import io
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from ptir_tools.cli.report import FORMS, Reporter, report_error, wants_color
from ptir_tools.core.diagnostics import Diagnostics, Severity, UsageError
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.source import Source, Span
from tests.conftest import run_ptir

OK = "testdata/verify/ok.ptir"
WRONG = "testdata/verify/unknown_op.ptir"
# A command line, and the codes that it reports.
LINES = {
    f"verify {OK}": [],
    f"verify {WRONG}": ["UnknownOp"],
    f"verify {WRONG} no/a {OK} no/b": ["UnknownOp", "IOError", "IOError"],
    f"verify -j 2 {WRONG} no/a {OK} no/b": ["UnknownOp", "IOError", "IOError"],
    "fmt --check no/a testdata/fmt/wrong.ptir": ["IOError", "SyntaxError"],
    f"verify --max-file-bytes 10 {OK} {WRONG}": ["LimitExceeded", "LimitExceeded"],
    f"verify --max-binary-bytes 10 {OK}": [],
    f"opt -p nonsense {OK}": ["UsageError"],
    "verify --nonsense": ["UsageError"],
    f"run {WRONG} --random 0": ["UnknownOp"],
}


@pytest.mark.parametrize("line", LINES)
def test_sarif_is_one_document(line: str) -> None:
    ran = run_ptir(*line.split(), "--diagnostics", "sarif")
    results = json.loads(ran.text or ran.err)["runs"][0]["results"]
    assert [r["ruleId"] for r in results] == LINES[line]


@pytest.mark.parametrize("line", LINES)
def test_json_is_an_object_a_line(line: str) -> None:
    ran = run_ptir(*line.split(), "--diagnostics", "json")
    assert [json.loads(found)["code"] for found in (ran.text or ran.err).splitlines()] == LINES[line]


BIG = "func @f(%x: tensor<f32, 2>) -> tensor<f32, 2> {{\n  %y = neg(%x) -> {}\n  return %x\n}}\n"
CONSTANT = "func @f() {\n  %c = constant() value[dense<[1.0]>] -> tensor<f32, 9999999999>\n  return\n}\n"
DEEP = 300
# A format, a text that is beyond a limit, the place that is named, and more options.
LIMITS = {
    "elements": ("ptir", BIG.format("tensor<f32, 9223372036854775807x9>"), "2:3", ""),
    "elements-by-flag": ("ptir", BIG.format("tensor<f32, 300>"), "2:3", "--max-elements 10"),
    "rank": ("ptir", BIG.format(f"tensor<f32, {'x'.join(['1'] * 65)}>"), "2:3", ""),
    "operands": ("ptir", BIG.format("tensor<f32, 2>"), "2:3", "--max-operands 0"),
    "ops": ("ptir", BIG.format("tensor<f32, 2>"), "1:1", "--max-ops 0"),
    "name": ("ptir", BIG.format("tensor<f32, 2>").replace("%y", f"%{'y' * 5000}"), "2:3", ""),
    "digits": ("ptir", BIG.format(f"tensor<f32, {'9' * 5000}>"), "2:19", ""),
    "literal": ("ptir", CONSTANT, "2:3", ""),
    "brackets": ("ptir", "func @f(%x: " + "(" * DEEP + ")" * DEEP + ") {\n}\n", "1:268", ""),
    "mind-brackets": ("mind", "%0 = Input {name=x} : tensor<f32[" + "(" * DEEP + "\noutputs: %0\n", "1:288", ""),
    "dump-brackets": ("ptir-dump", "program @f {\n" + "(" * DEEP + "\n}\n", "2:257", ""),
    "pto-blocks": ("pto", "func.func @f() {\n" + "scf.if %a {\n" * DEEP + "}\n" * DEEP + "return\n}\n", "194:1", ""),
    "tiny-name": ("tiny", '{"uops": [\n{"id": "' + "y" * 5000 + '"}\n]}\n', "2:1", ""),
    "json-digits": ("ptir-json", '{"functions":\n' + "9" * 5000 + "}", "2:1", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_names_the_file_and_the_place(name: str, tmp_path: Path) -> None:
    form, text, place, options = LIMITS[name]
    (tmp_path / "program").write_text(text)
    words = ("verify", *options.split(), "--from", form, tmp_path / "program", "--diagnostics")
    assert run_ptir(*words, "short").err.startswith(f"{tmp_path}/program:{place}: error[LimitExceeded]: "), name
    ran = run_ptir(*words, "json")
    found = json.loads(ran.text)
    assert ran.status == 3 and (found["file"], f"{found['line']}:{found['column']}") == (str(tmp_path / "program"), place)
    assert f"--> {tmp_path}/program:{place}\n" in run_ptir(*words, "text").err


def test_a_limit_in_a_part_of_a_file_is_at_its_place_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "p.ptir").write_text(f"{BIG.format('tensor<f32, 2>')}// -----\n{BIG.format('tensor<f32, 300>')}")
    for words in (("verify",), ("opt",), ("verify", "--strict")):
        ran = run_ptir(*words, "--split-input", "--max-elements", "10", "--diagnostics", "short", tmp_path / "p.ptir")
        assert ran.status == 3 and ran.err.startswith(f"{tmp_path}/p.ptir:7:3: error[LimitExceeded]"), ran


@pytest.mark.parametrize("line", ["verify {}", "opt testdata/verify/ok.ptir -o {}/x", "run --inputs {}.npz {ok}"])
def test_a_file_that_cannot_be_read_or_written_is_named(line: str, tmp_path: Path) -> None:
    ran = run_ptir(*line.format(tmp_path / "no", ok=OK).split(), "--diagnostics", "json")
    assert ran.status == 4 and json.loads(ran.text or ran.err)["file"].startswith(f"{tmp_path}/no"), ran
    assert json.loads(ran.text or ran.err)["message"] == "no such file or directory"


MIND_DEEP = "%0 = Input {name=x, a=" + "[" * DEEP + "]" * DEEP + "} : tensor<f32[2]>\noutputs: %0\n"
TYPED = BIG.format("tensor<f32, " + "0" * 4100 + "2>")
# Texts that are beyond a limit, and the option that the help names, which must do what it says.
RAISED = {
    "--max-literal-bytes": ("ptir", CONSTANT, "100G"),
    "--max-integer-digits": ("ptir", TYPED, "4300"),
    "--max-nesting": ("mind", MIND_DEEP, "400"),
    "--max-elements": ("ptir", BIG.format("tensor<f32, 300>"), "300"),
}


@pytest.mark.parametrize("flag", RAISED)
def test_a_limit_is_raised_by_the_option_that_the_help_names(flag: str, tmp_path: Path) -> None:
    form, text, high = RAISED[flag]
    (tmp_path / "program").write_text(text)
    low = ("--max-elements", "10") if flag == "--max-elements" else ()
    ran = run_ptir("verify", "--from", form, *low, tmp_path / "program")
    assert ran.status == 3 and f"= help: raise the limit with {flag}\n" in ran.err
    assert run_ptir("verify", "--from", form, *low, flag, high, tmp_path / "program").status in (0, 1)


def test_what_no_option_raises_proposes_none(tmp_path: Path) -> None:
    (tmp_path / "p.ptir").write_text(LIMITS["elements"][1])
    ran = run_ptir("verify", tmp_path / "p.ptir")
    assert ran.status == 3 and "more than 9223372036854775807 elements" in ran.err and "help" not in ran.err


@pytest.mark.parametrize("size", ["9223372036854775808", "99999999999999999999999999", "8388608T"])
def test_a_size_beyond_the_range_names_the_range(size: str) -> None:
    ran = run_ptir("verify", "--max-elements", size, OK)
    assert ran.status == 2 and f"'{size}' is too big: a size is at most 9223372036854775807" in ran.err
    assert run_ptir("verify", "--max-elements", "9223372036854775807", OK).status == 0


FUNCTION = "func @f(%x: tensor<f32>) -> tensor<f32> {\n  return %x\n}\n"
# Bytes that are no text of lines, and what is said of them.
UNUSABLE = {
    "nul.ptir": (FUNCTION.replace("return", "re\0turn").encode(), "a NUL character is in no program"),
    "nul.pto": (b"func.func @f(%a: pto.memref<10\x0024xf32>) {\n  return\n}\n", "a NUL character is in no program"),
    "nul.mind": (b"%0 = Input {name=x} : tensor<f32[1]>\n# \0\noutputs: %0\n", "a NUL character is in no program"),
    "cr.ptir": (FUNCTION.replace("\n", "\r").encode(), "this line ends with only CR"),
    "comment.ptir": (FUNCTION.replace("{", "{ // c").replace("\n", "\r").encode(), "this line ends with only CR"),
    "little.ptir": (FUNCTION.encode("utf-16-le"), "this is UTF-16"),
    "big.pto": (b"func.func @f() {\n  return\n}\n".decode().encode("utf-16-be"), "this is UTF-16"),
}


@pytest.mark.parametrize("command", ["verify", "fmt", "opt"])
@pytest.mark.parametrize("name", UNUSABLE)
def test_what_is_no_text_of_lines_is_refused_with_its_name(name: str, command: str, tmp_path: Path) -> None:
    data, said = UNUSABLE[name]
    (tmp_path / name).write_bytes(data)
    ran = run_ptir(command, tmp_path / name)
    assert ran.status == 1 and said in ran.err and "\\x01" not in ran.err and ran.err.count("error[") == 1, ran.err


def test_what_is_said_of_erased_values_is_the_same_every_time() -> None:
    """Ten values that a hint names are dead: the first in the text is named."""
    names = [f"%v{i}" for i in range(10)]
    lines = "".join(f"  {v} = neg(%x) -> tensor<f32>\n" for v in names)
    hint = f"  hint 0 ElementwiseDag Required inputs[%x] exports[{', '.join(names)}] {{\n{lines}  }}\n"
    text = f"func @f(%x: tensor<f32>) -> tensor<f32> {{\n{lines}  %y = exp(%x) -> tensor<f32>\n  return %y\n{hint}}}\n"
    assert {run_ptir("opt", "-p", "canonicalize", stdin=text.encode()).err.partition("\n")[0] for _ in range(8)} == {
        "warning[HintDropped]: hint 0 is dropped: %v0 was erased"
    }


def test_junit_has_a_case_for_each_file() -> None:
    for jobs in ("1", "2"):
        ran = run_ptir("verify", "-j", jobs, WRONG, "no/a", OK, "--diagnostics", "junit")
        cases = {case.get("name"): [x.get("type") for x in case] for case in ElementTree.fromstring(ran.text).iter("testcase")}
        assert cases == {WRONG: ["UnknownOp"], "no/a": ["IOError"], OK: []}


@pytest.mark.parametrize("form", ["text", "short", "json", "sarif", "github", "junit"])
def test_diagnostics_in_a_file_are_those_of_the_screen(form: str, tmp_path: Path) -> None:
    for command in ("verify", "verify -j 2", "opt"):
        words = (*command.split(), WRONG, OK, "--diagnostics", form)
        plain, kept = run_ptir(*words), run_ptir(*words, "--diagnostics-to", tmp_path / "found")
        assert kept.err == "" and (tmp_path / "found").read_text() == (plain.err or plain.text)
        assert kept.status == plain.status == 1


def test_programs_and_diagnostics_never_share_a_stream() -> None:
    ran = run_ptir("opt", WRONG, OK, "--diagnostics", "json")
    assert "func" in ran.text and "UnknownOp" in ran.err and "UnknownOp" not in ran.text
    ran = run_ptir("fmt", "--check", "--diff", "testdata/fmt/messy.ptir", "--diagnostics", "json")
    assert ran.text.startswith("---") and '"code": "NotFormatted"' not in ran.text


CODES = {Severity.ERROR: ("Wrong", "False"), Severity.WARNING: ("Odd", "Strange"), Severity.NOTE: ("Fact", "Thing")}
EACH = [(severity, code) for severity in Severity for code in CODES[severity] for _ in range(4)]


def reported(capsys: pytest.CaptureFixture[str], given: Sequence[tuple[Severity, str]], **how: Any) -> tuple[list[str], str, int]:
    """The codes that a reporter shows of diagnostics, what else it says, and the status."""
    reporter, found = Reporter(max_errors=3, **how), Diagnostics(Source("f", "abc\n"))
    for severity, code in given:
        found.report(severity, code, "message", Span(0, 1))
    status = reporter.status(found)
    reporter.finish()
    assert not found.items and not found.errors
    said = capsys.readouterr()
    text = said.out + said.err
    mark = {"json": r'"code": "(\w+)"', "sarif": r'"ruleId": "(\w+)"', "github": r"title=(\w+)"}
    return re.findall(mark.get(reporter.form, r"\[(\w+)\]: "), text), text, status


@pytest.mark.parametrize("quiet", [False, True])
@pytest.mark.parametrize("verbose", ["", "verbose", "notes"])
@pytest.mark.parametrize("form", FORMS)
def test_errors_are_limited_together_and_others_by_code_and_only_for_people(
    form: str, verbose: str, quiet: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Quiet shows errors alone, notes need to be asked for."""
    codes, text, status = reported(capsys, EACH, form=form, quiet=quiet, **({verbose: True} if verbose else {}))
    people = form in ("text", "short")
    shown = [Severity.ERROR] + [Severity.WARNING] * (not quiet) + [Severity.NOTE] * (not quiet and bool(verbose))
    wanted = ["Wrong"] * 3
    for severity in shown[1:]:
        wanted += [code for code in CODES[severity] for _ in range(3 if people else 4)]
    assert codes == wanted and status == 1
    assert ("5 more errors; --max-errors 8 shows them" in text) is (form == "text")
    for severity in shown[1:]:
        assert all((f"... and 1 more {code} {severity}s" in text) is people for code in CODES[severity])
    assert text.count("... and") == (2 * (len(shown) - 1) if people else 0)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("severity", [None, *Severity])
def test_the_status_is_that_of_errors_and_strictly_that_of_anything(
    severity: Severity | None, strict: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [] if severity is None else [(severity, CODES[severity][0])]
    codes, text, status = reported(capsys, given, form="short", strict=strict)
    assert status == int(severity is Severity.ERROR or (strict and severity is not None))
    assert codes == [code for _, code in given if strict or severity is not Severity.NOTE]
    assert ("error" in text) is (status == 1)


def test_three_are_no_more_than_three(capsys: pytest.CaptureFixture[str]) -> None:
    codes, text, _ = reported(capsys, [(Severity.ERROR, "Wrong")] * 3 + [(Severity.WARNING, "Odd")] * 3)
    assert len(codes) == 6 and "more" not in text and text.count("\n\n") == 5


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 9


@pytest.mark.parametrize(
    ("choice", "terminal", "no_color", "term", "color"),
    [
        ("always", False, "1", "dumb", True), ("never", True, "", "xterm", False), ("auto", False, "", "xterm", False),
        ("auto", True, "", "xterm", True), ("auto", True, "1", "xterm", False), ("auto", True, "", "dumb", False),
        ("auto", True, "", "", True),
    ],
)  # fmt: skip
def test_color_is_for_terminals_that_have_it(
    choice: str, terminal: bool, no_color: str, term: str, color: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", term)
    assert wants_color(choice, Terminal() if terminal else io.StringIO()) is color


@pytest.mark.parametrize(
    ("quiet", "error", "output", "prints", "term", "shown"),
    [
        (False, True, True, False, "xterm", True),
        (False, True, False, True, "xterm", True),
        (False, True, True, True, "xterm", False),
        (True, True, False, False, "xterm", False),
        (False, False, False, False, "xterm", False),
        (False, True, False, False, "dumb", False),
    ],
)
def test_progress_is_one_line_of_a_terminal_that_shows_nothing_else(
    quiet: bool, error: bool, output: bool, prints: bool, term: str, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr("ptir_tools.cli.report.time.monotonic", lambda: now)
    monkeypatch.setattr("os.get_terminal_size", lambda fd: os.terminal_size((12, 5)))
    monkeypatch.setattr("sys.stderr", err := Terminal() if error else io.StringIO())
    monkeypatch.setattr("sys.stdout", Terminal() if output else io.StringIO())
    reporter = Reporter(quiet=quiet)
    with reporter.progress(prints=prints) as show:
        show("the first of many lines")
        now += 0.05
        show("too soon")
        now += 0.06
        show("third")
        reporter.say("a message")
        now += 0.05
        show("too soon again")
    clear = "\r\x1b[K"
    assert err.getvalue() == (f"the first o{clear}third{clear}a message\n" if shown else "a message\n")


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (BrokenPipeError(), 141, ""),
        (OSError(errno.EPIPE, "pipe"), 141, ""),
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
        (UsageError("wrong", "better"), 2, "error: wrong\n  = help: better\n"),
        (UsageError("wrong"), 2, "error: wrong\n"),
        (OSError(errno.ENOENT, "No such file", "x/y"), 4, "error[IOError]: no such file\n --> x/y\n"),
        (OSError(errno.ENOSPC, "No space left"), 4, "error[IOError]: standard output: no space left\n"),
        (OSError("odd"), 4, "error[IOError]: standard output: odd\n"),
        (MemoryError(), 3, "error[LimitExceeded]: out of memory\n --> f\n"),
        (LimitExceeded("too many"), 3, "error[LimitExceeded]: too many\n --> f\n"),
        (
            LimitExceeded("too many", "--max-ops"),
            3,
            "error[LimitExceeded]: too many\n --> f\n  = help: raise the limit with --max-ops\n",
        ),
        (LimitExceeded("too many", source=Source("g", "")), 3, "error[LimitExceeded]: too many\n --> g\n"),
    ],
)
def test_an_error_has_its_status_and_its_words(
    error: BaseException, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    reporter = Reporter()
    for name in ("e", "f"):
        reporter.reads(Source(name, "abc\n"))
    assert report_error(error, (), reporter) == status
    assert capsys.readouterr().err == said


def test_a_fault_of_ours_leaves_what_shows_it_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for reproducer in ("", "# its own\n"):
        reporter = Reporter(comment="#", reproducer=reproducer)
        reporter.reads(Source("e", "first\n"))
        reporter.reads(Source("f", "second\n"))
        fault = ValueError("a\n fault")
        fault.add_note("here")
        assert report_error(fault, ("opt", "x"), reporter) == 70
        (file,) = tmp_path.iterdir()
        said = capsys.readouterr().err
        replay = f"; see it again: ptir opt --run-reproducer {file}" if reproducer else ""
        assert said == f"error: internal error: ValueError: a fault, here\n  = help: a reproducer is in {file}{replay}\n"
        *comments, last = file.read_text().splitlines()
        assert last == (reproducer.strip() or "second") and all(c.startswith("# ") for c in comments)
        assert comments[1] == "# ptir opt x" and comments[-2:] == ["#  fault", "# here"]
        file.unlink()


def test_what_verify_prints_goes_to_the_file_of_o(tmp_path: Path) -> None:
    file, other = tmp_path / "found.sarif", tmp_path / "other"
    (tmp_path / "wrong.ptir").write_text("func @f() -> tensor<f32> { return %x }\n")
    ran = run_ptir("verify", "--diagnostics", "sarif", "-o", file, tmp_path / "wrong.ptir")
    assert (ran.status, ran.out, ran.err) == (1, b"", "")
    assert json.loads(file.read_text())["runs"][0]["results"][0]["ruleId"] == "UndefinedValue"
    assert run_ptir("verify", "-o", file, "--diagnostics-to", other, tmp_path / "wrong.ptir").status == 2
