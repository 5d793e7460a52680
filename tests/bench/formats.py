"""Reading, verifying, printing, laying out and canonicalizing programs of every format, in microseconds of processor time per op
(the least of ROUNDS).

One chain of elementwise ops in each of the formats that can say it; for Tiny two more graphs: attention with everything left
implicit, and windows that are moved about; for PTO a pipeline of loads, sums and stores, with events and without. `exponent` is
that of the fit of time over size. Peak memory is that of a process that reads, verifies, canonicalizes and prints; its peer is
text PTIR.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from ptir_tools.convert import translate
from ptir_tools.core.collector import collector_paused
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.source import Source
from ptir_tools.core.verify import verify
from ptir_tools.dialects import FORMATS, OWNERS, load_format
from ptir_tools.passes import PassContext, run_pipeline
from tests.bench.ir import Row, _exponent

SIZES = (1_000, 10_000, 100_000)
ROUNDS = 2
TENSOR, MEMORY, TILE = "tensor<f32, 8x8>", "pto.memref<8388608x32xf32>", "tile<32x32xf32>"


def chain(n: int) -> str:
    """`n` ops of text PTIR, each of the one before and of one of the latest."""
    ops = ("add", "mul", "sub")
    lines = [f"  %v{i + 2} = {ops[i % 3]}(%v{i + 1}, %v{max(0, i - i % 7)}) -> {TENSOR}" for i in range(n)]
    return "\n".join([f"func @main(%v0: {TENSOR}, %v1: {TENSOR}) -> {TENSOR} {{", *lines, f"  return %v{n + 1}", "}"]) + "\n"


def pipeline(n: int, events: bool) -> str:
    """`n` ops of PTO in steps of four: two loads, a sum, a store; with events each step waits for the one before."""

    def signal(opcode: str) -> str:
        return f", !pto.event<producer = #pto.op<{opcode}>>" if events else ""

    def named(name: str, event: str) -> str:
        return f"{name}, {event}" if events else name

    lines = []
    for i in range(n // 4):
        at = f"[{32 * i}, %c0]"
        before, both, done = (f" wait(%h{i - 1})" * (i > 0), f" wait(%e{i}, %f{i})", f" wait(%g{i})") if events else ("",) * 3
        x, y, z = named(f"%x{i}", f"%e{i}"), named(f"%y{i}", f"%f{i}"), named(f"%z{i}", f"%g{i}")
        store = f"%h{i} = " if events else ""
        lines += [
            f"{x} = pto.tile.load %a{at}{before} : {MEMORY}, {TILE}{signal('TLOAD')}",
            f"{y} = pto.tile.load %b{at} : {MEMORY}, {TILE}{signal('TLOAD')}",
            f"{z} = pto.tile.add %x{i}, %y{i}{both} : {TILE}{signal('TADD')}",
            f"{store}pto.tile.store %z{i}, %out{at}{done} : {MEMORY}, {TILE}{signal('TSTORE_VEC')}",
        ]
    last = [f"pto.sync wait(%h{n // 4 - 1}) : {signal('TSTORE_VEC')[2:]}"] if events else []
    head = f"func.func @main(%a: {MEMORY}, %b: {MEMORY}, %out: {MEMORY}) {{"
    return "\n".join([head, "  %c0 = pto.constant 0 : index", *(f"  {line}" for line in (*lines, *last)), "  return", "}"]) + "\n"


def _node(id: str, uop: str, *src: Any, **arg: Any) -> dict[str, Any]:
    return {"id": id, "uop": uop, "src": list(src)} | ({"arg": arg} if arg else {})


def _graph(shapes: dict[str, list[Any]], dtype: str, nodes: list[dict[str, Any]]) -> str:
    inputs = [{"id": n, "uop": "INPUT", "arg": {"tensor_id": n, "dtype": dtype, "shape": s}} for n, s in shapes.items()]
    return '{"uops":[\n' + ",\n".join(map(json.dumps, [*inputs, *nodes])) + "\n]}\n"


def attention(n: int) -> str:
    """`n` nodes of row softmax, of symbolic extents, reduced axes left to the reader."""
    nodes, x = list[dict[str, Any]](), "q"
    for i in range(n // 12):
        nodes += [
            _node(f"q{i}", "RESHAPE", x, result_shape=["B", "H", "M", 1, "D"]),
            _node(f"t{i}", "PERMUTE", "k", perm=[0, 1, 2, 3]),
            _node(f"k{i}", "RESHAPE", f"t{i}", result_shape=["B", "H", 1, "N", "D"]),
            _node(f"Q{i}", "EXPAND", f"q{i}", result_shape=["B", "H", "M", "N", "D"], broadcast_dimensions=[0, 1, 2, 4]),
            _node(f"K{i}", "EXPAND", f"k{i}", result_shape=["B", "H", "M", "N", "D"], broadcast_dimensions=[0, 1, 3, 4]),
            _node(f"p{i}", "MUL", f"Q{i}", f"K{i}"),
            _node(f"s{i}", "REDUCE", f"p{i}", op="SUM", axes=["D"], dtype="fp32"),
            _node(f"m{i}", "REDUCE", f"s{i}", op="MAX", axes=["N"], dtype="fp32"),
            _node(f"d{i}", "SUB", f"s{i}", f"m{i}"),
            _node(f"e{i}", "EXP2", f"d{i}"),
            _node(f"z{i}", "REDUCE", f"e{i}", op="SUM", axes=["M", "N"], dtype="fp32"),
            _node(f"r{i}", "RESHAPE", f"z{i}", result_shape=["B", "H", 1, 1]),
            _node(f"y{i}", "ADD", x, f"r{i}"),
        ]
        x = f"y{i}"
    return _graph({"q": ["B", "H", "M", "D"], "k": ["B", "H", "N", "D"]}, "fp32", nodes)


def windows(n: int) -> str:
    """`n` nodes that pad, read windows, reduce, flip, slice and shift."""
    nodes, x = list[dict[str, Any]](), "x"
    for i in range(n // 7):
        shifted = {"map": ["i0", "i1", "i2-1"], "guard": ["i2>=1"], "fill": 0}
        nodes += [
            _node(f"p{i}", "PAD", x, pad=[[0, 0], [1, 1], [1, 1]], value=0),
            _node(f"w{i}", "POOL", f"p{i}", kernel=[3, 3], stride=[1, 1], dilation=[1, 1]),
            _node(f"r{i}", "REDUCE", f"w{i}", op="MAX", axes=[3, 4], dtype="fp32"),
            _node(f"f{i}", "FLIP", f"r{i}", axes=[1]),
            _node(f"s{i}", "SHRINK", f"f{i}", lo=[0, 0, 0], hi=[4, 8, 8], step=[1, 1, 1]),
            _node(f"v{i}", "VIEW", f"s{i}", result_shape=[4, 8, 9], index_map=shifted),
            _node(f"y{i}", "ADD", f"v{i}", x),
        ]
        x = f"y{i}"
    return _graph({"x": [4, 8, 9]}, "fp32", nodes)


def read(text: str, name: str) -> Program:
    """A program that reads and verifies."""
    found = Diagnostics(Source("bench", text))
    program = load_format(name).read(found.source, found, Options())
    assert program is not None and verify(program, found) and not found.errors, list(found)[:3]
    return program


def texts(n: int) -> Iterator[tuple[str, str, str]]:
    """(what, format, text) of every program of about `n` ops."""
    source = chain(n)
    program = read(source, "ptir")
    for name, form in FORMATS.items():
        if not form.readable or form.imported or OWNERS[name].name == "pto":
            continue
        found = Diagnostics(program.source)
        made = translate(program, OWNERS[name].name, found)
        assert made is not None, list(found)[:3]
        yield name, name, "".join(load_format(name).write(made, found, Options()))
    yield "tiny, attention", "tiny", attention(n)
    yield "tiny, windows", "tiny", windows(n)
    for events in (False, True):
        yield "pto, with events" if events else "pto", "pto", pipeline(n, events)


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of processor time, and what came of it."""
    gc.collect()
    start = time.process_time()
    with collector_paused():
        result = action()
    return time.process_time() - start, result


def measured(name: str, text: str) -> dict[str, float]:
    """The seconds of each step that the format has."""
    form, found = load_format(name), Diagnostics(Source("bench", text))
    reading, program = timed(lambda: form.read(found.source, found, Options()))
    verifying, good = timed(lambda: verify(program, found))
    assert good, list(found)[:3]
    printing, _ = timed(lambda: "".join(form.write(program, found, Options())))
    seconds = {"read": reading, "verify": verifying, "print": printing}
    if form.layout is not None:
        seconds["fmt"], _ = timed(lambda: form.layout(Source("bench", text), Diagnostics()))
    if "canonicalize" in program.dialect.pipeline.split(","):
        seconds["canonicalize"], _ = timed(lambda: run_pipeline(program, "canonicalize", PassContext(verify_each=False)))
    return seconds


PEAK = """
import sys
from ptir_tools.passes import PassContext, run_pipeline
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.source import Source
from ptir_tools.core.verify import verify
from ptir_tools.dialects import load_format
form, found = load_format(sys.argv[1]), Diagnostics(Source("bench", sys.stdin.read()))
program = form.read(found.source, found, Options())
verify(program, found)
run_pipeline(program, "canonicalize", PassContext())
for piece in form.write(program, found, Options()):
    pass
print(int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024)
"""


def peaks(n: int) -> Iterator[Row]:
    """MiB at the peak, of the chain in each format that has a canonical form, next to text PTIR. Linux only."""
    ours: float | None = None
    for what, name, text in texts(n):
        if "canonicalize" in OWNERS[name].pipeline.split(",") and what == name:
            ran = subprocess.run([sys.executable, "-c", PEAK, name], input=text, capture_output=True, text=True, check=True)
            ours = float(ran.stdout) if name == "ptir" else ours
            yield f"{what}: peak memory, {n:,} ops", float(ran.stdout), ours, "MiB"


def rows() -> Iterator[Row]:
    """Microseconds per op of every step, at every size of SIZES, then the exponents."""
    found: dict[str, dict[str, list[float]]] = {}
    for n in SIZES:
        for what, name, text in texts(n):
            rounds = [measured(name, text) for _ in range(ROUNDS)]
            for step in rounds[0]:
                seconds = min(times[step] for times in rounds)
                found.setdefault(what, {}).setdefault(step, []).append(seconds)
                yield f"{what}: {step}, {n:,} ops", 1e6 * seconds / n, None, "us/op"
    for what, steps in found.items():
        for step, seconds in steps.items():
            yield f"{what}: {step}, exponent", _exponent(SIZES, seconds), None, ""
    if sys.platform == "linux":
        yield from peaks(SIZES[-1])
