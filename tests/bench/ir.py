"""Reading, verifying, printing and optimizing generated programs of up to a million ops, in microseconds of processor time
per op, against xdsl and MLIR (jaxlib's bindings) on the same dataflow.

A peer is looked for in this environment, then in the interpreter that XDSL_PYTHON or MLIR_PYTHON names. Each measurement is a
process of its own; another program goes first, so that what is loaded and compiled once does not count, and small programs are
measured ten thousand ops together. `exponent` is that of the fit of time over size.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import fmean, median

from tests.bench._ir_programs import PATHOLOGICAL, Line, as_arith, as_ptir, mixed

WARM = 5_000  # ops of the program that goes first
TOGETHER = 10_000  # ops that are measured at least
SIZES = (1_000, 10_000, 100_000, 1_000_000)
PEER_LIMITS = {"xdsl": 10_000, "mlir": 100_000}  # ops that a peer is given at most: it takes long, or memory
PATHOLOGICAL_SIZES = (1_000, 10_000, 100_000)
Row = tuple[str, float, float | None, str]
STEPS = ("read", "verify", "print", "canonicalize,cse,dce")

TIMED = """
import json, sys, time
warm, texts = json.load(sys.stdin)
def timed(action):
    start = time.process_time()
    result = action()
    return time.process_time() - start, result
def mean(rounds):
    return [sum(column) / len(rounds) for column in zip(*rounds)]
"""
OURS = """
import resource
from pathlib import Path
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.source import Source
from ptir_tools.core.verify import verify
from ptir_tools.dialects import load_format
from ptir_tools.passes import PassContext, run_pipeline
form, found = load_format("ptir"), Diagnostics()
def measure(text, pipeline, each):
    read, program = timed(lambda: form.read(Source("bench", text), found, Options()))
    verified, ok = timed(lambda: verify(program, found))
    assert ok, list(found)[:3]
    printed, _ = timed(lambda: "".join(form.write(program, found, Options())))
    passes, _ = timed(lambda: run_pipeline(program, pipeline, PassContext(verify_each=each)))
    return [read, verified, printed, passes]
measure(warm, "canonicalize,cse,dce", False)
def measure_all(pipeline, each):
    return mean([measure(text, pipeline, each) for text in texts])
times = measure_all("canonicalize,cse,dce", False)
status = Path("/proc/self/status")  # Linux; elsewhere the peak of the parent counts, too
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
if status.exists():
    peak = int(status.read_text().split("VmHWM:")[1].split()[0]) / 1024
more = [measure_all(p, each)[3] for p, each in [("canonicalize,cse,dce", True), ("fixpoint(canonicalize,cse,dce)", False)]]
print(json.dumps([*times, peak, *more]))
"""
XDSL = """
from io import StringIO
from xdsl.context import Context
from xdsl.dialects.arith import Arith
from xdsl.dialects.builtin import Builtin
from xdsl.dialects.func import Func
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.transforms.canonicalize import CanonicalizePass
from xdsl.transforms.common_subexpression_elimination import CommonSubexpressionElimination
from xdsl.transforms.dead_code_elimination import DeadCodeElimination
context = Context()
for dialect in (Arith, Builtin, Func):
    context.load_dialect(dialect)
def measure(text):
    read, module = timed(lambda: Parser(context, text).parse_module())
    verified, _ = timed(module.verify)
    printed, _ = timed(lambda: Printer(StringIO()).print_op(module))
    passes = [CanonicalizePass(), CommonSubexpressionElimination(), DeadCodeElimination()]
    return [read, verified, printed, timed(lambda: [p.apply(context, module) for p in passes])[0]]
measure(warm)
print(json.dumps(mean([measure(text) for text in texts])))
"""
MLIR = """
import jax._src.interpreters.mlir as mlir
import jaxlib.mlir.ir as ir
from jaxlib.mlir.passmanager import PassManager
def measure(text):
    read, module = timed(lambda: ir.Module.parse(text))
    verified, _ = timed(module.operation.verify)
    printed, _ = timed(lambda: str(module))
    passes = PassManager.parse("builtin.module(canonicalize,cse,remove-dead-values)")
    passes.enable_verifier(False)
    return [read, verified, printed, timed(lambda: passes.run(module.operation))[0]]
with mlir.make_ir_context():
    measure(warm)
    print(json.dumps(mean([measure(text) for text in texts])))
"""
PEERS = {"xdsl": ("xdsl", XDSL), "mlir": ("jaxlib", MLIR)}


def _python(peer: str) -> str | None:
    """The interpreter that has the peer."""
    for python in (sys.executable, os.environ.get(f"{peer.upper()}_PYTHON")):
        if python and not subprocess.run([python, "-c", f"import {PEERS[peer][0]}"], capture_output=True).returncode:
            return python
    return None


def _measure(python: str, code: str, warm: str, texts: Sequence[str]) -> list[float]:
    """Seconds of each step for one of `texts`."""
    given = json.dumps([warm, texts])
    ran = subprocess.run([python, "-P", "-c", TIMED + code], input=given, capture_output=True, text=True, check=True)
    found: list[float] = json.loads(ran.stdout)
    return found


def _programs(n: int, kind: str, write: Callable[[list[Line]], str]) -> list[str]:
    """Different programs of `n` ops."""
    return [write(mixed(n, kind, number)) for number in range(max(TOGETHER // n, 1))]


def _exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """The slope of the line of least squares through log time over log size."""
    xs, ys = [math.log(n) for n in sizes], [math.log(s) for s in seconds]
    mx, my = fmean(xs), fmean(ys)
    return sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True)) / sum((x - mx) ** 2 for x in xs)


def _medians(rounds: Sequence[Sequence[float]]) -> list[float]:
    return [median(column) for column in zip(*rounds, strict=True)]


def _against(n: int, pythons: dict[str, str]) -> dict[str, list[float]]:
    """Microseconds per op of the peers at `n` ops, or as many as each is given."""
    found = {}
    for peer, python in pythons.items():
        m = min(n, PEER_LIMITS[peer])
        seconds = _measure(python, PEERS[peer][1], as_arith(mixed(WARM, "si32")), _programs(m, "si32", as_arith))
        found[peer] = [s / m * 1e6 for s in seconds]
    return found


def rows() -> Iterator[Row]:
    """The table: per size and step, once per peer; then exponents, peak memory, and what a rewriter must not choke on."""
    pythons = {peer: python for peer in PEERS if (python := _python(peer)) is not None}
    for kind in ("si32", "f32"):
        seconds = []
        for n in SIZES:
            warm, texts = as_ptir(mixed(WARM, kind), kind), _programs(n, kind, partial(as_ptir, kind=kind))
            rounds, theirs = [], []
            for _ in range(3 if n <= 100_000 else 1):  # interleaved
                rounds.append(_measure(sys.executable, OURS, warm, texts))
                theirs.append(_against(n, pythons) if kind == "si32" else {})
            *ours, peak, each, fixpoint = _medians(rounds)
            seconds.append(ours[3])
            yield from _steps(f"{kind} {n} ops", ours, n, {p: _medians([t[p] for t in theirs]) for p in theirs[0]})
            yield f"{kind} {n} ops: the passes, verified each", each / n * 1e6, None, "us/op"
            yield f"{kind} {n} ops: fixpoint(canonicalize,cse,dce)", fixpoint / n * 1e6, None, "us/op"
            yield f"{kind} {n} ops: peak memory", peak, None, "MiB"
        yield f"{kind}: exponent of the passes", _exponent(SIZES, seconds), None, ""
    yield from _pathological()


def _steps(what: str, ours: Sequence[float], n: int, theirs: dict[str, list[float]]) -> Iterator[Row]:
    for i, step in enumerate(STEPS):
        for peer in theirs or ("",):
            found = theirs[peer][i] if peer else None
            yield f"{what}: {step}{f' | {peer}' if peer else ''}", ours[i] / n * 1e6, found, "us/op"


def _pathological() -> Iterator[Row]:
    for name, make in PATHOLOGICAL.items():
        seconds = [_measure(sys.executable, OURS, make(WARM), [make(n)])[3] for n in PATHOLOGICAL_SIZES]
        for n, s in zip(PATHOLOGICAL_SIZES, seconds, strict=True):
            yield f"{name} {n}: the passes", s / n * 1e6, None, "us/op"
        yield f"{name}: exponent", _exponent(PATHOLOGICAL_SIZES, seconds), None, ""
