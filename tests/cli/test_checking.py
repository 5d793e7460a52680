"""`--check` that fails: what it says, what it prints, and that the commands it names run as they are printed."""

from __future__ import annotations

import importlib
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptir_tools import convert
from ptir_tools.core.declare import OPS
from ptir_tools.core.dialect import Program
from ptir_tools.dialects import writing
from ptir_tools.engines import compare
from tests.conftest import Ran, run_ptir

REPEAT = "see it again: ptir "
SUM = """func @f(%x: tensor<f32, 2x3>) -> tensor<f32, 2x3> {
  %n = exp(%x) -> tensor<f32, 2x3>
  %y = add(%x, %n) -> tensor<f32, 2x3>
  return %y
}
"""
SCALED = """func @f(%x: tensor<f32, 2x2>, %z: tensor<f32, ?N>) -> (tensor<f32, 2x2>, tensor<f32, ?N>) {
  %c = constant() value[dense<[[1.0, 2.5], [0.1, 7.0]]>] -> tensor<f32, 2x2>
  %y = mul(%x, %c) -> tensor<f32, 2x2>
  %n = add(%z, %z) -> tensor<f32, ?N>
  return %y, %n
}
"""


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a failed check keeps goes to the test's own folder."""
    folder = tmp_path / "kept"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))


def repeated(failed: Ran) -> tuple[Ran, Ran]:
    """What the commands that a failed check names do: the program before, and after."""
    assert failed.status == 1 and not failed.out and "error[CheckFailed]: --check run 1: " in failed.err, failed.err
    lines = [line.partition(REPEAT)[2] for line in failed.err.splitlines() if REPEAT in line]
    first, second = (run_ptir(*shlex.split(line)) for line in lines)
    return first, second


def test_a_divergence_across_irs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: what becomes an Add is a Sub."""
    translate = convert.translate

    def wrong(*arguments: Any, **named: Any) -> Program | None:
        made = translate(*arguments, **named)
        for op in made.main.body if made else ():
            op.defn = OPS["mind.Sub"] if op.name == "mind.Add" else op.defn
        return made

    monkeypatch.setattr(convert, "translate", wrong)
    before, after = repeated(run_ptir("translate", "--to", "mind", "--check", stdin=SUM.encode()))
    assert before.status == 0, before.err
    assert after.status == 1 and "error[OutputMismatch]" in after.err, after.err


@pytest.mark.parametrize(
    ("command", "written", "wrong"),
    [
        (("translate", "--to", "ptir"), "add(", "sub("),
        (("translate", "--to", "ptir-json"), '"Add"', '"Sub"'),
        (("translate", "--to", "ptir-dump"), "ElementwiseBinary(Add)", "ElementwiseBinary(Sub)"),
        (("translate", "--to", "mind"), "Add ", "Sub "),
        (("translate", "--to", "tiny"), '"ADD"', '"MUL"'),
        (("translate", "--to", "pto"), "tile.exp ", "tile.neg "),
        (("opt", "-p", "dce"), "add(", "sub("),
    ],
    ids=" ".join,
)
def test_what_is_checked_is_the_text(
    command: tuple[str, ...], written: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the program is right, and a writer spells an op of it wrong."""
    write, changed = writing.program_pieces, 0

    def planted(*arguments: Any) -> list[str] | list[bytes]:
        nonlocal changed
        text = "".join(str(piece) for piece in write(*arguments))
        changed += text.count(written)
        return [text.replace(written, wrong)]

    assert run_ptir(*command, "--check", stdin=SUM.encode()).status == 0
    for name in ("translate", "opt"):
        monkeypatch.setattr(importlib.import_module(f"ptir_tools.cli.{name}"), "program_pieces", planted)
    failed = run_ptir(*command, "--check", stdin=SUM.encode())
    assert changed
    assert failed.status == 1 and not failed.out and "error[CheckFailed]: --check run 1: " in failed.err, failed.err


def test_a_text_that_is_not_read_back_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        importlib.import_module("ptir_tools.cli.translate"), "program_pieces", lambda *a: ["%v = Add (%gone, %gone)\n"]
    )
    failed = run_ptir("translate", "--to", "mind", "--check", stdin=SUM.encode())
    assert failed.status == 1 and not failed.out and " --> <mind>:1:" in failed.err, failed.err


@pytest.mark.parametrize("to", ["ptir", "ptir-dump", "ptir-json", "mlir", "mind", "pto"])
@pytest.mark.parametrize("more", [(), ("--elide-constants-larger", "1")], ids=" ".join)
def test_constants_that_the_text_leaves_out_are_there_for_the_check(to: str, more: tuple[str, ...]) -> None:
    text = SCALED.replace("?N", "2").encode()
    ran = run_ptir("translate", "--to", to, "--check", *more, stdin=text)
    assert ran.status == 0, ran.err


def test_what_one_side_alone_takes_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def differs(name: str, expected: Any, actual: Any, tolerance: compare.Tolerance) -> compare.Divergence:
        return compare.Divergence(name, (), None, None, 1, None, None, "differs")

    options = ("--constants", tmp_path / "pool.npz", "--check")
    made = run_ptir("translate", "--to", "tiny", *options, "-o", tmp_path / "graph.json", stdin=SCALED.encode())
    assert made.status == 0, made.err
    for given, to in ((SCALED.encode(), "tiny"), ((tmp_path / "graph.json").read_bytes(), "ptir")):
        with monkeypatch.context() as patched:
            patched.setattr(compare, "diverging", differs)
            failed = run_ptir("translate", "--to", to, *options, stdin=given)
        for ran in repeated(failed):  # the programs agree in truth
            assert ran.status == 0, ran.err


def test_constants_left_out_of_the_print_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(compare, "diverging", lambda *_: compare.Divergence("y", (), None, None, 1, None, None, "differs"))
        failed = run_ptir("opt", "-p", "cse", "--check", "--elide-constants-larger", "1", stdin=SCALED.encode())
    assert [ran.status for ran in repeated(failed)] == [0, 0]


@pytest.mark.parametrize("symbols", [("?N",), ("?N", "?M"), ("?N", "?M", "?K")], ids="x".join)
def test_sizes_that_no_input_has_are_kept(symbols: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    result = f"tensor<f32, {'x'.join(symbols)}>"
    text = f"func @f() -> {result} {{\n  %n = iota() axis[0] -> {result}\n  %y = add(%n, %n) -> {result}\n  return %y\n}}\n"
    with monkeypatch.context() as patched:
        patched.setattr(compare, "diverging", lambda *_: compare.Divergence("y", (), None, None, 1, None, None, "differs"))
        failed = run_ptir("opt", "-p", "cse", "--check", stdin=text.encode())
    assert [ran.status for ran in repeated(failed)] == [0, 0], failed.err


def fast(result: str, dtype: str) -> Ran:
    text = f"""func @f(%x: tensor<f32, 4>) -> tensor<{dtype}, 4> {{
  %z = sub(%x, %x) -> tensor<f32, 4>
  %q = div(%z, %z) -> tensor<f32, 4>
  %y = {result} -> tensor<{dtype}, 4>
  return %y
}}
"""
    return run_ptir("opt", "--fast-math", "--check", stdin=text.encode())


def test_what_is_not_finite_is_not_compared_under_fast_math() -> None:
    passed = fast("neg(%q)", "f32")
    assert passed.status == 0 and b"dense<-1.0>" in passed.out
    assert "--check did not compare 12 elements of y that are NaN or infinite" in passed.err
    failed = fast("compare_eq(%q, %q)", "i1")
    assert failed.status == 1 and "note: --fast-math assumes finite numbers" in failed.err
    tolerance = compare.Tolerance(0.25, finite=True)
    assert compare.diverging("y", np.array([np.inf, np.nan, 1.0]), np.array([1.0, -1.0, 1.25]), tolerance) is None
    found = compare.diverging("y", np.array([np.nan, 1.0]), np.array([1.0, np.nan]), tolerance)
    assert found is not None and (found.index, found.count) == ((1,), 1)


def test_parameters_that_are_gone_or_known_are_told_apart_by_name(tmp_path: Path) -> None:
    text = b"""func @f(%w: tensor<f32, 2>, %dead: tensor<f32, 2>, %y: tensor<f32, 2>) -> tensor<f32, 2> {
  %e = exp(%w) -> tensor<f32, 2>
  %z = sub(%e, %y) -> tensor<f32, 2>
  return %z
}
"""
    weights, folded = tmp_path / "weights.npz", tmp_path / "folded.npz"
    np.savez(weights, w=np.array([1, 2], np.float32))
    fold = f'param-fold{{params="{weights}"}}'
    for pipeline in ("dce{parameters=true}", fold, f'{fold[:-1]},output="{folded}"}},dce{{parameters=true}}'):
        ran = run_ptir("opt", "-p", pipeline, "--check", stdin=text)
        assert ran.status == 0, ran.err
    ran = run_ptir("bisect", "-p", fold, stdin=text)
    assert "no step is guilty" in ran.err


BROKEN = {
    "ptir": SUM.replace("2x3> {\n  %n", "2x4> {\n  %n"),
    "mind": "%x = Input {name=x} : tensor<f32[2, 3]>\n%y = MatMul (%x, %x) : tensor<f32[2, 3]>\noutputs: %y\n",
}


@pytest.mark.parametrize(
    ("ir", "to", "status"),
    [
        ("ptir", "ptir", 0),
        ("ptir", "ptir-json", 0),
        ("mind", "mind", 0),
        ("ptir", "mind", 1),
        ("mind", "ptir", 1),
        ("mind", "mlir", 1),
    ],
)
def test_a_program_is_verified_between_irs_and_where_it_is_checked(ir: str, to: str, status: int) -> None:
    """Within one IR it needs no more than a clean read; what is lowered, checked or optimized is verified."""
    text = BROKEN[ir].encode()
    assert run_ptir("translate", "--to", to, stdin=text).status == status
    for command in (("translate", "--check", "--to", to), ("opt",), ("verify",)):
        ran = run_ptir(*command, stdin=text)
        assert ran.status == 1 and not ran.out, ran.err
