"""Manuals of ops: every op has an example, and it is a program that verifies."""

from __future__ import annotations

import pytest

from ptir_tools.core.ir import OpDef
from ptir_tools.dialects import load_dialect
from ptir_tools.tools import manuals
from tests.conftest import run_ptir

OPS = [d for name in ("ptir", "pto", "mind", "tiny") for d in load_dialect(name).ops.values()]


@pytest.mark.parametrize("op", OPS, ids=[d.name for d in OPS])
def test_an_op_has_an_example_that_verifies(op: OpDef) -> None:
    dialect = op.name.partition(".")[0]
    text = manuals.example(op)
    assert text, f"write a program with it into ptir_tools/dialects/{dialect}/examples.txt"
    profile = ["--profile", "current"] if op.name == "mind.Div" else []
    strict = [] if op.name == "tiny.POOL" else ["--strict"]  # a macro, with a warning that it is one
    ran = run_ptir("verify", *strict, "--from", dialect, *profile, stdin=text.encode())
    assert ran.status == 0, ran.err
    shown = run_ptir("info", "--from", dialect, *profile, "--json", stdin=text.encode())
    assert f'"{op.short}"' in shown.out.decode()
    assert text in manuals.page(op) and text in manuals.markdown(op)


@pytest.mark.parametrize("dialect", ["ptir", "pto", "mind", "tiny"])
def test_every_example_is_of_an_op(dialect: str) -> None:
    assert set(manuals._examples(dialect)) == set(load_dialect(dialect).ops)
