"""What the PTO tests share: programs from a few lines, verified or run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ptir_tools.core.arrays import numpy_dtype
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.evaluate import Context
from ptir_tools.core.source import Source
from ptir_tools.core.verify import verify
from ptir_tools.dialects.pto.run.executor import Executable
from ptir_tools.dialects.pto.text import format as text
from ptir_tools.engines.options import RunOptions
from ptir_tools.engines.signature import results as outputs
from ptir_tools.engines.signature import signature

SAMPLES = Path(__file__).parents[2] / "testdata" / "pto"
KERNELS = SAMPLES / "kernels"


def event(opcode: str) -> str:
    return f"!pto.event<producer = #pto.op<{opcode}>>"


def module(parameters: str, *lines: str, target: str = "") -> str:
    attributes = f" attributes {{ pto.target = #pto.target<{target}> }}" if target else ""
    body = "\n".join(f"    {line}" for line in ("%c0 = pto.constant 0 : index", *lines, "return"))
    return f"module{attributes} {{\n  func.func @f({parameters}) {{\n{body}\n  }}\n}}\n"


def check(source: str, options: Options | None = None) -> tuple[Program | None, Diagnostics]:
    """The program and what verifying it finds."""
    found = Diagnostics(Source("test.pto", source))
    program = text.read(found.source, found, options or Options())
    if program is not None:
        verify(program, found, options)
    return program, found


def codes(source: str, options: Options | None = None) -> list[str]:
    """The codes that a program provokes, in order of place."""
    return [d.code for d in check(source, options)[1].sorted()]


def good(source: str, options: Options | None = None) -> Program:
    program, found = check(source, options)
    assert program is not None and not found.errors, [(d.code, d.message, d.where) for d in found]
    return program


def printed(program: Program) -> str:
    return "".join(text.write(program, Diagnostics(), Options()))


def run(source: str | Program, inputs: dict[str, Any], **options: Any) -> dict[str, np.ndarray]:
    """What the machine makes of `inputs`; its violations are raised as they are."""
    program = good(source) if isinstance(source, str) else source
    chosen = RunOptions(**options)
    ports = signature(program)
    if missing := [p for p in ports if p.name not in inputs]:
        raise UsageError(f"no input for `{missing[0].name}`")
    given = [np.asarray(inputs[p.name]) for p in ports]
    results = Executable(program, program.main, chosen)(given, Context(seed=chosen.seed, limits=chosen.limits))
    return dict(zip((p.name for p in outputs(program)), results, strict=True))


def pattern(program: Program, index: dict[str, int] | None = None) -> dict[str, np.ndarray]:
    """The inputs of the samples' checksums: ((7i + 3k) mod 13 - 6), a quarter of it for floats."""
    made: dict[str, np.ndarray] = {}
    for k, p in enumerate(program.main.params):
        shape = getattr(p.type, "shape", None)
        if shape is None:
            made[p.name] = np.asarray((index or {})[p.name], numpy_dtype(p.type.dtype))
            continue
        whole = (7 * np.arange(int(np.prod(shape))) + 3 * k) % 13 - 6
        values = whole / 4 if p.type.dtype.is_float else whole
        made[p.name] = values.reshape(shape).astype(numpy_dtype(p.type.dtype))
    return made
