"""`python -m tests.bench world DIR [-t N] [NAME…]`: every `.onnx` file of a folder next to ONNX Runtime, OpenVINO and torch, with
N threads each, 1 by default. Names choose files by a part of theirs.

A line per model: the least time of the best peer over ours, and of each peer; our time; our import and first run in seconds; the
nodes of the file and of what `opt --to onnx` makes of it, and the time of ONNX Runtime on the file over that on the result. Runs
take turns. One thread is measured in CPU time, several by the clock. torch runs the exported program in `NAME.pt2` next to the
file, if there is one. Extents that are no numbers, and inputs, are those of `python -m tests.suites world`; random ones where
ONNX Runtime does not take the file. `!` marks outputs that are not those of the first peer, in the order of the columns.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.suites.world import fitting

TURNS, TURN, PAUSE = 7, 0.25, 0.1  # of each side and model; seconds of a turn; seconds after which other threads sleep
TOLERANCE = {"float32": 2e-3, "bfloat16": 6e-2}
PEERS = ("ort", "openvino", "torch")
HEADINGS = ("model", "ratio", "best peer", *PEERS, "ours, ms", "import", "first", "nodes", "after", "ORT after")
Arrays = Mapping[str, Any]
Call = Callable[[], Sequence[Any]]


def shaped(path: Path, shapes: Mapping[str, Sequence[int]]) -> Any:
    """The model with these shapes of its inputs."""
    import onnx

    model = onnx.load(path)
    for x in (x for x in model.graph.input if x.name in shapes):
        for d, n in zip(x.type.tensor_type.shape.dim, shapes[x.name], strict=True):
            d.dim_value = n
    return model


def opened(model: str | bytes, threads: int = 1) -> Any:
    """A session of ONNX Runtime at its default level."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 4
    return onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])


def by_ort(file: Path, inputs: Arrays, threads: int) -> Call:
    """A call of ONNX Runtime."""
    session = opened(str(file), threads)
    return lambda: session.run(None, inputs)


def by_openvino(file: Path, inputs: Arrays, threads: int) -> Call:
    """A call of OpenVINO, told to compute in the dtype of the file; else f32 becomes bf16."""
    import openvino

    core = openvino.Core()
    options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "ENABLE_CPU_PINNING": False}
    is_short = any(x.dtype.name == "bfloat16" for x in inputs.values())
    compiled = core.compile_model(str(file), "CPU", {**options, "INFERENCE_PRECISION_HINT": "bf16" if is_short else "f32"})
    request = compiled.create_infer_request()
    places = {name: i for i, port in enumerate(compiled.inputs) for name in port.get_names()}
    kinds = {name: port.get_element_type() for port in compiled.inputs for name in port.get_names()}
    for name in set(places) & set(inputs):
        x = np.ascontiguousarray(inputs[name])
        made = openvino.Tensor(x.view(np.int16), x.shape, kinds[name]) if x.dtype.name == "bfloat16" else openvino.Tensor(x)
        request.set_input_tensor(places[name], made)

    def call() -> Sequence[Any]:
        request.infer()
        found = [request.get_output_tensor(i).data for i in range(len(compiled.outputs))]
        return [x.view(np.int16) if is_short and x.dtype == np.float16 else x for x in found]  # bf16, as the bits of f16

    return call


def by_torch(file: Path, inputs: Arrays, threads: int) -> Call:
    """A call of torch on the program next to the file, images with their channels last."""
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    module = torch.export.load(file.with_suffix(".pt2")).module()
    given = [torch.from_numpy(x.view(np.int16)).view(torch.bfloat16) if x.dtype.name == "bfloat16" else torch.from_numpy(x)
             for x in inputs.values()]  # fmt: skip
    given = [x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 and x.shape[1] < 5 else x for x in given]

    def call() -> Sequence[Any]:
        found = module(*given)
        return found if isinstance(found, tuple) else (found,)

    return call


MAKERS = dict(zip(PEERS, (by_ort, by_openvino, by_torch), strict=True))


def timed(threads: int, *calls: Callable[[], object]) -> list[float]:
    """The least time of each of `calls`, which take turns."""
    clock = time.process_time if threads == 1 else time.perf_counter
    best = [float("inf")] * len(calls)
    for _ in range(TURNS):
        for i, call in enumerate(calls):
            time.sleep(PAUSE)
            call()
            end = time.perf_counter() + TURN
            while True:
                start = clock()
                call()
                best[i] = min(best[i], clock() - start)
                if time.perf_counter() > end:
                    break
    return best


def near(ours: Sequence[Any], theirs: Sequence[Any]) -> bool:
    """Whether all outputs agree, relative to the largest magnitude of each."""

    def close(a: Any, b: Any) -> bool:
        tolerance = TOLERANCE.get(a.dtype.name, 2e-3)
        a, b = (np.asarray(x.float() if hasattr(x, "float") else x) for x in (a, b))
        if a.dtype.name == "bfloat16" or b.dtype.name == "bfloat16":
            a, b = (x.view(a.dtype) if x.dtype == np.int16 else x for x in (a, b))
            a, b = a.astype(np.float32), b.astype(np.float32)
        return a.shape == b.shape and np.allclose(a, b, tolerance, tolerance * np.abs(b).max(initial=1e-3), True)

    return all(map(close, ours, theirs))


def random(program: Any) -> Arrays:
    """Random inputs of a file that ONNX Runtime does not take."""
    from ptir_tools.engines.inputs import random_inputs

    drawn = random_inputs(program, 1)
    names = program.main.attrs.get("input_names") or list(drawn)
    return dict(zip(names, drawn.values(), strict=True))


def measured(path: Path, threads: int) -> Iterator[str]:
    """The columns of a model after its name."""
    import onnx

    import ptir_tools as ptir

    shapes: Mapping[str, Sequence[int]]
    try:
        shapes, inputs = fitting(opened(str(path)), None)
    except Exception:
        shapes, inputs = {}, random(ptir.read(path))
    with tempfile.TemporaryDirectory() as folder:
        file = path
        graph = onnx.load(path, load_external_data=False).graph
        if any(not d.dim_value for x in graph.input for d in x.type.tensor_type.shape.dim):
            file = Path(folder, "model.onnx")
            onnx.save(shaped(path, shapes), file)
        start = time.perf_counter()
        program = ptir.read(file)
        read = time.perf_counter() - start
        call = ptir.compile(program, threads=threads)
        given = list(inputs.values())
        start = time.perf_counter()
        got = list(call(given).values())
        first = time.perf_counter() - start
        peers = {name: peer for name, make in MAKERS.items() if (peer := working(make, name, file, inputs, threads))}
        mine, *theirs = timed(threads, lambda: call(given), *peers.values())
        times = dict(zip(peers, theirs, strict=True))
        best = min(times, key=times.__getitem__)
        yield f"{times[best] / mine:.2f}{'' if near(got, next(iter(peers.values()))()) else '!'}"
        yield best
        yield from (f"{times[name] / mine:.2f}" if name in times else "-" for name in MAKERS)
        yield from (f"{1e3 * mine:.2f}", f"{read:.2f}", f"{first:.2f}", str(len(graph.node)))
        yield from rewritten(program, Path(folder, "again.onnx"), peers.get("ort"), inputs)


def working(make: Callable[[Path, Arrays, int], Call], name: str, file: Path, inputs: Arrays, threads: int) -> Call | None:
    """A call of a peer, or None where it does not take the file; then the reason is printed."""
    try:
        call = make(file, inputs, threads)
        call()
        return call
    except Exception as error:
        print(f"{file.stem}: {name}: {str(error)[:120]}", file=sys.stderr)
        return None


def rewritten(program: Any, file: Path, theirs: Call | None, inputs: Arrays) -> Iterator[str]:
    """The nodes of what `opt --to onnx` writes, and the time of ONNX Runtime, `theirs`, over that on the result."""
    import onnx

    import ptir_tools as ptir

    if theirs is None:
        yield from ("-", "-")
        return
    made = ptir.to_onnx(ptir.optimize(program))
    yield str(len(made.graph.node))
    onnx.save(made, file)
    again = opened(str(file))
    renamed = dict(zip((x.name for x in again.get_inputs()), inputs.values(), strict=True))
    before, after = timed(1, theirs, lambda: again.run(None, renamed))
    yield f"{before / after:.2f}{'' if near(again.run(None, renamed), theirs()) else '!'}"


def line(columns: Sequence[str]) -> None:
    """Print the columns of a model, or the headings."""
    print(f"{columns[0]:32}" + "".join(f"{x:>10}" for x in columns[1:]), flush=True)


def mean(columns: Sequence[str]) -> str:
    """The geometric mean of the numbers."""
    numbers = [float(x.rstrip("!")) for x in columns]
    return f"{statistics.geometric_mean(numbers):.2f}" if numbers else "-"


def main(arguments: Sequence[str]) -> None:
    """Print the table of a folder."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench world")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="parts of names of files")
    parser.add_argument("-t", "--threads", type=int, default=1)
    asked = parser.parse_args(arguments)
    line(HEADINGS)
    rows: list[list[str]] = []
    for path in sorted(asked.folder.rglob("*.onnx")):
        if asked.names and not any(name in path.name for name in asked.names):
            continue
        row = [path.stem]
        try:
            row.extend(measured(path, asked.threads))
        except Exception as error:
            row.append(f"{type(error).__name__}: {str(error)[:100]}")
        line(row)
        rows.append(row)
    whole = [row for row in rows if len(row) == len(HEADINGS)]
    last = [row[-1] for row in whole if row[-1] != "-"]
    line(["geometric mean", mean([row[1] for row in whole]), *[""] * 8, mean(last)])
