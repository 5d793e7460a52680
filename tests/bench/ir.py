"""Reading, verifying, printing and optimizing 10k and 100k ops, in microseconds of CPU per op, against xdsl
on the same dataflow."""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from statistics import median

SIZES = (10_000, 100_000)
PEER_LIMIT = 20_000  # ops that xdsl is given at most: its time per op does not change after that
ROUNDS = 3
STEPS = ("read", "verify", "print", "canonicalize,cse,dce")

OURS = """
import json, resource, sys, time
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.source import Source
from ptir_tools.core.verify import verify
from ptir_tools.dialects import load_format
from ptir_tools.passes import PassContext, run_pipeline
text, found = Source("bench", sys.stdin.read()), Diagnostics()
form = load_format("ptir")
def timed(action):
    start = time.process_time()
    result = action()
    return time.process_time() - start, result
read, program = timed(lambda: form.read(text, found, Options()))
verified, ok = timed(lambda: verify(program, found))
assert ok, list(found)[:3]
printed, _ = timed(lambda: "".join(form.write(program, found, Options())))
passes, _ = timed(lambda: run_pipeline(program, "canonicalize,cse,dce", PassContext(verify_each=False)))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([read, verified, printed, passes, peak]))
"""
PEER = """
import json, sys, time
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
text = sys.stdin.read()
def timed(action):
    start = time.process_time()
    result = action()
    return time.process_time() - start, result
read, module = timed(lambda: Parser(context, text).parse_module())
verified, _ = timed(module.verify)
printed, _ = timed(lambda: Printer(StringIO()).print_op(module))
passes = [CanonicalizePass(), CommonSubexpressionElimination(), DeadCodeElimination()]
passes, _ = timed(lambda: [p.apply(context, module) for p in passes])
print(json.dumps([read, verified, printed, passes]))
"""


def dataflow(n: int) -> list[tuple[str, int, int]]:
    """`n` binary ops (kind, operand, operand), operands as numbers of earlier values: some twice, some dead, most live."""
    draw, found = random.Random(n), []
    for i in range(n):
        if i > 10 and draw.random() < 0.1:
            found.append(found[-1])
        else:
            found.append((draw.choice(["add", "mul", "sub"]), draw.randrange(max(0, i - 50), i + 1), i))
    return found


def as_ptir(ops: list[tuple[str, int, int]]) -> str:
    """The dataflow as text PTIR over si32 scalars' next of kin: tensors of 8."""
    t = "tensor<si32, 8>"
    body = (f"  %v{i + 1} = {kind}(%v{a}, %v{b}) -> {t}\n" for i, (kind, a, b) in enumerate(ops))
    return f"func @f(%v0: {t}) -> {t} {{\n{''.join(body)}  return %v{len(ops)}\n}}\n"


def as_arith(ops: list[tuple[str, int, int]]) -> str:
    """The same in MLIR's `arith`."""
    body = (f"  %v{i + 1} = arith.{kind}i %v{a}, %v{b} : i32\n" for i, (kind, a, b) in enumerate(ops))
    return f"func.func @f(%v0: i32) -> i32 {{\n{''.join(body)}  func.return %v{len(ops)} : i32\n}}\n"


def _measure(code: str, text: str) -> list[float]:
    ran = subprocess.run([sys.executable, "-P", "-c", code], input=text, capture_output=True, text=True, check=True)
    found: list[float] = json.loads(ran.stdout)
    return found


def rows() -> Iterator[tuple[str, float, float | None, str]]:
    """The table, with the peak memory of our process."""
    has_peer = importlib.util.find_spec("xdsl") is not None
    for n in SIZES:
        m = min(n, PEER_LIMIT)
        mine, other = as_ptir(dataflow(n)), as_arith(dataflow(m))
        rounds = [(_measure(OURS, mine), _measure(PEER, other) if has_peer else []) for _ in range(ROUNDS)]
        *ours, peak = (median(column) for column in zip(*(a for a, _ in rounds), strict=True))
        theirs = [median(c) / m * 1e6 for c in zip(*(b for _, b in rounds), strict=True)] or [None] * len(STEPS)
        for step, seconds, peer in zip(STEPS, ours, theirs, strict=True):
            yield f"{n} ops: {step}", seconds / n * 1e6, peer, "us/op"
        yield f"{n} ops: peak memory", peak, None, "MiB"
