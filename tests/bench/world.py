"""`python -m tests.bench world DIR`: every `.onnx` file of a folder and ONNX Runtime, one thread, medians of interleaved runs in
CPU time.

A line per model: the time of ONNX Runtime over ours, our import and first run in seconds, the nodes of the file and of what
`opt --to onnx` makes of it, and the time of ONNX Runtime on the file over that on the result. Extents that are
no numbers, and inputs, are those of `python -m tests.suites world`. `!` marks outputs that are not those of ONNX Runtime within
the tolerance.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.suites.world import fitting

SECONDS, LEAST, MOST = 1.5, 5, 60  # per side and model; rounds
TOLERANCE = 2e-3
HEADINGS = ("model", "ratio", "import", "first", "nodes", "after", "ORT after")
Arrays = Mapping[str, Any]


def shaped(path: Path, shapes: Mapping[str, Sequence[int]]) -> Any:
    """The model with these shapes of its inputs."""
    import onnx

    model = onnx.load(path)
    for x in (x for x in model.graph.input if x.name in shapes):
        for d, n in zip(x.type.tensor_type.shape.dim, shapes[x.name], strict=True):
            d.dim_value = n
    return model


def opened(model: str | bytes) -> Any:
    """A session of ONNX Runtime with one thread, at its default level."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])


def timed(*calls: Callable[[], object]) -> list[float]:
    """The median of the ratios of each of `calls` to the first, by interleaved runs, in the CPU time of this thread."""
    times: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + SECONDS * len(calls)
    while len(times[0]) < LEAST or (time.perf_counter() < end and len(times[0]) < MOST):
        for call, entry in zip(calls, times, strict=True):
            start = time.thread_time()
            call()
            entry.append(time.thread_time() - start)
    return [statistics.median(first / t for first, t in zip(times[0], entry, strict=True)) for entry in times]


def near(ours: Sequence[Any], theirs: Sequence[Any]) -> bool:
    """Whether all outputs agree, relative to the largest magnitude of each."""

    def close(a: Any, b: Any) -> bool:
        return a.shape == b.shape and np.allclose(a, b, TOLERANCE, TOLERANCE * np.abs(b).max(initial=1e-3), True)

    return all(map(close, ours, theirs))


def measured(path: Path) -> Iterator[str]:
    """The columns of a model after its name."""
    import onnx

    import ptir_tools as ptir

    shapes, inputs = fitting(opened(str(path)), None)
    model = shaped(path, shapes)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.onnx")
        onnx.save(model, file)
        theirs = opened(str(file))
        want = theirs.run(None, inputs)
        start = time.perf_counter()
        program = ptir.read(file)
        read = time.perf_counter() - start
        call = ptir.compile(program, threads=1)
        given = list(inputs.values())
        start = time.perf_counter()
        got = list(call(given).values())
        first = time.perf_counter() - start
        _, ratio = timed(lambda: theirs.run(None, inputs), lambda: call(given))
        yield f"{ratio:.2f}{'' if near(got, want) else '!'}"
        yield from (f"{read:.2f}", f"{first:.2f}", str(len(model.graph.node)))
        made = ptir.to_onnx(ptir.optimize(program))
        yield str(len(made.graph.node))
        onnx.save(made, file)
        again = opened(str(file))
        renamed = dict(zip((x.name for x in again.get_inputs()), inputs.values(), strict=True))
        _, faster = timed(lambda: theirs.run(None, inputs), lambda: again.run(None, renamed))
        yield f"{faster:.2f}{'' if near(again.run(None, renamed), want) else '!'}"


def line(columns: Sequence[str]) -> None:
    """Print the columns of a model, or the headings."""
    print(f"{columns[0]:32}" + "".join(f"{x:>10}" for x in columns[1:]), flush=True)


def mean(columns: Sequence[str]) -> str:
    """The geometric mean of the numbers."""
    numbers = [float(x.rstrip("!")) for x in columns]
    return f"{statistics.geometric_mean(numbers):.2f}" if numbers else "-"


def main(arguments: Sequence[str]) -> None:
    """Print the table of the folder `arguments[0]`; further arguments choose files by a part of their name."""
    if not arguments or not Path(arguments[0]).is_dir():
        sys.exit("usage: python -m tests.bench world DIR [NAME…]")
    folder, *wanted = arguments
    line(HEADINGS)
    rows: list[list[str]] = []
    for path in sorted(Path(folder).rglob("*.onnx")):
        if wanted and not any(name in path.name for name in wanted):
            continue
        row = [path.stem]
        try:
            row.extend(measured(path))
        except Exception as error:
            row.append(f"{type(error).__name__}: {str(error)[:100]}")
        line(row)
        rows.append(row)
    whole = [row for row in rows if len(row) == len(HEADINGS)]
    line(["geometric mean", mean([row[1] for row in whole]), "", "", "", "", mean([row[-1] for row in whole])])
