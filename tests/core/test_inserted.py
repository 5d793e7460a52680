"""Edits that insert an op before a statement: a broadcast or a cast of an operand that does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import run_ptir

HEAD = "func @f(%x: tensor<f16, 2x3>, %b: tensor<f16, 3>, %s: tensor<f32, 2x3>) -> tensor<f16, 2x3> {\n"
CASES = {
    "%y = add(%x, %b)": "  %b_broadcast = broadcast_to(%b) result_shape[2, 3] -> tensor<f16, 2x3>\n  %y = add(%x, %b_broadcast)",
    "%y = add(%b, %x)": "  %b_broadcast = broadcast_to(%b) result_shape[2, 3] -> tensor<f16, 2x3>\n  %y = add(%b_broadcast, %x)",
    "%y = mul(%x, %s)": "  %s_cast = cast(%s) -> tensor<f16, 2x3>\n  %y = mul(%x, %s_cast)",
}


@pytest.mark.parametrize("wrong", CASES)
def test_a_suggested_edit_inserts_an_op(tmp_path: Path, wrong: str) -> None:
    """It is no safe edit, since it guesses what was meant. The repaired program verifies."""
    given = tmp_path / "p.ptir"
    given.write_text(f"{HEAD}  {wrong} -> tensor<f16, 2x3>\n  return %y\n}}\n", "utf-8")
    safe = run_ptir("fix", given)
    assert safe.status == 1 and "_cast" not in safe.text and "_broadcast" not in safe.text
    fixed = run_ptir("fix", "--unsafe", given)
    assert fixed.status == 0, fixed.err
    assert fixed.text == f"{HEAD}{CASES[wrong]} -> tensor<f16, 2x3>\n  return %y\n}}\n"
    given.write_text(fixed.text, "utf-8")
    assert run_ptir("verify", given).status == 0


def test_a_name_that_is_taken_is_not_used(tmp_path: Path) -> None:
    given = tmp_path / "p.ptir"
    text = f"{HEAD}  %s_cast = exp(%x) -> tensor<f16, 2x3>\n  %z = mul(%s_cast, %s) -> tensor<f16, 2x3>\n  return %z\n}}\n"
    given.write_text(text, "utf-8")
    assert "%s_cast_ = cast(%s) -> tensor<f16, 2x3>\n  %z = mul(%s_cast, %s_cast_)" in run_ptir("fix", "--unsafe", given).text


def test_shapes_that_only_a_common_shape_fits_have_no_edit(tmp_path: Path) -> None:
    given = tmp_path / "p.ptir"
    text = "func @f(%a: tensor<f32, 2x1>, %b: tensor<f32, 1x3>) -> tensor<f32, 2x3> {\n"
    given.write_text(f"{text}  %y = add(%a, %b) -> tensor<f32, 2x3>\n  return %y\n}}\n", "utf-8")
    assert run_ptir("fix", "--unsafe", given).status == 1
