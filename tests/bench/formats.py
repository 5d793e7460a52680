"""Reading, verifying and printing programs of every format, in microseconds of processor time per op (the least of ROUNDS).

One chain of elementwise ops in each of the formats that can say it; for PTO a pipeline of loads, sums and stores, with events
and without. `exponent` is that of the fit of time over size.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

from ptir_tools.convert import translate
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.ir import Program, collector_paused
from ptir_tools.core.source import Source
from ptir_tools.core.verify import verify
from ptir_tools.dialects import FORMATS, OWNERS, load_format
from tests.bench.ir import Row, _exponent

SIZES = (1_000, 10_000, 100_000)
ROUNDS = 3
STEPS = ("read", "verify", "print")
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
    for events in (False, True):
        yield "pto, with events" if events else "pto", "pto", pipeline(n, events)


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of processor time, and what came of it."""
    gc.collect()
    start = time.process_time()
    with collector_paused():
        result = action()
    return time.process_time() - start, result


def measured(name: str, text: str) -> list[float]:
    """The seconds that each of STEPS takes."""
    form, found = load_format(name), Diagnostics(Source("bench", text))
    reading, program = timed(lambda: form.read(found.source, found, Options()))
    verifying, good = timed(lambda: verify(program, found))
    assert good, list(found)[:3]
    printing, _ = timed(lambda: "".join(form.write(program, found, Options())))
    return [reading, verifying, printing]


def rows() -> Iterator[Row]:
    """Microseconds per op of every step, at every size of SIZES, then the exponents."""
    found: dict[str, dict[str, list[float]]] = {}
    for n in SIZES:
        for what, name, text in texts(n):
            best = [min(times) for times in zip(*(measured(name, text) for _ in range(ROUNDS)), strict=True)]
            for step, seconds in zip(STEPS, best, strict=True):
                found.setdefault(what, {}).setdefault(step, []).append(seconds)
                yield f"{what}: {step}, {n:,} ops", 1e6 * seconds / n, None, "us/op"
    for what, steps in found.items():
        for step, seconds in steps.items():
            yield f"{what}: {step}, exponent", _exponent(SIZES, seconds), None, ""
