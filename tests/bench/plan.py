"""The planner: how near its peaks are to the least there can be, and the seconds of CPU that it takes.

The eleven published instances are at their capacity where the ratio is 1. Of a rectangle that is cut into pieces the height is
known to be reachable. Bytes of models are those of the arena that the default engine runs in and of all results; the peer's are
of temporaries and results in XLA's `memory_analysis`, where JAX is installed. Rows in seconds have what the project promises as
the peer: they are kept where the ratio is below 1.
"""

from __future__ import annotations

import csv
import heapq
import random
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from time import process_time

import numpy as np

import ptir_tools as ptir
from ptir_tools.core import arrays
from ptir_tools.core.builder import single_function
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dtypes import F32
from ptir_tools.core.evaluate import Context
from ptir_tools.core.ir import Value
from ptir_tools.core.types import TensorType, flatten, tensor
from ptir_tools.dialects import load_dialect
from ptir_tools.engines.choose import prepare
from ptir_tools.engines.options import RunOptions
from ptir_tools.plan.exact import Budget, improve
from ptir_tools.plan.order import least_peak
from ptir_tools.plan.placement import Interval, lower_bound, peak, place
from ptir_tools.plan.record import _AUTO
from tests.bench.start import milliseconds

DATA = Path(__file__).parent.parent.parent / "testdata"
PIECES = 62_000
MODELS = ("llama", "mobilenet", "resnet", "gpt2_cached", "gpt2_greedy")

Row = tuple[str, float, float | None, str]


def planned(what: str, given: list[Interval], least: int, promised: float, seconds: float) -> Iterator[Row]:
    """Two rows of one instance, planned as `ptir plan` does."""
    start = process_time()
    offsets = improve(given, place(given), Budget(_AUTO.steps)).offsets
    took = process_time() - start
    yield f"{what}: peak", peak(given, offsets) / least, promised, "x the least, and what is promised"
    yield f"{what}: time", took, seconds, "s of CPU"


def published(path: Path) -> list[Interval]:
    """An instance of minimalloc."""
    with path.open() as file:
        return [Interval(int(row["lower"]), int(row["upper"]), int(row["size"])) for row in csv.DictReader(file)]


def shaped(count: int, seed: int) -> list[Interval]:
    """Live ranges as training a deep network has them: most are short, some last from the way forth to the way back."""
    rng = random.Random(seed)
    sizes = [64 * rng.randint(1, 64) * rng.choice((1, 16, 256)) for _ in range(40)]
    found = []
    for i in range(count // 2):
        found.append(Interval(i, i + rng.choice((1, 1, 2, 3)), rng.choice(sizes)))
        kept = rng.random() < 0.3
        found.append(Interval(i, count - i if kept else i + rng.randint(1, 12), rng.choice(sizes)))
    return found


def cut(count: int, seed: int, time: int, height: int) -> list[Interval]:
    """The pieces of a rectangle, the largest of which was cut in two again and again."""
    rng = random.Random(seed)
    parts = [(-time * height, 0, time, 0, height)]
    while len(parts) < count:
        _, start, end, low, high = heapq.heappop(parts)
        if end - start > 1 and (rng.random() < 0.5 or high - low < 2):
            at = rng.randint(start + 1, end - 1)
            two = [(start, at, low, high), (at, end, low, high)]
        else:
            at = rng.randint(low + 1, high - 1)
            two = [(start, end, low, at), (start, end, at, high)]
        for a, b, c, d in two:
            heapq.heappush(parts, (-(b - a) * (d - c), a, b, c, d))
    rng.shuffle(parts)
    return [Interval(a, b, d - c) for _, a, b, c, d in parts]


def of_many(count: int) -> float:
    """Seconds of CPU in which `ptir plan --from csv` plans so many random intervals, file to file."""
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder) / "given.csv", Path(folder) / "made.txt"
        with given.open("w") as file:
            file.write("id,lower,upper,size\n")
            for i in range(count):
                start = rng.randrange(count)
                end = start + 1 + int(rng.expovariate(0.05))
                file.write(f"b{i},{start},{end},{rng.choice((64, 256, 4096)) * rng.randint(1, 64)}\n")
        _, cpu = milliseconds([sys.executable, "-m", "ptir_tools", "plan", "--from", "csv", str(given), "-o", str(made)])
        return cpu / 1e3


def ordered(count: int) -> float:
    """Seconds of CPU that an order of so many ops takes."""
    rng = random.Random(2)
    program, b = single_function(load_dialect("ptir"))
    values: list[Value] = [b.param(tensor(F32, (k,))) for k in (16, 64, 1024)]
    for _ in range(count - 1):
        x = rng.choice(values[-40:])
        values.append(b.op("neg", x) if rng.random() < 0.7 else b.op("concat", (x, values[0]), axis=0))
    b.results(b.op("concat", tuple(values[-20:]), axis=0))
    start = process_time()
    least_peak(program.main)
    return process_time() - start


def held(name: str) -> Row:
    """Bytes of temporaries and results of a model, ours and XLA's."""
    path = DATA / "models" / f"{name}.ptir"
    made = prepare(ptir.read(path), RunOptions(), Diagnostics())
    types = [p.type for p in made.function.params if isinstance(p.type, TensorType)]
    given = [np.zeros(t.static_shape, arrays.numpy_dtype(t.dtype)) for t in types]
    results = sum(np.asarray(x).nbytes for x in flatten(made(given, Context())))
    ours, theirs = made.own.peak + results, None  # type: ignore[attr-defined]
    if find_spec("jax"):
        made = prepare(ptir.read(path), RunOptions(engine="xla"), Diagnostics())
        made(given, Context())
        found = made.compiled.memory_analysis()  # type: ignore[attr-defined]
        theirs = (found.temp_size_in_bytes + found.output_size_in_bytes) / 1024
    return f"{name}: temporaries and results", ours / 1024, theirs, "KiB, and XLA's"


def rows() -> Iterator[Row]:
    """The table."""
    for path in sorted((DATA / "plan" / "data" / "minimalloc").glob("*.csv")):
        name, capacity, _ = path.name.split(".")
        yield from planned(f"minimalloc {name}", published(path), int(capacity), 1.0, 4.0)
    given = shaped(PIECES, 1)
    yield from planned(f"{PIECES} as of a model", given, lower_bound(given), 1.004, 5.0)
    for seed in (1, 2):
        yield from planned(f"{PIECES} pieces of a rectangle ({seed})", cut(PIECES, seed, 100_000, 1 << 30), 1 << 30, 1.1, 5.0)
        yield from planned(f"{PIECES} of small integers ({seed})", cut(PIECES, seed, 4000, 4000), 4000, 1.1, 5.0)
    yield "1,000,000 intervals, file to file", of_many(1_000_000), 10.0, "s of CPU"
    yield "--order min-peak of 10,000 ops", ordered(10_000), 2.0, "s of CPU"
    yield from map(held, MODELS)
