"""Every code is explained, and each of the command line's own is provoked by its wrong program, not by its right one."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from ptir_tools.cli.session import Session
from ptir_tools.core.declare import OPS
from ptir_tools.core.dialect import Code
from ptir_tools.dialects.mind.codes import RESERVED
from ptir_tools.dialects.tiny.codes import NOTES
from ptir_tools.tools.explanations import EXPLAIN, all_codes
from tests.conftest import ROOT, Ran, run_ptir

Ptir = Callable[..., Ran]
EXP = "func @f(%x: tensor<f32, 2>) -> tensor<f32, 2> {\n  %y = exp(%x) -> tensor<f32, 2>\n  return %y\n}\n"
CHECKED = ("verify", "--verify-diagnostics", "{}")
COMMANDS: dict[str, tuple[str, ...]] = {
    "NoFixpoint": ("opt", "--max-iterations", "1", "--strict", "{}"),
    "HintDropped": ("opt", "--strict", "{}"),
    "CheckFailed": ("diff", "--run", "{}", "{exp}"),
    "OutputMismatch": ("run", "--input", "x=1", "--expect", "{ones}", "{}"),
    "NonFinite": ("run", "--input", "x=0", "--check-nan", "{}"),
    "NotFormatted": ("fmt", "--check", "{}"),
    "TestFailed": ("lit", "{}"),
    "InvalidTest": ("lit", "{}"),
    "MissingDiagnostic": CHECKED,
    "UnexpectedDiagnostic": CHECKED,
    "InvalidExpectation": CHECKED,
    "InvalidCase": ("conform", "mind", "{}"),
    "LimitExceeded": ("verify", "{}"),
    "UnknownSymbol": ("verify", "--strict", "--bind", "N=2", "{}"),
}


@pytest.mark.parametrize("code", [c for c in EXPLAIN if c.wrong], ids=lambda c: c.code)
def test_examples(ptir: Ptir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: Code) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    names = {name: tmp_path / name for name in ("program", "exp", "ones.npy")}
    names["exp"].write_text(EXP)
    np.save(names["ones.npy"], np.ones(2, np.float32))
    for text, status in ((code.wrong, 3 if code.code == "LimitExceeded" else 1), (code.right, 0)):
        names["program"].write_text(text)
        words = [word.format(names["program"], exp=names["exp"], ones=names["ones.npy"]) for word in COMMANDS[code.code]]
        ran = ptir(*words, "--diagnostics", "json")
        assert (ran.status, f'"code": "{code.code}"' in ran.text + ran.err) == (status, status > 0), ran


def raising(error: BaseException) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("code", "status", "args", "error"),
    [
        ("UsageError", 2, ("opt", "-p", "cze"), None),
        ("IOError", 4, ("opt", "no/such/file"), None),
        ("Interrupted", 130, ("opt",), KeyboardInterrupt()),
        ("InternalError", 70, ("opt",), RuntimeError("a fault")),
    ],
)
def test_codes_without_a_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str, status: int, args: tuple[str, ...], error: BaseException | None
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    if error is not None:
        monkeypatch.setattr(Session, "verify", raising(error))
    ran = run_ptir(*args, "--diagnostics", "json", stdin=EXP.encode())
    assert ran.status == status and f'"code": "{code}"' in ran.err


def test_a_rule_that_fails_is_reported_and_fails_under_expensive_checks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(OPS["ptir.reshape"], "fold", raising(ValueError("a fault")))
    chain = "".join(f"  %v{i + 1} = exp(%v{i}) -> tensor<f32>\n" for i in range(200))  # too many for the checks of conftest.py
    header = "func @f(%x: tensor<f32>) -> tensor<f32> {\n  %v0 = reshape(%x) new_shape[] -> tensor<f32>\n"
    program = f"{header}{chain}  return %v200\n}}\n".encode()
    ran = run_ptir("opt", stdin=program)
    assert ran.status == 0 and "warning[BrokenRule]: the rule `fold of ptir.reshape` failed" in ran.err
    assert "ValueError: a fault" in ran.err and "reshape(" in ran.text
    ran = run_ptir("run", "--input", "x=-9", "--engine", "numpy", stdin=program)
    assert ran.status == 0 and "warning[BrokenRule]" in ran.err
    ran = run_ptir("opt", "--expensive-checks", stdin=program)
    assert ran.status == 70 and "fold of ptir.reshape" in ran.err


def test_the_reference_engine_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptir_tools.convert.translate", lambda *_: None)
    ran = run_ptir("run", "-v", stdin=b"%0 = ConstF32 {value=1.5}\noutputs: %0\n")
    assert ran.status == 0 and "note[ReferenceEngine]: run by the reference engine" in ran.err


# Where a call that reports has its code.
_AT = {"error": 0, "warning": 0, "note": 0, "report": 0, "fail": 0, "require": 1, "Violation": 0}


def said(path: Path) -> Iterator[str]:
    """The codes that the source text of a module reports by name."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            for x in ast.walk(node.args[_AT[name]]) if name in _AT and len(node.args) > _AT[name] else ():
                if isinstance(x, ast.Constant) and isinstance(x.value, str) and x.value.isalnum() and x.value[:1].isupper():
                    yield x.value


def test_every_code_is_explained() -> None:
    known = {c.code for _, c in all_codes()}
    found = {c for room in ("ptir_tools", "passes", "grammars") for p in (ROOT / room).rglob("*.py") for c in said(p)}
    assert len(found) > 80 and found <= known, found - known


# Commands that provoke what `ptir verify -v` does not.
PROVOKING: dict[tuple[str, str], tuple[str, ...]] = {
    ("any", "ConstantsLeft"): ("translate", "--to", "pto"),
    ("any", "InvalidSharding"): ("plan", "--mesh", "x=4", "--shard", "x=x"),
    ("mind", "ValuesRenumbered"): ("translate", "--to", "mind-json", "-v"),
    ("pto", "IntegerDivideByZero"): ("run", "--random", "0"),
    ("pto", "TargetOverridden"): ("verify", "--target", "a5"),
    ("tiny", "UnboundSymbol"): ("run", "--random", "0"),
    **{("tiny", c.code): ("verify", "-v") for c in NOTES},
}
# What is not about the text of one program, or cannot be shown in a text.
WITHOUT = {
    "any": {
        "BrokenRule", "IOError", "InternalError", "Interrupted", "InvalidEncoding", "InvalidPlan", "PluginError",
        "ReferenceEngine", "UsageError",
        "InvalidModel", "OnnxNeedsConstant", "UnsupportedOnnx", "UnsupportedStableHLO",  # of formats that are extras
    },
    "mind": {"E1001", "E5001", *RESERVED},
    "pto": {"UnboundSymbol", "UndefinedElement", "Unproved"},
}  # fmt: skip


@pytest.mark.parametrize(("owner", "name"), PROVOKING, ids=lambda x: str(x))
def test_a_wrong_and_a_right_program_of_what_verify_alone_does_not_say(owner: str, name: str) -> None:
    code = next(c for o, c in all_codes() if (o, c.code) == (owner, name))
    for text, provoked in ((code.wrong, True), (code.right, False)):
        ran = run_ptir(*PROVOKING[owner, name], "--diagnostics", "json", "-", stdin=text.encode())
        assert (f'"code": "{name}"' in ran.text + ran.err) == provoked, ran.err
        assert provoked or ran.status == 0


def test_every_code_has_a_wrong_and_a_right_program() -> None:
    missing = {(o, c.code) for o, c in all_codes() if not (c.wrong and c.right)}
    assert missing <= {(o, name) for o, names in WITHOUT.items() for name in names}
