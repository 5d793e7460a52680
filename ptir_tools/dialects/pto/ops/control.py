"""Control flow and synchronization: scf.for, scf.while, scf.if, func.call, pto.sync (PTO IR 5)."""

from __future__ import annotations

from collections.abc import Callable

from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import ASKS_NOTHING, Many, op
from ptir_tools.core.dtypes import I1
from ptir_tools.core.evaluate import Context, Data, run_block
from ptir_tools.core.ir import READS, WAITS, WRITES, Op, operand_type
from ptir_tools.core.ir import Region as Block
from ptir_tools.core.lazy import np
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.types import Type
from ptir_tools.core.violations import Violation, operand, require
from ptir_tools.dialects.pto import needs, rules
from ptir_tools.dialects.pto.affine import constant
from ptir_tools.dialects.pto.pipes import EVERY_PIPE, pipes_of_opcode
from ptir_tools.dialects.pto.run.machine import machine
from ptir_tools.dialects.pto.structure import SYNCALL
from ptir_tools.dialects.pto.types import ScalarType, type_text

Region = Callable[..., tuple[Data, ...]]  # what a body is given for a block
CALLS = 64  # nested at run time; calls that recurse are refused before


def for_types(lower: Type, upper: Type, step: Type, inits: tuple[Type, ...], *, body: Block) -> tuple[Type, ...]:
    """Bounds of one integer type. Carried values have the types of the block's parameters and results."""
    for i, (what, t) in enumerate((("lower bound", lower), ("upper bound", upper), ("step", step))):
        good = rules.is_index(t) or (isinstance(t, ScalarType) and t.dtype.is_integer)
        require(good, "TypeMismatch", f"the {what} is {type_text(t)}, expected index", at=operand(i))
    params = [p.type for p in body.params[1:]]
    require(len(params) == len(inits), "TypeMismatch", f"{len(inits)} values are carried, the block has {len(params)}")
    for i, (t, p) in enumerate(zip(inits, params, strict=True)):
        message = f"carried value {i} starts as {type_text(t)}, declared {type_text(p)}"
        require(p.accepts(t), "TypeMismatch", message, at=operand(3 + i))
    if not body.result_types:  # else the number of its results is compared with those
        same = len(body.results) == len(params)
        require(same, "TypeMismatch", f"scf.yield gives {len(body.results)} values, {len(params)} are carried")
    return tuple(params)


def check_step(op: Op) -> None:
    """The step is positive, where it is known."""
    step = constant(op.operands[2])
    require(step is None or step > 0, "InvalidStep", f"the step is {step}, must be positive", at=operand(2))


@op("pto.scf.for", infer=for_types, traits=READS | WRITES | WAITS, check=check_step, asks=needs.LOOP, fails=needs.step_fails)
def for_(lower: Array, upper: Array, step: Array, inits: Many, *, body: Region, context: Context) -> object:
    """`%r = scf.for %i = %lb to %ub step %s iter_args(%a = %init) -> (T) { … scf.yield %x : T }`. Zero trips give the initial
    values."""
    stride = int(step)
    if stride <= 0:
        raise Violation("InvalidStep", f"the step is {stride}, must be positive", at=operand(2))
    trips = range(int(lower), int(upper), stride)
    if len(trips) > context.limits.iterations:
        raise LimitExceeded(f"{len(trips)} iterations, the limit is {context.limits.iterations}", "--max-iterations")
    carried = tuple(inits)
    for i in trips:
        carried = body(i, *carried)
    return carried[0] if len(carried) == 1 else carried


def if_types(condition: Type, *, then: Block, otherwise: Block) -> tuple[Type, ...]:
    """An i1; both blocks give values of the declared types."""
    good = isinstance(condition, ScalarType) and condition.dtype is I1
    require(good, "TypeMismatch", f"the condition is {type_text(condition)}, expected i1")
    count = len(then.result_types)
    for name, block in (("then", then), ("else", otherwise)):
        message = f"the {name} block gives {len(block.results)} values, {count} are declared"
        require(block.result_types or len(block.results) == count, "TypeMismatch", message)
    return tuple(then.result_types)


@op("pto.scf.if", infer=if_types, traits=READS | WRITES | WAITS)
def if_(condition: object, *, then: Region, otherwise: Region) -> object:
    """`%r = scf.if %c -> (T) { … scf.yield %x : T } else { … scf.yield %y : T }`."""
    made = then() if condition else otherwise()
    return made[0] if len(made) == 1 else made


def while_types(inits: tuple[Type, ...], *, before: Block, body: Block) -> tuple[Type, ...]:
    """The first block takes the carried values and gives an i1 and the values for the second; that gives the carried values."""
    require(bool(before.results), "TypeMismatch", "the first block must end in scf.condition")
    condition, *given = [operand_type(x) for x in before.results]
    good = isinstance(condition, ScalarType) and condition.dtype is I1
    require(good, "TypeMismatch", f"the condition is {type_text(condition)}, expected i1")
    again = [operand_type(x) for x in body.results]
    pairs = (
        ("carried value", inits, before.params),
        ("value of scf.condition", given, body.params),
        ("value of scf.yield", again, before.params),
    )
    for what, types, params in pairs:
        require(len(types) == len(params), "TypeMismatch", f"{len(types)} are given as {what}, the block takes {len(params)}")
        for i, (t, p) in enumerate(zip(types, params, strict=True)):
            require(p.type.accepts(t), "TypeMismatch", f"{what} {i} is {type_text(t)}, declared {type_text(p.type)}")
    return tuple(p.type for p in body.params)


@op("pto.scf.while", infer=while_types, traits=READS | WRITES | WAITS)
def while_(inits: Many, *, before: Region, body: Region, context: Context) -> object:
    """`%r = scf.while (%a = %init) : (T) -> (U) { … scf.condition(%c) %x : U } do { ^bb0(%y: U): … scf.yield %z : T }`.

    The first block runs; while its condition is true, the second and the first run again. The results are the last values of
    the first block.
    """
    carried = tuple(inits)
    for _ in range(context.limits.iterations + 1):
        condition, *given = before(*carried)
        if not condition:
            return given[0] if len(given) == 1 else tuple(given)
        carried = body(*given)
    raise LimitExceeded(f"more than {context.limits.iterations} iterations", "--max-iterations")


def call_types(arguments: tuple[Type, ...], *, callee: str, to: tuple[Type, ...]) -> tuple[Type, ...]:
    """The declared results of the call. They are compared with the function's when the whole program is checked."""
    return to


@op("pto.func.call", infer=call_types, traits=READS | WRITES | WAITS)
def call(arguments: Many, *, callee: str, to: tuple[Type, ...] = (), context: Context) -> object:
    """`%r = func.call @f(%a, %b) : (T, T) -> (T)`. Memrefs are passed by reference. A function that uses
    FIFOs runs on a core of its own, at the same time as the other cores, when the entry has ended."""
    state = machine(context)
    if state.depth >= CALLS:
        raise LimitExceeded(f"more than {CALLS} nested calls")
    function = state.program.function(callee)
    assert function is not None
    if state.runs_apart(function):
        state.start_core(function, arguments)
        return ()
    state.depth += 1
    made = run_block(function, arguments, context)
    state.depth -= 1
    return made[0] if len(made) == 1 else made


def sync_types(wait: tuple[Type, ...]) -> tuple[Type, ...]:
    """Events only."""
    rules.need_events(wait)
    return ()


@op("pto.sync", infer=sync_types, traits=WAITS)
def sync(wait: Many, *, context: Context) -> None:
    """Wait for events before any later op: `pto.sync wait(%e) : !pto.event<…>`."""
    machine(context).wait(wait)


def sync_op_types(*, opcode: str) -> tuple[Type, ...]:
    """An opcode, ALL or SYNCALL."""
    known = opcode in EVERY_PIPE or bool(pipes_of_opcode(opcode))
    require(known, "TypeMismatch", f"`{opcode}` is not an opcode", at=opcode)
    return ()


@op("pto.sync.op", infer=sync_op_types, traits=WAITS)
def sync_op(*, opcode: str, context: Context) -> None:
    """A barrier: all issued ops on the pipe of an opcode complete, or with ALL those of every pipe:
    `pto.sync.op #pto.op<TADD>`. With SYNCALL (extension) those of every core of the launch."""
    for pipe in (None,) if opcode in EVERY_PIPE else pipes_of_opcode(opcode):
        machine(context).drain(pipe)
    if opcode == SYNCALL:
        machine(context).meet()


@op("pto.block_idx", infer=rules.core_number, traits=READS, asks=ASKS_NOTHING)
def block_idx(*, to: ScalarType, context: Context) -> Array:
    """Which core of the launch runs, from 0 to `pto.block_dim` - 1: `%b = pto.block_idx : i64`. Extension."""
    return np.asarray(machine(context).block, np.int64)
