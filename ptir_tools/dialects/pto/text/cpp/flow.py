"""Blocks in C++: ops with their flags, loops, branches and calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ptir_tools.core.ir import Function, Op, Operand, Region, Value, operand_type
from ptir_tools.dialects.pto.order.signals import BARRIER, CUBE, SET, Signal
from ptir_tools.dialects.pto.pipes import is_tile_op
from ptir_tools.dialects.pto.structure import is_view
from ptir_tools.dialects.pto.targets import A3, Target
from ptir_tools.dialects.pto.text.addresses import addresses_first
from ptir_tools.dialects.pto.text.cpp import memory
from ptir_tools.dialects.pto.text.cpp.instructions import instruction
from ptir_tools.dialects.pto.text.cpp.kernel import Kernel
from ptir_tools.dialects.pto.text.cpp.scalars import expression
from ptir_tools.dialects.pto.text.cpp.spelling import function_name, literal, value_type
from ptir_tools.dialects.pto.types import EventType, MemRefType, TileType

STEP = "  "


def heading(kernel: Kernel, is_kernel: bool) -> str:
    """The declaration of a function."""
    parts: list[str] = []
    for p in kernel.function.params:
        parts += memory.parameter(kernel, p) if isinstance(p.type, MemRefType) else [f"{_type(kernel, p)}{kernel.name(p)}"]
        kernel.carry(p)
    return f"{'__global__ ' if is_kernel else ''}AICORE void {function_name(kernel.function)}({', '.join(parts)})"


def body(kernel: Kernel) -> Iterator[str]:
    """The lines of a function."""
    return _merged(_block(kernel, kernel.function))


def _line(kernel: Kernel, text: str) -> str:
    return f"{STEP * kernel.depth}{text}\n"


def _block(kernel: Kernel, block: Region) -> Iterator[str]:
    for op in addresses_first(block):
        yield from _flags(kernel, kernel.signals.before.get(op))
        yield from _op(kernel, op)
        yield from _flags(kernel, kernel.signals.behind.get(op))
    yield from _flags(kernel, kernel.signals.ends.get(block))


def _op(kernel: Kernel, op: Op) -> Iterator[str]:
    short = op.defn.short
    if (flow := _FLOW.get(short)) is not None:
        yield from flow(kernel, op)
    elif is_view(op):
        yield _line(kernel, memory.view(kernel, op))
    elif is_tile_op(op.defn):
        lines, calls = instruction(kernel, op)
        yield from (_line(kernel, line) for line in lines)
        yield from _on(kernel, kernel.signals.units[op].core, calls)
    elif op.results:
        made = literal(op.attr("value")) if op.defn.is_constant else expression(kernel, op)
        yield _line(kernel, f"const {value_type(op.result.type)}{kernel.name(op.result)} = {made};")


# Flags and cores


def _flags(kernel: Kernel, found: Sequence[Signal] | None) -> Iterator[str]:
    for s in found or ():
        core = s.source.core if s.kind in (SET, BARRIER) else s.target.core
        yield from _on(kernel, core, [_flag(s, kernel.target)])


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


def _on(kernel: Kernel, core: str, lines: Sequence[str]) -> Iterator[str]:
    """Lines for one core."""
    mixed = len(kernel.signals.cores) > 1
    if mixed:
        yield f"#if defined({'__DAV_CUBE__' if core == CUBE else '__DAV_VEC__'})\n"
    yield from (_line(kernel, line) for line in lines)
    if mixed:
        yield "#endif\n"


def _merged(lines: Iterator[str]) -> Iterator[str]:
    """Lines, with adjacent parts for one core as one."""
    core, open_, inside = "", False, False
    for line in lines:
        if line.startswith("#if"):
            if open_ and line != core:
                yield "#endif\n"
            if not open_ or line != core:
                yield line
            core, open_, inside = line, True, True
        elif line == "#endif\n":
            inside = False
        else:
            if open_ and not inside:
                yield "#endif\n"
                open_ = False
            yield line
    if open_:
        yield "#endif\n"


# Control flow


def _inner(kernel: Kernel, *parts: Iterator[str]) -> Iterator[str]:
    """Lines that are indented once more. Their generators read the depth."""
    kernel.depth += 1
    for part in parts:
        yield from part
    kernel.depth -= 1


def _loop(kernel: Kernel, op: Op) -> Iterator[str]:
    """`for`; the values that it carries are declared before it."""
    lower, upper, step, *inits = op.operands
    block = op.regions[0]
    counter, *carried = block.params
    yield from _start(kernel, carried, inits, op)
    t, i = value_type(counter.type), kernel.name(counter)
    test = f"{t}{i} = {kernel.scalar(lower)}; {i} < {kernel.scalar(upper)}; {i} += {kernel.scalar(step)}"
    yield _line(kernel, f"for ({test}) {{")
    yield from _inner(kernel, _block(kernel, block), _assign(kernel, carried, block.results))
    yield _line(kernel, "}")
    yield from _start(kernel, op.results, carried, op)


def _branch(kernel: Kernel, op: Op) -> Iterator[str]:
    """`if`; its results are declared before it."""
    yield from _open(kernel, op.results)
    yield _line(kernel, f"if ({kernel.scalar(op.operands[0])}) {{")
    for k, r in enumerate(op.regions):
        if k and (r.body or r.results or r in kernel.signals.ends):
            yield _line(kernel, "} else {")
        yield from _inner(kernel, _block(kernel, r), _assign(kernel, op.results, r.results))
    yield _line(kernel, "}")


def _repeat(kernel: Kernel, op: Op) -> Iterator[str]:
    """`while (true)` with a break after its first block."""
    before, after = op.regions
    condition, *given = before.results

    def lines() -> Iterator[str]:
        yield from _block(kernel, before)
        yield from _assign(kernel, op.results, given)
        yield _line(kernel, f"if (!{kernel.scalar(condition)}) {{")
        yield _line(kernel, f"{STEP}break;")
        yield _line(kernel, "}")
        yield from _start(kernel, after.params, given, op)
        yield from _block(kernel, after)
        yield from _assign(kernel, before.params, after.results)

    yield from _start(kernel, before.params, op.operands, op)
    yield from _open(kernel, op.results)
    yield _line(kernel, "while (true) {")
    yield from _inner(kernel, lines())
    yield _line(kernel, "}")


def _invoke(kernel: Kernel, op: Op) -> Iterator[str]:
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
    yield _line(kernel, f"{function_name(callee)}({', '.join(given)});")


_FLOW = {"scf.for": _loop, "scf.if": _branch, "scf.while": _repeat, "func.call": _invoke}


# Variables


def _type(kernel: Kernel, v: Value) -> str:
    return f"{kernel.tile(v)} " if isinstance(v.type, TileType) else value_type(v.type)


def _start(kernel: Kernel, to: Sequence[Value], values: Sequence[Operand], op: Op) -> Iterator[str]:
    """Declare variables with values."""
    for v, x in zip(to, values, strict=True):
        if isinstance(v.type, MemRefType):
            kernel.refuse("memory that a loop carries has no strides in C++", op.loc)
        elif not isinstance(v.type, EventType):
            given = kernel.scalar(x)
            yield _line(kernel, f"{_type(kernel, v)}{kernel.name(v)} = {given};")
            kernel.carry(v)


def _open(kernel: Kernel, to: Sequence[Value]) -> Iterator[str]:
    """Declare variables without values."""
    for v in to:
        if not isinstance(v.type, EventType):
            size = "(1, 1)" if isinstance(v.type, TileType) else ""
            yield _line(kernel, f"{_type(kernel, v)}{kernel.name(v)}{size};")
            kernel.carry(v)


def _assign(kernel: Kernel, to: Sequence[Value], values: Sequence[Operand]) -> Iterator[str]:
    """Assign to variables, all at once."""
    pairs = [(v, x) for v, x in zip(to, values, strict=True) if v is not x and not isinstance(v.type, EventType)]
    names = {kernel.name(v) for v, _ in pairs}
    given = [kernel.scalar(x) for _, x in pairs]
    if len(pairs) > 1 and not names.isdisjoint(given):
        for k, (v, _) in enumerate(pairs):
            name = kernel.fresh(f"{kernel.name(v)}_next")
            yield _line(kernel, f"{_type(kernel, v)}{name} = {given[k]};")
            given[k] = name
    yield from (_line(kernel, f"{kernel.name(v)} = {x};") for (v, _), x in zip(pairs, given, strict=True))
