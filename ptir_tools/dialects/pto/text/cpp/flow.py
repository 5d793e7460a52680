"""Blocks in C++: ops with their flags, loops, branches and calls."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core.ir import Function, Op, Operand, Region, Value, operand_type
from ptir_tools.dialects.pto.fifos import CUBE, VECTOR, users
from ptir_tools.dialects.pto.order.signals import BARRIER, SET, Signal
from ptir_tools.dialects.pto.pipes import is_tile_op
from ptir_tools.dialects.pto.structure import is_view, meets
from ptir_tools.dialects.pto.targets import A3, Target
from ptir_tools.dialects.pto.text.addresses import addresses_first
from ptir_tools.dialects.pto.text.cpp import fifos, memory
from ptir_tools.dialects.pto.text.cpp.instructions import instruction
from ptir_tools.dialects.pto.text.cpp.kernel import Kernel
from ptir_tools.dialects.pto.text.cpp.scalars import expression
from ptir_tools.dialects.pto.text.cpp.spelling import function_name, literal, value_type
from ptir_tools.dialects.pto.text.fifos import fenced, splits, used
from ptir_tools.dialects.pto.text.kernel import STEP
from ptir_tools.dialects.pto.types import EventType, MemRefType, TileType


def heading(kernel: Kernel, is_kernel: bool) -> str:
    """The declaration of a function."""
    parts = [part for p in kernel.function.params for part in parameters(kernel, p)]
    parts += [f"{t}{name}" for t, name in slots(kernel)] + [f"__gm__ uint64_t *{kernel.base}"] * bool(kernel.base)
    return f"{'__global__ ' if is_kernel else ''}AICORE void {function_name(kernel.function)}({', '.join(parts)})"


def parameters(kernel: Kernel, p: Value) -> list[str]:
    """The C++ parameters for a parameter: it, and the extents of memory that are not in its type."""
    kernel.carry(p)
    return list(memory.parameter(kernel, p)) if isinstance(p.type, MemRefType) else [f"{_type(kernel, p)}{kernel.name(p)}"]


def slots(kernel: Kernel) -> list[tuple[str, str]]:
    """The C++ parameters for memory of FIFOs, each as its type and name. Only a3 has FIFOs in memory."""
    return [("__gm__ uint8_t *", name) for name in kernel.slots.values()]


def body(kernel: Kernel) -> list[str]:
    """The lines of a function. Where tiles are not split, one vector core does nothing."""
    if kernel.base:
        kernel.line(f"set_ffts_base_addr((uint64_t){kernel.base});")
    if kernel.signals.cores == (VECTOR,) and kernel.fifos and not splits(kernel.program):
        kernel.line("if (get_subblockid() != 0) return;")
    _block(kernel, kernel.function)
    kernel.part()
    return kernel.lines


def _block(kernel: Kernel, block: Region) -> None:
    for x in kernel.signals.along(block, addresses_first(block)):
        if isinstance(x, Signal):
            kernel.line(_flag(x, kernel.target), x.core)
        else:
            _op(kernel, x)


def _op(kernel: Kernel, op: Op) -> None:
    short = op.defn.short
    if (flow := _FLOW.get(short)) is not None:
        flow(kernel, op)
    elif is_view(op):
        kernel.line(memory.view(kernel, op))
    elif is_tile_op(op.defn):
        lines, calls = instruction(kernel, op)
        for line in lines:
            kernel.line(line)
        for line in calls:
            kernel.line(line, kernel.signals.units[op].core)
    elif op.results and isinstance(op.result.type, TileType):
        for line in kernel.declared(op.result, op):  # undefined elements
            kernel.line(line)
    elif op.results:
        made = literal(op.attr("value")) if op.defn.is_constant else expression(kernel, op)
        kernel.line(f"const {value_type(op.result.type)}{kernel.name(op.result)} = {made};")


def _flag(s: Signal, target: Target) -> str:
    """One flag or barrier. Each target has its own instructions between the cores."""
    source, waiting = f"PIPE_{s.source.pipe}", f"PIPE_{s.target.pipe}"
    if s.kind == BARRIER:
        return f"{s.kind}({source});"
    if not s.inter:
        return f"{s.kind}({source}, {waiting}, EVENT_ID{s.eid});"
    if target is A3:
        message = f"getFFTSMsg(FFTS_MODE_VAL, {s.eid})"
        return f"ffts_cross_core_sync({source}, {message});" if s.kind == SET else f"wait_flag_dev({s.eid});"
    return f"set_intra_block({source}, {s.eid});" if s.kind == SET else f"wait_intra_block({waiting}, {s.eid});"


# Control flow


def _inner(kernel: Kernel, block: Region, to: Sequence[Value]) -> None:
    """The lines of a nested block, with the assignments of its results."""
    kernel.depth += 1
    outer = dict(kernel.named)
    _block(kernel, block)
    _assign(kernel, to, block.results)
    kernel.named = outer
    kernel.depth -= 1


def _loop(kernel: Kernel, op: Op) -> None:
    """`for`; the values that it carries are declared before it."""
    lower, upper, step, *inits = op.operands
    block = op.regions[0]
    counter, *carried = block.params
    _start(kernel, carried, inits, op)
    t, i = value_type(counter.type), kernel.name(counter)
    test = f"{t}{i} = {kernel.scalar(lower)}; {i} < {kernel.scalar(upper)}; {i} += {kernel.scalar(step)}"
    kernel.line(f"for ({test}) {{")
    _inner(kernel, block, carried)
    kernel.line("}")
    _start(kernel, op.results, carried, op)


def _branch(kernel: Kernel, op: Op) -> None:
    """`if`; its results are declared before it."""
    _open(kernel, op.results)
    kernel.line(f"if ({kernel.scalar(op.operands[0])}) {{")
    for k, r in enumerate(op.regions):
        if k and (r.body or r.results or r in kernel.signals.ends):
            kernel.line("} else {")
        _inner(kernel, r, op.results)
    kernel.line("}")


def _repeat(kernel: Kernel, op: Op) -> None:
    """`while (true)` with a break after its first block."""
    before, after = op.regions
    condition, *given = before.results
    _start(kernel, before.params, op.operands, op)
    _open(kernel, op.results)
    kernel.line("while (true) {")
    outer = dict(kernel.named)
    kernel.depth += 1
    _block(kernel, before)
    _assign(kernel, op.results, given)
    kernel.line(f"if (!{kernel.scalar(condition)}) {{")
    kernel.line(f"{STEP}break;")
    kernel.line("}")
    _start(kernel, after.params, given, op)
    _block(kernel, after)
    _assign(kernel, before.params, after.results)
    kernel.named = outer
    kernel.depth -= 1
    kernel.line("}")


def _invoke(kernel: Kernel, op: Op) -> None:
    """A call. Extents that are not in the type of a memref are arguments, too."""
    callee = kernel.program.function(op.attr("callee"))
    assert isinstance(callee, Function)
    given = []
    for p, x in zip(callee.params, op.operands, strict=True):
        if not isinstance(p.type, MemRefType):
            given.append(kernel.scalar(x))
            continue
        found, view = memory.window(kernel, x, op.loc), operand_type(x)
        given.append(found.pointer)
        given += [kernel.text(n) for n, d in zip(found.extents, p.type.shape, strict=False) if not isinstance(d, int)]
        if p.type.strides is None and isinstance(view, MemRefType) and view.strides is not None:
            kernel.refuse("a view is passed as memory without strides", op.loc)
    given += [kernel.slots[name] for name in used(kernel.program, callee) if name in kernel.slots]
    kernel.line(f"{function_name(callee)}({', '.join(given)});", users(kernel.program).get(callee.name, ""))


def _barrier(kernel: Kernel, op: Op) -> None:
    """A barrier of pipes is its flags; one of all cores is behind them."""
    if meets(op):
        kernel.line(f"SYNCALL<SyncCoreType::{_CORES[kernel.signals.cores]}>();")


def _opened(kernel: Kernel, op: Op) -> None:
    """A FIFO is a pipe of the library."""
    name = op.attr("fifo")
    kernel.line(fifos.opening(kernel.fifos[name], kernel.slots.get(name, ""), kernel.pipes[name], kernel.target))


def _freed(kernel: Kernel, op: Op) -> None:
    """The slot of a tile, after all that read it."""
    name = op.attr("fifo")
    if kernel.target is not A3 and fenced(kernel.function, name, kernel.pipes[name]):
        kernel.line(f"{BARRIER}(PIPE_ALL);")
    kernel.line(fifos.freeing(kernel.fifos[name], op, kernel.function))


_CORES = {(VECTOR,): "AIVOnly", (CUBE,): "AICOnly", (CUBE, VECTOR): "Mix", (VECTOR, CUBE): "Mix"}
_FLOW = {"sync.op": _barrier, "scf.for": _loop, "scf.if": _branch, "scf.while": _repeat, "func.call": _invoke,
         "fifo.open": _opened, "fifo.free": _freed}  # fmt: skip


# Variables


def _type(kernel: Kernel, v: Value) -> str:
    return f"{kernel.tile(v)} " if isinstance(v.type, TileType) else value_type(v.type)


def _start(kernel: Kernel, to: Sequence[Value], values: Sequence[Operand], op: Op) -> None:
    """Declare variables with values."""
    for v, x in zip(to, values, strict=True):
        if isinstance(v.type, MemRefType):
            kernel.refuse("memory that a loop carries has no strides in C++", op.loc)
        elif not isinstance(v.type, EventType):
            given = kernel.scalar(x)
            kernel.line(f"{_type(kernel, v)}{kernel.name(v)} = {given};")
            kernel.carry(v)


def _open(kernel: Kernel, to: Sequence[Value]) -> None:
    """Declare variables without values."""
    for v in to:
        if not isinstance(v.type, EventType):
            size = "(1, 1)" if isinstance(v.type, TileType) else ""
            kernel.line(f"{_type(kernel, v)}{kernel.name(v)}{size};")
            kernel.carry(v)


def _assign(kernel: Kernel, to: Sequence[Value], values: Sequence[Operand]) -> None:
    """Assign to variables, all at once."""
    pairs = [(v, x) for v, x in zip(to, values, strict=True) if v is not x and not isinstance(v.type, EventType)]
    names = {kernel.name(v) for v, _ in pairs}
    given = [kernel.scalar(x) for _, x in pairs]
    if len(pairs) > 1 and not names.isdisjoint(given):
        for k, (v, _) in enumerate(pairs):
            name = kernel.fresh(f"{kernel.name(v)}_next")
            kernel.line(f"{_type(kernel, v)}{name} = {given[k]};")
            given[k] = name
    for (v, _), x in zip(pairs, given, strict=True):
        kernel.line(f"{kernel.name(v)} = {x};")
