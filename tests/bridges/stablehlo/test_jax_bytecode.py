"""Bytecode of StableHLO and text of VHLO: what jaxlib writes is read, and what is written jaxlib reads and runs."""

from __future__ import annotations

import io
from pathlib import Path

import jax
import jax.export
import numpy as np
import pytest
from jax.interpreters import mlir
from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import stablehlo

import ptir_tools as ptir
from tests.conftest import run_ptir

X, W = (np.random.default_rng(0).normal(size=s).astype(np.float32) for s in ((2, 4), (4, 3)))


def function(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.nn.softmax(jax.numpy.sin(x) @ w) + jax.numpy.arange(3, dtype="float32")


def forms() -> dict[str, bytes]:
    """The function in the three forms that jaxlib gives a module."""
    lowered = jax.jit(function).lower(X, W)
    raw = io.BytesIO()
    lowered.compiler_ir().operation.write_bytecode(raw)
    portable = stablehlo.serialize_portable_artifact(lowered.compiler_ir(), stablehlo.get_minimum_version())
    with mlir.make_ir_context():
        stablehlo.register_stablehlo_passes()
        module = ir.Module.parse(lowered.as_text())
        passmanager.PassManager.parse("builtin.module(stablehlo-legalize-to-vhlo)").run(module.operation)
        return {"raw": raw.getvalue(), "portable": portable, "vhlo": str(module).encode(), "exported": exported()}


def exported() -> bytes:
    return bytes(jax.export.export(jax.jit(function))(X, W).mlir_module_serialized)


@pytest.mark.parametrize("form", ["raw", "portable", "vhlo", "exported"])
def test_what_jaxlib_writes_is_read(tmp_path: Path, form: str) -> None:
    (tmp_path / "f").write_bytes(forms()[form])
    program = ptir.read(tmp_path / "f")
    (found,) = ptir.run(program, [X, W]).values()
    np.testing.assert_allclose(found, function(X, W), rtol=1e-5)


def test_what_is_written_jaxlib_runs(tmp_path: Path) -> None:
    path, out = "testdata/plan/mlp.ptir", tmp_path / "p.mlirbc"
    ran = run_ptir("translate", path, "--to", "stablehlo-bytecode", "--check", "-o", out)
    assert ran.status == 0, ran.err
    assert b"StableHLO_v" in out.read_bytes()[:20]
    assert run_ptir("info", out).text.startswith("format    stablehlo-bytecode")
    with mlir.make_ir_context() as context:
        module = stablehlo.deserialize_portable_artifact(context, out.read_bytes())
        assert "stablehlo.dot_general" in str(module)


DAMAGED = {
    "junk": b"ML\xefRjunk",
    "cut short": b"ML\xefR\x01StableHLO_v0.9.0\x00",
    "vhlo": b'module {\n  vhlo.func_v1 @main() -> () {\n    "vhlo.nothing_v9"() : () -> ()\n  }\n}\n',
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_what_is_damaged_is_reported(data: bytes) -> None:
    ran = run_ptir("verify", "-", stdin=data)
    assert ran.status == 1
    assert "error[InvalidModel]: jaxlib rejects this" in ran.err


def test_a_cut_file_never_ends_the_command() -> None:
    whole = forms()["portable"]
    for at in range(5, len(whole), len(whole) // 3):
        ran = run_ptir("verify", "-", stdin=whole[:at])
        assert ran.status == 1, at
        assert "error[" in ran.err


def test_without_jaxlib_the_line_that_installs_it_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jaxlib.py").write_text('raise ImportError("it is not there")\n')  # jaxlib itself may be next to the interpreter
    monkeypatch.syspath_prepend(str(tmp_path))
    assert run_ptir("verify", "--max-binary-bytes", "7", "-", stdin=b"ML\xefRjunk").status == 3
    ran = run_ptir("verify", "--max-file-bytes", "4", "-", stdin=b"ML\xefRjunk")
    assert ran.status == 2
    assert "pip install 'ptir-tools[xla]'" in ran.err
