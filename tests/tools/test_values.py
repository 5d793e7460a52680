"""`diff --run` value by value: which values correspond, and that a planted error is found where it is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.engines import RunOptions, compare
from ptir_tools.tools.diff import constant_differences, plain_text
from ptir_tools.tools.values import Report, of_files, pairs, values
from tests.conftest import run_ptir

MODEL = """func @main(%x: tensor<f32, 4x8>, %a: tensor<f32, 8x16>) -> tensor<f32, 4x8> {
  %w = constant() value[dense<0.1>] -> tensor<f32, 16x8>
  %h = dot_general(%x, %a) contract_lhs[1] contract_rhs[0] -> tensor<f32, 4x16>
  %g = tanh(%h) -> tensor<f32, 4x16>
  %o = dot_general(%g, %w) contract_lhs[1] contract_rhs[0] -> tensor<f32, 4x8>
  %s = add(%o, %x) -> tensor<f32, 4x8>
  %y = tanh(%s) -> tensor<f32, 4x8>
  return %y
}
"""
"""Two products and two functions; `dense<0.1>` is a constant that f16 rounds."""

NAMES = ("h", "g", "o", "s", "y")


def renamed(text: str) -> str:
    """The text with other names of all values but the inputs."""
    return re.sub(r"%([whgosy])\b", r"%new_\1", text)


def compared(first: str, second: str) -> Report:
    a, b = ptir.read(first), ptir.read(second)
    rng = np.random.default_rng(3)
    inputs = {p.name: rng.uniform(-1, 1, p.type.extents).astype(np.float32) for p in a.main.params}
    return values(a, b, inputs, inputs, RunOptions())


def test_every_value_has_its_counterpart_by_name_and_by_structure() -> None:
    for other, by in ((MODEL, "name"), (renamed(MODEL), "structure")):
        found = pairs(ptir.read(MODEL).main, ptir.read(other).main)
        assert [(p.first.name, p.second.name.removeprefix("new_"), p.by) for p in found] == [(n, n, by) for n in NAMES]


@pytest.mark.parametrize(("old", "new", "place"), [
    ("%g = tanh(%h)", "%g = neg(%h)", "g"),
    ("%s = add(%o, %x)", "%s = sub(%o, %x)", "s"),
    ("dense<0.1>", "dense<0.101>", "o"),
])  # fmt: skip
def test_the_first_value_that_differs_is_where_the_error_was_planted(old: str, new: str, place: str) -> None:
    assert old in MODEL
    wrong = MODEL.replace(old, new)
    for other in (wrong, renamed(wrong)):
        report = compared(MODEL, other)
        first = report.first
        assert first is not None and first.label.name == place
        before = NAMES[: NAMES.index(place)]
        assert all(row.error == 0 for row in report.rows if row.label.name in before)
        assert report.verdict.failed and {row.label.name for row in report.rows} >= {place, "y"}


def test_the_error_and_its_growth_are_those_of_float64() -> None:
    """By hand: y = exp(2 x) of x and of x (1 + 2^-10)."""
    text = "func @f(%x: tensor<f32, 3>) -> tensor<f32, 3> {\n  %d = mul(%x, dense<K> : tensor<f32, 3>) -> tensor<f32, 3>\n"
    text += "  %y = exp(%d) -> tensor<f32, 3>\n  %z = mul(%x, %y) -> tensor<f32, 3>\n  return %z\n}\n"
    a, b = (ptir.read(text.replace("K", k)) for k in ("2.0", "2.001953125"))
    x = {"x": np.array([1.0, -3.0, 2.0], np.float32)}
    doubled, result, last = values(a, b, x, x, RunOptions()).rows
    assert doubled.error == 3 * 2**-9 and doubled.relative == 2**-10
    d = x["x"].astype(np.float64)
    expected = np.abs(np.exp(2.001953125 * d) - np.exp(2 * d))
    assert result.error == pytest.approx(expected.max(), rel=1e-4)
    assert result.relative == pytest.approx(expected.max() / np.exp(4.0), rel=1e-4)
    assert result.growth == pytest.approx(result.relative / doubled.relative, rel=1e-12)
    assert last.growth == pytest.approx(last.relative / result.relative, rel=1e-12)  # of two operands the one with an error


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_another_precision_passes_and_a_wrong_factor_does_not(tmp_path: Path, dtype: str) -> None:
    given, narrow, wrong = tmp_path / "a.ptir", tmp_path / "b.ptir", tmp_path / "c.ptir"
    given.write_text(MODEL, "utf-8")
    assert run_ptir("opt", given, "-p", f"convert-float{{to={dtype}}}", "-o", narrow).status == 0
    text = narrow.read_text("utf-8")
    assert f"tensor<{dtype}, 4x16>" in text
    for pair in ((given, narrow), (narrow, given)):
        ran = run_ptir("diff", "--run", *pair)
        assert ran.status == 0 and "PASS: largest error" in ran.err and not ran.text
    wrong.write_text(re.sub(r"dense<0\.[0-9]+>", "dense<0.125>", text), "utf-8")
    ran = run_ptir("diff", "--run", given, wrong)
    assert ran.status == 1 and "first to differ, by `dot_general` at 5:3: o[" in ran.text
    assert ran.err.splitlines()[-1].startswith("FAIL: largest error")


def test_values_of_another_ir_correspond_by_structure(tmp_path: Path) -> None:
    given, mind = tmp_path / "a.ptir", tmp_path / "a.mind.ir"
    given.write_text(MODEL.replace("tanh", "exp"), "utf-8")
    assert run_ptir("translate", given, "--to", "mind", "-o", mind).status == 0
    ran = run_ptir("diff", "--run", "--json", given, mind)
    record = json.loads(ran.text)
    assert ran.status == 0 and record["agree"] and record["first"] is None
    assert {"h", "g", "s", "y"} <= {row["name"] for row in record["values"] if row["by"] == "structure"}


def test_saved_values_are_compared_later(tmp_path: Path) -> None:
    given, other, saved, again = (tmp_path / name for name in ("a.ptir", "b.ptir", "a.npz", "b.npz"))
    given.write_text(MODEL, "utf-8")
    other.write_text(MODEL.replace("%g = tanh", "%g = neg"), "utf-8")
    assert run_ptir("run", given, "--random", "7", "--save-values", saved).status == 0
    with np.load(saved) as file:
        assert {*file} == {"x", "a", "w", *NAMES}
    same = run_ptir("diff", given, saved)
    assert same.status == 0 and same.err.startswith("PASS") and not same.text
    wrong = run_ptir("diff", other, saved)
    assert wrong.status == 1 and "first to differ, by `neg` at 4:3: g[" in wrong.text and wrong.err.startswith("FAIL")
    assert run_ptir("run", other, "--random", "7", "--save-values", again).status == 0
    both = run_ptir("diff", saved, again)
    assert both.status == 1 and re.search(r"^g .* differs$", both.text, re.M) and "first to differ: g[" in both.text
    assert run_ptir("diff", saved, saved).status == 0
    other.write_text(
        MODEL.replace("  return", "  %m = neg(%y) -> tensor<f32, 4x8>\n  %n = exp(%y) -> tensor<f32, 4x8>\n  return"), "utf-8"
    )
    for pair, left in (((other, saved), [2, 1]), ((saved, other), [1, 2])):  # the file has a constant, too
        assert json.loads(run_ptir("diff", *pair, "--json").text)["unmatched"] == left
    assert run_ptir("diff", saved, again, "--atol", "100").status == 0
    np.savez(tmp_path / "none.npz", z=np.zeros(3))
    assert run_ptir("diff", saved, tmp_path / "none.npz").status == 1
    assert "has no input `x`" in run_ptir("diff", given, tmp_path / "none.npz").err


def test_names_that_a_reader_gave_are_not_those_of_another_program(tmp_path: Path) -> None:
    """A program whose `v1` has another shape or is another op has no value in common with the file but the result."""
    text = "func @f(%x: tensor<f32, 4>) -> tensor<f32, 4> {{\n{}  return %y\n}}\n"
    line = "  %{} = {}(%{}) -> tensor<f32, 4>\n"
    first, second, saved = tmp_path / "a.ptir", tmp_path / "b.ptir", tmp_path / "a.npz"
    first.write_text(text.format(line.format("v1", "exp", "x") + line.format("y", "neg", "v1")), "utf-8")
    sums = "  %v1 = reduce_sum(%x) axes[0] keepdims[true] -> tensor<f32, 1>\n  %v2 = neg(%x) -> tensor<f32, 4>\n"
    assert run_ptir("run", first, "--random", "1", "--save-values", saved).status == 0
    for other in (sums, line.format("v1", "neg", "x")):
        second.write_text(text.format(line.format("v0", "exp", "x") + other + line.format("y", "neg", "v0")), "utf-8")
        report = json.loads(run_ptir("diff", saved, second, "--json").text)
        assert [row["name"] for row in report["values"]] == ["y"] and report["agree"]


def test_arrays_of_files_correspond_by_name(tmp_path: Path) -> None:
    """Those without a counterpart are counted, on each side."""
    x, y = np.arange(6, dtype=np.float32), np.arange(6, dtype=np.float32) + np.float32(0.5)
    np.savez(tmp_path / "a.npz", b=x, only=x, a=x, lone=x, other=x)
    np.savez(tmp_path / "b.npz", a=y, more=x, b=x)
    first, second = str(tmp_path / "a.npz"), str(tmp_path / "b.npz")
    for one, other, left, names in ((first, second, (3, 1), ["b", "a"]), (second, first, (1, 3), ["a", "b"])):
        report = of_files(one, other, compare.Tolerance(1e-6, 1e-5))
        assert report.left == left and [row.label.name for row in report.rows] == names
        assert {row.label.name: (row.error, row.differs is None) for row in report.rows} == {"a": (0.5, False), "b": (0.0, True)}
        assert report.first is not None and report.first.label.name == "a"


def test_a_diff_has_no_weights_and_says_how_constants_differ() -> None:
    rng = np.random.default_rng(0)
    data = rng.uniform(-1, 1, (64, 64)).astype(np.float32)
    moved = data.copy()
    moved[3, 5] += 0.5

    def text(x: np.ndarray) -> str:
        body = f'%w = constant() value[dense<"0x{x.tobytes().hex()}">] -> tensor<f32, 64x64>'
        return f"func @f() -> tensor<f32, 64x64> {{\n  {body}\n  return %w\n}}\n"

    a, b = ptir.read(text(data)), ptir.read(text(moved))
    assert max(map(len, plain_text(a).splitlines())) < 120 and plain_text(a) != plain_text(b)
    assert plain_text(a) == plain_text(ptir.read(text(data)))
    assert not list(constant_differences(a, a))
    (line,) = constant_differences(a, b)
    expected = f"1 of 4096 elements differ, by at most 0.5; [3, 5] is {np.float64(moved[3, 5])}, was {np.float64(data[3, 5])}"
    assert line == f"# constant w: tensor<f32, 64x64>, {expected}\n"
