"""What is written in the forms that programs read: whatever goes wrong, it is whole and valid."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.conftest import run_ptir

OK = "testdata/verify/ok.ptir"
WRONG = "testdata/verify/unknown_op.ptir"
# A command line, and the codes that it reports.
LINES = {
    f"verify {OK}": [],
    f"verify {WRONG}": ["UnknownOp"],
    f"verify {WRONG} no/a {OK} no/b": ["UnknownOp", "IOError", "IOError"],
    f"verify -j 2 {WRONG} no/a {OK} no/b": ["UnknownOp", "IOError", "IOError"],
    f"fmt --check no/a {WRONG}": ["IOError", "UnknownOp"],
    f"verify --max-file-bytes 10 {OK} {WRONG}": ["LimitExceeded", "LimitExceeded"],
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
