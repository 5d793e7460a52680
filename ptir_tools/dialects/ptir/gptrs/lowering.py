"""A program as gpt.rs's dump and JSON can hold it: value ids, results that are values, axes that are not negative."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Program, clone
from ptir_tools.core.dtypes import I1
from ptir_tools.core.ir import Element, Function, Literal, Op, Operand, Region, Value, operand_type
from ptir_tools.core.lazy import lazy
from ptir_tools.core.records import dataclass
from ptir_tools.core.typed import Any
from ptir_tools.core.types import TensorType, TupleType, Type, tensor
from ptir_tools.core.verify import verify
from ptir_tools.core.violations import Violation, require
from ptir_tools.core.where import spelled
from ptir_tools.dialects.ptir.gptrs.custom_calls import call_of, carries
from ptir_tools.dialects.ptir.gptrs.kinds import NOT_UPSTREAM, SPELLED, UNSIGNED_AXES, UNSIGNED_AXIS, ops
from ptir_tools.dialects.ptir.hints import Hint
from ptir_tools.dialects.ptir.hints import hints as hints_of
from ptir_tools.dialects.ptir.ops.quantize import has_scales
from ptir_tools.dialects.ptir.rewrites.sharing import unused

rules = lazy("ptir_tools.dialects.ptir.composites.decompose")

MAX_ID = 2**32


@dataclass(slots=True)
class Block:
    """A function or region to write. Its body may have additional ops that copy, so that all its results are values. `ids` has
    the id of every value."""

    name: str
    params: list[Value]
    body: list[Op]
    results: list[Value]
    result_types: list[Type]
    hints: list[Hint]
    ids: dict[Value, int]


def lower(program: Program, diagnostics: Diagnostics) -> tuple[list[Block], list[Block]] | None:
    """(functions, regions) to be written, or None after reporting what gpt.rs does not have."""
    smaller = decomposed(program, diagnostics)
    if smaller is None or refuse(smaller, diagnostics):
        return None
    program = with_calls(spelled(smaller))
    note_streams(program, diagnostics)
    copies = _Copies(program)
    try:
        functions = [_block(f, copies, diagnostics) for f in program.functions]
        regions = [_block(r, copies, diagnostics) for r in program.regions]
    except Violation as violation:
        diagnostics.violation(violation, program.main.loc)
        return None
    return functions, [*regions, *(_block(r, copies, diagnostics) for r in copies.regions.values())]


def decomposed(program: Program, diagnostics: Diagnostics) -> Program | None:
    """`program`, or a copy of it in which the composite ops that gpt.rs does not have are decomposed, with a note.

    A program with such ops must verify, or it cannot be decomposed: then its errors are reported, and the result is None.
    """
    if not any(op.defn.short in NOT_UPSTREAM for b in program.blocks() for op in b.body):
        return program
    if not verify(program, diagnostics):
        return None
    program = clone(program)
    for name in rules.decompose(program):
        diagnostics.note("Decomposed", f"gpt.rs has no {name}: it is written as smaller ops (the pass decompose)")
    return program


def with_calls(program: Program) -> Program:
    """`program`, or a copy of it in which extension ops are the custom calls that carry them."""
    if not any(carries(op.defn) for b in program.blocks() for op in b.body):
        return program
    program = clone(program)
    hints = [hint.body for f in program.functions for hint in f.annotations]
    for body in (*(b.body for b in program.blocks()), *hints):
        body[:] = [call_of(op) if carries(op.defn) else op for op in body]
    return program


def refuse(program: Program, diagnostics: Diagnostics) -> bool:
    """Report the ops that gpt.rs does not have; whether there are any."""
    body = [op for b in program.blocks() for op in b.body if not carries(op.defn)]
    found = [op for op in body if op.defn.short not in SPELLED or op.defn.short in NOT_UPSTREAM]
    for op in found:
        help = "run the pass decompose first: ptir opt -p decompose" if op.defn.short in NOT_UPSTREAM else None
        diagnostics.error("NotTranslatable", f"gpt.rs has no {op.defn.short}", op.loc, help=help)
    stepped = [op for b in program.blocks() for op in b.body if has_scales(op)]
    for op in stepped:
        diagnostics.error("NotTranslatable", f"gpt.rs's {op.defn.short} has no scale and no zero point", op.loc)
    return bool(found or stepped)


def note_streams(program: Program, diagnostics: Diagnostics) -> None:
    """Note the random streams that are lost because they are not the ordinals of their ops."""
    drawn = [op for b in program.blocks() for op in b.body if op.defn.short in ("rng_uniform", "rng_normal")]
    for i, op in enumerate(drawn):
        if op.attr("stream") not in (None, i):
            message = f"the stream {op.attr('stream')} cannot be written; when read back it is {i}"
            diagnostics.note("LostStream", message, op.loc)


def _block(block: Region, copies: _Copies, diagnostics: Diagnostics) -> Block:
    is_function = isinstance(block, Function)
    body, results = list(block.body), list(block.results)
    last = [op.results[0] for op in body[len(body) - len(results) :]] if len(body) >= len(results) else None
    kept = all(isinstance(x, Value) for x in results) if is_function else results == last
    if not kept:
        forwarded = copies.add([None if is_function and isinstance(x, Value) else x for x in results], body)
        what = "a result that is not a value" if is_function else "results that are not the last instructions"
        title = f"@{block.name}" if is_function else f"^{block.name}"
        how = "a cond is" if any(isinstance(operand_type(x), TupleType) for x in results) else "stop_gradient is"
        diagnostics.note("ResultForwarded", f"{title} has {what}: {how} appended", block.loc)
        results = [x if copy is None else copy for x, copy in zip(results, forwarded, strict=True)]
    values = [x for x in results if isinstance(x, Value)]
    types = block.result_types if len(block.result_types) == len(values) else [v.type for v in values]
    hints = hints_of(block) if isinstance(block, Function) else []
    return Block(block.name, block.params, body, values, list(types), hints, value_ids(block.params, body, not is_function))


class _Copies:
    """Ops that give the value of an operand again: `stop_gradient`, or for a tuple a `cond` either branch of which returns copies
    of its elements. `regions` has these branches, by the type of the tuple."""

    def __init__(self, program: Program) -> None:
        self.names = {r.name for r in program.regions}
        self.regions: dict[TupleType, Region] = {}

    def add(self, operands: Sequence[Operand | None], body: list[Op]) -> list[Value | None]:
        """Copies of `operands`, made by ops at the end of `body`; None stays None. A constant that these ops need is before
        them.

        Raises Violation("NotTranslatable") for a tuple of one element.
        """
        types = [None if x is None else operand_type(x) for x in operands]
        flag: list[Operand] = []
        if any(isinstance(t, TupleType) for t in types):
            flag.append(_append(body, Op(ops()["constant"], (), (Literal(tensor(I1), b"\1"),)), tensor(I1)))
        copies: list[Value | None] = []
        for x, t in zip(operands, types, strict=True):
            if x is None or t is None:
                copies.append(None)
            elif isinstance(t, TupleType):
                branch = self.branch(t)
                copies.append(_append(body, Op(ops()["cond"], (*flag, x), regions=(branch, branch)), t))
            else:
                copies.append(_append(body, Op(ops()["stop_gradient"], (x,)), t))
        return copies

    def branch(self, t: TupleType) -> Region:
        """The region that returns the elements of a tuple as its results."""
        if (found := self.regions.get(t)) is not None:
            return found
        require(len(t.elements) != 1, "NotTranslatable", f"gpt.rs has no op that returns a tuple of one element: {t}")
        whole = Value(t, "0")
        region = Region(unused("copy", self.names), [whole], result_types=list(t.elements))
        self.names.add(region.name)
        copies = self.add([Element(whole, i) for i in range(len(t.elements))], region.body)
        region.results = [v for v in copies if v is not None]
        self.regions[t] = region
        return region


def _append(body: list[Op], op: Op, t: Type) -> Value:
    """The result, of type `t`, of `op`, which comes last in `body`."""
    op.results = (Value(t, "", op),)
    body.append(op)
    return op.results[0]


def value_ids(params: list[Value], body: list[Op], region: bool) -> dict[Value, int]:
    """The id of every value. A name of digits is the id. Every other value gets the smallest unused id, in order of definition.
    A region's parameter k is id k."""
    ids: dict[Value, int] = {p: k for k, p in enumerate(params)} if region else {}
    used = set(ids.values())
    others: list[Value] = []
    for v in _definitions([] if region else params, body):
        number = int(v.name) if v.name.isascii() and v.name.isdigit() and len(v.name) < 11 else MAX_ID
        if number < MAX_ID and str(number) == v.name and number not in used:
            ids[v] = number
            used.add(number)
        else:
            others.append(v)
    free = 0
    for v in others:
        while free in used:
            free += 1
        ids[v] = free
        free += 1
    return ids


def _definitions(params: list[Value], body: list[Op]) -> Iterator[Value]:
    yield from params
    for op in body:
        yield from op.results


def region_ids(functions: Sequence[Block], regions: Sequence[Block]) -> dict[str, int]:
    """The id of every region by name: that of its name `r7`, else the smallest that is not used."""
    referred = (r.name for b in (*functions, *regions) for op in b.body for r in op.regions)
    names = list(dict.fromkeys([*(b.name for b in regions), *referred]))
    ids = {n: int(n[1:]) for n in names if n[:1] == "r" and n[1:].isascii() and n[1:].isdigit() and len(n) < 11}
    ids = {n: i for n, i in ids.items() if n == f"r{i}"}
    used, free = set(ids.values()), 0
    for n in names:
        if n not in ids:
            while free in used:
                free += 1
            ids[n] = free
            used.add(free)
    return ids


def written(op: Op) -> tuple[object, ...]:
    """The attributes, with every axis that gpt.rs stores unsigned made nonnegative. If the rank is not known, the axis is
    unchanged."""
    if not any(a.name in UNSIGNED_AXES or a.name == "axis" for a in op.defn.attrs):
        return op.attrs
    return tuple(_unsigned(op, a.name, value) for a, value in zip(op.defn.attrs, op.attrs, strict=True))


def _unsigned(op: Op, name: str, value: Any) -> object:
    if name == "axis" and op.defn.short in UNSIGNED_AXIS:
        rank = _rank(op, UNSIGNED_AXIS[op.defn.short])
    elif name in UNSIGNED_AXES:
        rank = _rank(op, UNSIGNED_AXES[name])
    else:
        return value
    if rank is None or value is None:
        return value
    if isinstance(value, int):
        return value + rank if value < 0 else value
    return tuple(v + rank if v < 0 else v for v in value)


def _rank(op: Op, operand: int | None) -> int | None:
    if operand is not None and operand >= len(op.operands):
        return None
    t = op.results[0].type if operand is None else operand_type(op.operands[operand])
    return t.rank if isinstance(t, TensorType) else None
