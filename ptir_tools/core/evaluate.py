"""The one evaluator: an op's declared body, with its regions as callables. Folding and the reference engine both use it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from ptir_tools.core import arrays
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.ir import Attribute, Element, Literal, Op, Operand, Region, Value
from ptir_tools.core.limits import LimitExceeded, Limits, current
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.typed import Any
from ptir_tools.core.violations import Violation

# A run-time value: an array, a Python tuple for a tuple type, or an object of a dialect's executor.
Data = Any
Env = dict[Value, Data]


@dataclass(slots=True)
class Context:
    """The context of bodies, besides their operands. `indices` are the iteration numbers of the enclosing loops, outer first;
    `streams` numbers the random ops of a program; `state` belongs to the dialect's executor. `observe` sees every op; `timer`
    gets the ops that ran as one step with its start and end. `diagnostics` gets errors that do not end the run. No op begins
    later than `timeout` seconds after `start`."""

    seed: int = 0
    indices: tuple[int, ...] = ()
    limits: Limits = field(default_factory=current)
    timeout: float | None = None
    deadline: float = math.inf
    streams: dict[Op, int] = field(default_factory=dict)
    state: Data = None
    observe: Callable[[Op, tuple[Data, ...]], None] | None = None
    timer: Callable[[Sequence[Op], float, float], None] | None = None
    op: Op | None = None  # the op being evaluated
    env: Env = field(default_factory=dict)  # the data of the values in scope
    diagnostics: Diagnostics | None = None
    failed: Op | None = None  # the innermost op whose body raised
    ends: dict[Region, dict[int, list[Value]]] = field(default_factory=dict)  # per block: values last used by op i

    def start(self) -> None:
        """Start the clock."""
        if self.timeout is not None:
            self.deadline = time.monotonic() + self.timeout

    def check_time(self) -> None:
        """Raise LimitExceeded if the time limit has passed."""
        if self.deadline < math.inf and time.monotonic() > self.deadline:
            raise LimitExceeded(f"stopped after {self.timeout} s", "--timeout")


def read(x: Operand, env: Env) -> Data:
    """The data of an operand."""
    if isinstance(x, Value):
        return env[x]
    if isinstance(x, Element):
        return env[x.value][x.index]
    if isinstance(x, Literal):
        return arrays.from_literal(x)
    raise TypeError(x)


def evaluate(op: Op, operands: Sequence[Data], context: Context, env: Env | None = None) -> tuple[Data, ...]:
    """The results of `op` on `operands`, one array (or other data) per operand. `env` is what its regions may capture.

    Raises Violation for what the contract calls an error at run time; `context.failed` is then the op that did.
    """
    before, context.env = context.env, env if env is not None else {}
    try:
        return apply(op, operands, keywords(op, context, lambda region: _callable(region, context, env)), context)
    finally:
        context.env = before


def keywords(op: Op, context: Context, call: Callable[[Region], Callable[..., tuple[Data, ...]]]) -> dict[str, Attribute]:
    """The keyword arguments for the body of `op`: attributes, regions as `call` makes them callable, context and result types."""
    d = op.defn
    named = d.named(op.attrs)
    for name, region in zip(d.regions, op.regions, strict=True):
        named[name] = call(region)
    for name, wanted in d.wants.items():
        types = op.results[0].type if len(op.results) == 1 else tuple(v.type for v in op.results)
        named[name] = context if wanted == "Context" else types
    return named


def apply(op: Op, operands: Sequence[Data], named: dict[str, object], context: Context) -> tuple[Data, ...]:
    """The results of the body of `op` with these `keywords`. Raises like `evaluate`."""
    context.check_time()
    d = op.defn
    before, context.op = context.op, op
    start = time.perf_counter() if context.timer is not None else 0.0
    try:
        answer = d.body(*d.split(op.attrs, operands), **named)
    except (Violation, LimitExceeded):
        context.failed = context.failed or op
        raise
    finally:
        context.op = before
    results = answer if len(op.results) != 1 else (answer,)
    results = () if results is None else results
    if context.timer is not None:
        context.timer((op,), start, time.perf_counter())
    if context.observe is not None:
        context.observe(op, results)
    return results


def computed(op: Op, operands: Sequence[Data], context: Context) -> Data | None:
    """The result of `op` on constants, computed before the program runs. None for an op that fails or exceeds the limits, and
    if its declaration (`safe`) excludes these constants."""
    try:
        if op.defn.safe is not None and not op.defn.safe(op, operands):
            return None
        (result,) = evaluate(op, operands, context)
    except (Violation, LimitExceeded):
        return None
    return result


def _callable(region: Region, context: Context, env: Env | None) -> Callable[..., tuple[Data, ...]]:
    def call(*arguments: Data) -> tuple[Data, ...]:
        return run_block(region, arguments, context, None if region.isolated else env)

    return call


def run_block(block: Region, arguments: Sequence[Data], context: Context, env: Env | None = None) -> tuple[Data, ...]:
    """The results of `block` on `arguments`. A value's data is dropped after its last use when the block is isolated."""
    context.check_time()
    local: Env = {} if env is None else dict(env)
    local.update(zip(block.params, arguments, strict=True))
    if (last := context.ends.get(block)) is None:
        context.ends[block] = last = last_uses(block) if env is None else {}
    for i, op in enumerate(block.body):
        results = evaluate(op, [read(x, local) for x in op.operands], context, local)
        local.update(zip(op.results, results, strict=True))
        for v in last.get(i, ()):
            local.pop(v, None)
    return tuple(read(x, local) for x in block.results)


def last_uses(block: Region) -> dict[int, list[Value]]:
    """Per op of `block`, by its place: the values that nothing after it uses."""
    last: dict[Value, int] = {}
    for i, op in enumerate(block.body):
        for v in (*op.values(), *op.results):
            last[v] = i
        for r in op.regions:
            if not r.isolated:
                last.update(dict.fromkeys(r.uses(), i))
    for x in block.results:
        if not isinstance(x, Literal):
            last.pop(x if isinstance(x, Value) else x.value, None)
    ends: dict[int, list[Value]] = {}
    for v, i in last.items():
        ends.setdefault(i, []).append(v)
    return ends
