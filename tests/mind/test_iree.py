"""The linalg lowering of MIND modules, compiled and run by IREE. Skipped where IREE is not installed (extra `oracle`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from iree import compiler, runtime

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.dialects.mind.mlir.format import FORMAT
from tests.mind.programs import SAMPLES, good, inputs_of, random_program, read, run

CPU = ["--iree-llvmcpu-target-cpu=host", "--iree-input-demote-f64-to-f32=false"]


def compiled(program: Program, inputs: list[Any]) -> list[Any]:
    """The outputs of the lowered module."""
    text = "".join(FORMAT.write(program, Diagnostics(), Options()))
    code = compiler.compile_str(text, target_backends=["llvm-cpu"], extra_args=CPU)
    context = runtime.SystemContext(config=runtime.Config("local-sync"))
    context.add_vm_module(runtime.VmModule.copy_buffer(context.instance, code))
    found = dict(context.modules.items())["module"].main(*inputs)
    return [np.asarray(x) for x in (found if isinstance(found, (tuple, list)) else [found])]


def agree(program: Program, seed: int = 0) -> None:
    """Integers bit for bit, floats but for the rounding of a few dozen operations."""
    inputs = inputs_of(program, seed)
    for got, want in zip(compiled(program, inputs), run(program, inputs), strict=True):
        want = np.asarray(want)
        if want.dtype.kind == "i":
            np.testing.assert_array_equal(got, want)
        else:
            tolerance = 64 * float(np.finfo(want.dtype).eps)
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("path", [p for p in SAMPLES if not read(p.read_text())[1].errors], ids=lambda p: p.stem)
def test_samples(path) -> None:
    program = good(path.read_text())
    if not any(op.defn.short in ("Index", "Gather") for op in program.main.body):  # out of bounds is theirs to define
        agree(program)


@pytest.mark.parametrize("seed", range(40))
def test_random_modules(seed) -> None:
    agree(random_program(seed, 6), seed)
