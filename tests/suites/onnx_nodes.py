"""The node tests that the package `onnx` ships: each model read, run, and held to the outputs that come with it."""

from __future__ import annotations

import traceback
import warnings
from typing import Any

import numpy as np
import onnx

import ptir_tools as ptir
from ptir_tools.bridges.onnx.format import translated
from ptir_tools.core.diagnostics import Diagnostics, Severity
from ptir_tools.core.dialect import Options
from ptir_tools.core.source import Source
from tests.suites.report import Report

_ULPS = {"bfloat16": 2**-6, "float16": 2**-9}  # two units in the last place, which onnx's own runner allows bfloat16


def cases() -> list[Any]:
    """Every node test."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(collect_testcases(None))  # type: ignore[arg-type]


def read(model: Any, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The program of a model; inputs that must be constants are, one after the other. Raises Rejected."""
    frozen: dict[str, Any] = {}
    while True:
        diagnostics = Diagnostics()
        program, needed = _translated(model, diagnostics, frozen)
        more = [name for name in needed if name in given and name not in frozen]
        if program is not None or not more:
            diagnostics.raise_if_errors()
            return program, frozen
        frozen.update({name: given[name] for name in more})


def _translated(model: Any, diagnostics: Diagnostics, frozen: dict[str, Any]) -> tuple[Any, list[str]]:
    from ptir_tools.bridges.onnx import importer

    source = Source("model.onnx", "", data=b"")
    diagnostics.source = source
    made = importer.Importer(model, source, diagnostics, Options(placeholders=frozen))
    program = made.program()
    names = {importer.spelled(v.name): v.name for v in model.graph.input}
    return program, [names[n] for n in made.needed]


def run(part: str = "", every: int = 1, native: int = 1, first: int = 0) -> Report:
    """The counts for the cases whose names have `part`, every so many of them from the `first` on. Every `native`-th runs on the
    default engine, too."""
    report = Report("onnx node tests")
    chosen = [c for c in cases() if part in c.name][first::every]
    for k, case in enumerate(chosen):
        engines = ("numpy", "native") if native and k % native == 0 else ("numpy",)
        _one(case, report, engines)
    return report


def _one(case: Any, report: Report, engines: tuple[str, ...]) -> None:
    try:
        for inputs, outputs in case.data_sets:
            inputs, outputs = (
                [onnx.numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x for x in xs] for xs in (inputs, outputs)
            )
            outputs = [y for x in outputs for y in (x if isinstance(x, list) else [x])]  # a sequence is so many outputs
            if any(not isinstance(x, (np.ndarray, np.generic)) or x.dtype.kind in "OSUT" for x in (*inputs, *outputs)):
                report.refused[case.name] = "strings, sequences and optionals"
                return
            values = list(case.model.graph.input)
            given = {v.name: np.asarray(x) for v, x in zip(values, inputs, strict=False)}
            program, frozen = read(case.model, given)
            ptir.verify(program)
            arrays = [x for name, x in given.items() if name not in frozen]
            for engine in engines:
                found = counted(ptir.run(program, arrays, engine=engine), outputs)
                problem = _difference(found, outputs, case)
                if problem:
                    report.wrong[case.name] = f"{engine}: {problem}"
                    return
        report.right.append(case.name)
        if frozen:
            report.given.append(case.name)
    except ptir.Rejected as error:
        first = next(d for d in error.diagnostics if d.severity is Severity.ERROR)
        message = first.message.split(" (node")[0]
        if first.code == "InvalidModel":
            report.errors[case.name] = f"{first.code}: {message}"
        else:
            report.refused[case.name] = f"{first.code}: {message}"
    except Exception:
        report.errors[case.name] = traceback.format_exc().strip().splitlines()[-1]


def counted(found: dict[str, Any], wanted: list[Any]) -> list[Any]:
    """Outputs, cut to the rows that count: those of the first axis where the extent is another one."""
    result = []
    for k, (name, x) in enumerate((n, x) for n, x in found.items() if not n.endswith(".count") or n[:-6] not in found):
        if f"{name}.count" in found and k < len(wanted):
            axis = next((a for a, (n, m) in enumerate(zip(x.shape, wanted[k].shape, strict=False)) if n != m), 0)
            x = np.take(x, range(int(found[f"{name}.count"])), axis) if x.shape != wanted[k].shape else x
        result.append(x)
    return result


def _difference(found: list[Any], outputs: list[Any], case: Any) -> str | None:
    if len(found) != len(outputs):
        return f"{len(found)} outputs, {len(outputs)} are wanted"
    for i, (x, wanted) in enumerate(zip(found, outputs, strict=True)):
        y = np.asarray(wanted)
        if x.dtype != y.dtype or x.shape != y.shape:
            return f"output {i} is {x.dtype}{list(x.shape)}, {y.dtype}{list(y.shape)} is wanted"
        if x.dtype.kind not in "biu":
            x, y = (v.astype(np.complex128 if v.dtype.kind == "c" else np.float64) for v in (x, y))
        with np.errstate(all="ignore"):
            rtol = max(case.rtol, _ULPS.get(np.asarray(wanted).dtype.name, 0))
            atol = case.atol
            if "dft" in case.name or "stft" in case.name:  # NumPy transforms float32 in float32: its zeros are rounding errors
                atol = max(atol, 2**-22 * float(np.max(np.abs(y), initial=0)))
            close = np.isclose(x, y, rtol, atol, equal_nan=True) if x.dtype.kind not in "biu" else x == y
        if not np.all(close):
            return f"output {i} differs in {np.size(close) - np.count_nonzero(close)} of {np.size(close)} elements"
    return None


__all__ = ["cases", "onnx", "read", "run", "translated"]
