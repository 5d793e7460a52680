"""`ptir fmt` and files: what it writes, what it only looks at, and that both agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import EVERY_FORMAT, run_ptir

OK = "testdata/verify/ok.ptir"
# What a file may have and a program that is laid out has not.
ENDS = {"crlf": lambda data: data.replace(b"\n", b"\r\n"), "bom": lambda data: b"\xef\xbb\xbf" + data}


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("path", [p for p in EVERY_FORMAT if not p.endswith(".json") and ".dump." not in p])
def test_every_way_agrees_on_line_ends_and_byte_order_marks(path: str, ends: str, tmp_path: Path) -> None:
    wanted = run_ptir("fmt", path).out
    file = tmp_path / Path(path).name
    file.write_bytes(given := ENDS[ends](wanted))
    assert run_ptir("fmt", file).out == wanted
    checked = run_ptir("fmt", "--check", file)
    assert (checked.status, checked.text) == (1, f"{file}\n")
    assert run_ptir("fmt", "--diff", file).out.count(b"\n+") > 1 and file.read_bytes() == given
    assert run_ptir("fmt", "--in-place", file).status == 0 and file.read_bytes() == wanted
    assert run_ptir("fmt", "--check", "--diff", file).status == 0


def test_every_way_agrees_on_parts_of_a_file(tmp_path: Path) -> None:
    one = Path(OK).read_bytes()
    (file := tmp_path / "p.ptir").write_bytes((one + b"// -----\n" + one).replace(b"\n", b"\r\n"))
    wanted = run_ptir("fmt", "--split-input", file).out
    assert run_ptir("fmt", "--split-input", "--check", file).status == 1
    run_ptir("fmt", "--split-input", "--in-place", file)
    assert file.read_bytes() == wanted and b"\r" not in wanted


@pytest.mark.parametrize("looks", ["--check", "--diff", "--check --diff", "-o out.ptir"])
def test_what_only_looks_is_not_given_with_in_place(looks: str, tmp_path: Path) -> None:
    (file := tmp_path / "p.ptir").write_text(before := "func @f(%x: tensor<f32>)->tensor<f32> {\nreturn %x }\n")
    ran = run_ptir("fmt", "--in-place", *looks.split(), file)
    assert ran.status == 2 and ran.text == "" and file.read_text() == before


@pytest.mark.parametrize("line", ["fix --in-place --diff", "fix --in-place -o out", "fix --diff -o out"])
def test_a_mended_program_has_one_end(line: str, tmp_path: Path) -> None:
    (file := tmp_path / "p.ptir").write_text(before := "func @f(%x: tensor<f32>) -> tensor<f32> {\n  return %x;\n}\n")
    ran = run_ptir(*line.split(), file)
    assert ran.status == 2 and ran.text == "" and file.read_text() == before


def test_a_diff_divides_lines_at_line_ends_only(tmp_path: Path) -> None:
    (file := tmp_path / "p.ptir").write_text("func @f(%x: tensor<f32>)->tensor<f32> {\n  // a\u2028b\n  return %x\n}\n")
    ran = run_ptir("fmt", "--diff", file)
    assert ran.text.count("\n  // a") == 0 and "   // a\u2028b\n" in ran.text


def test_the_limits_of_the_command_hold_for_json_that_is_refused() -> None:
    """`fmt` of Tiny's JSON read the defaults."""
    ran = run_ptir("fmt", "-", "--from", "tiny", "--max-nesting", "3", stdin=b'{"uops": [], "x": [[[[1]]]],}')
    assert ran.status == 3 and "nested deeper than 3" in ran.err


WITH_ERRORS = {
    "ptir": (
        "func @f(%x:tensor<f32,4>)->tensor<f33,4>{\n%y=expp( %x )foo[1,2]->tensor<f32,?K x4>  // why\n"
        "%z=exp( %q )->tensor<f32,3>\n%w=cond( %x ) true_region[^r3]->tensor<f32,4>\nreturn %y\n}\n",
        "func @f(%x: tensor<f32, 4>) -> tensor<f33,4> {\n  %y = expp(%x) foo[1, 2] -> tensor<f32, ?Kx4> // why\n"
        "  %z = exp(%q) -> tensor<f32, 3>\n  %w = cond(%x) true_region[^r3] -> tensor<f32, 4>\n  return %y\n}\n",
    ),
    "mind": (
        "%0 = Input {name=x}:tensor<f32[2]>\n%1=Relu( %9 )\n%3=Foo( %1,%0)  {a=3}:tensor<f32[2]>\n%2=Neg( %0 )\noutputs: %1,%7\n",
        "%0 = Input {name=x} : tensor<f32[2]>\n%1 = Relu (%9)\n%3 = Foo (%1, %0) {a=3}:tensor<f32[2]>\n%2 = Neg (%0)\n"
        "outputs: %1, %7\n",
    ),
    "pto": (
        "func.func @k(%a: pto.memref<4x4xf32>) {\n%t=pto.tile.exp   %q:tile<4x4xf32>\n    return\n}\n",
        "func.func @k(%a: pto.memref<4x4xf32>) {\n  %t=pto.tile.exp %q:tile<4x4xf32>\n  return\n}\n",
    ),
    "tiny": (
        '{"uops":[{"id":"a","uop":"NOPE","src":["zz"]}]}',
        '{\n  "uops":[\n    {"id":"a", "uop":"NOPE", "src":["zz"]}\n  ]\n}\n',
    ),
}


@pytest.mark.parametrize("form", WITH_ERRORS)
def test_what_parses_is_formatted_whatever_its_names_and_types_are(form: str) -> None:
    before, after = WITH_ERRORS[form]
    assert run_ptir("verify", "--from", form, stdin=before.encode()).status == 1
    ran = run_ptir("fmt", "--from", form, stdin=before.encode())
    assert (ran.status, ran.err, ran.out.decode()) == (0, "", after)
    assert run_ptir("fmt", "--from", form, stdin=after.encode()).out.decode() == after


def test_what_does_not_parse_keeps_its_text() -> None:
    text = b"func @f(%x: tensor<f32, 4>) -> tensor<f32, 4> {\n%y = exp(%q) -> tensor<f32, 4\nreturn %y\n}\n"
    ran = run_ptir("fmt", stdin=text)
    assert ran.status == 1 and not ran.out and "SyntaxError" in ran.err
