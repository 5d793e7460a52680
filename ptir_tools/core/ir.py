"""The IR: values, ops, regions, functions, programs. Identity is equality; uses are known while a rewriter serves a block."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ptir_tools.core.source import Loc, Source
from ptir_tools.core.types import TensorType, Type

if TYPE_CHECKING:
    from ptir_tools.core.dialect import Dialect
    from ptir_tools.core.opdef import OpDef


NO_USERS: Any = ()  # the users of a value that has none: most lists that would stay empty are never made


@dataclass(slots=True, eq=False)
class Value:
    """An SSA value. `type` UNTYPED is left to inference; `op` is None for parameters.

    `users` is the rewriter's (`rewrite.uses`): who uses it, once per use. Nothing else may read it.
    """

    type: Type
    name: str = ""
    op: Op | None = None
    users: list[Op | Region] = field(default=NO_USERS, init=False)

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"


@dataclass(slots=True, eq=False)
class Element:
    """Element `index` of a tuple value, as an operand."""

    value: Value
    index: int


@dataclass(slots=True, eq=False)
class Literal:
    """An inline constant: row-major little-endian bytes (4-bit values two to a byte, low nibble first).

    `splat`: `data` is one element, repeated. `data` None: the payload is not there; such a literal equals no other.
    `origin` is the `file:key` that the payload was read from, which makes no difference to what it is.
    """

    type: TensorType
    data: bytes | None
    splat: bool = False
    origin: str = ""

    def same(self, other: object) -> bool:
        """Whether both are certainly the same constant, bit for bit."""
        if self is other:
            return True
        return isinstance(other, Literal) and self.data is not None and self.key == other.key

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal literals; a missing payload equals only itself."""
        return (self.type, self.splat, id(self) if self.data is None else self.data)


Operand = Value | Element | Literal


@dataclass(slots=True, eq=False)
class Op:
    """One operation. `attrs` are the values of `defn.attrs`, in that order, defaults filled in.

    `slot` is the rewriter's (`rewrite.order`): its place, 0 for an op that does not stand in a block. Nothing else may read it.
    """

    defn: OpDef
    operands: tuple[Operand, ...] = ()
    attrs: tuple[Any, ...] = ()
    results: tuple[Value, ...] = ()
    regions: tuple[Region, ...] = ()
    loc: Loc = 0
    slot: int = field(default=0, init=False)

    @property
    def name(self) -> str:
        """Full name: `ptir.add`."""
        return self.defn.name

    @property
    def result(self) -> Value:
        """The first result."""
        return self.results[0]

    def attr(self, name: str) -> Any:
        """The attribute `name`. Raises KeyError when the op has none of that name."""
        return self.attrs[self.defn.attr_index[name]]

    def values(self) -> Iterator[Value]:
        """The values that the operands name (a tuple's, for its elements)."""
        for x in self.operands:
            if isinstance(x, Value):
                yield x
            elif isinstance(x, Element):
                yield x.value

    def __repr__(self) -> str:
        return f"<{self.name} at {hex(id(self))}>"


@dataclass(slots=True, eq=False)
class Region:
    """A block: parameters, ops in order, results. `result_types` are those the text declares, one per result; `return_loc`
    is where the text gives the results, 0 where it has no such place of its own.

    An isolated region sees nothing of what encloses it and may be shared (PTIR); any other captures (PTO).
    """

    name: str = ""
    params: list[Value] = field(default_factory=list)
    body: list[Op] = field(default_factory=list)
    results: list[Operand] = field(default_factory=list)
    result_types: list[Type] = field(default_factory=list)
    isolated: bool = True
    loc: Loc = 0
    return_loc: Loc = field(default=0, kw_only=True)
    edition: int = field(default=0, kw_only=True)  # grows when a rewriter comes, and when one writes

    def ops(self) -> Iterator[Op]:
        """Its ops and, depth first, those of the non-isolated regions inside."""
        for op in self.body:
            yield op
            for r in op.regions:
                if not r.isolated:
                    yield from r.ops()

    def uses(self) -> Iterator[Value]:
        """The values that its ops read and that it gives, those of the non-isolated regions inside included."""
        for x in self.results:
            if not isinstance(x, Literal):
                yield x if isinstance(x, Value) else x.value
        for op in self.body:
            yield from op.values()
            for r in op.regions:
                if not r.isolated:
                    yield from r.uses()


def result_names(block: Region, names: Mapping[Value, str] | None = None) -> list[str]:
    """What the results of `block` are called: as its text says, or else like their values, whose `names` may be others."""
    if names is None and isinstance(block, Function) and "output_names" in block.attrs:
        return list(block.attrs["output_names"])
    found = []
    for k, x in enumerate(block.results):
        v = x.value if isinstance(x, Element) else x if isinstance(x, Value) else None
        name = "" if v is None else (names or {}).get(v) or v.name
        found.append(f"result_{k}" if not name else f"{name}.{x.index}" if isinstance(x, Element) else name)
    return found


@dataclass(slots=True, eq=False)
class Hint:
    """A fusion hint of gpt.rs: `body` is a copy of ops of its function, over the same values; it defines nothing."""

    id: int
    kind: str
    policy: str
    inputs: tuple[Value, ...] = ()
    exports: tuple[Value, ...] = ()
    attrs: tuple[tuple[str, Any], ...] = ()
    body: list[Op] = field(default_factory=list)
    loc: Loc = 0


@dataclass(slots=True, eq=False)
class Function(Region):
    """A named region that can be called from outside. `attrs` are what its text carries beside (PTO)."""

    hints: list[Hint] = field(default_factory=list)
    attrs: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Program:
    """Functions of one dialect, and the isolated regions that their ops share.

    `attrs` holds what is of the program as a whole: `target` (PTO), `outputs`, `dims`, `profile` (Tiny).
    """

    dialect: Dialect
    functions: list[Function] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)
    entry: str = ""
    attrs: dict[str, Any] = field(default_factory=dict)
    source: Source | None = None
    format: str = ""

    def function(self, name: str) -> Function | None:
        """The function called `name`."""
        return next((f for f in self.functions if f.name == name), None)

    @property
    def main(self) -> Function:
        """The entry function. Raises KeyError when there is none."""
        if (found := self.function(self.entry)) is None:
            raise KeyError(self.entry)
        return found

    def blocks(self) -> Iterator[Region]:
        """Functions, shared regions and nested regions: every list of ops, outer before inner."""
        stack: list[Region] = [*reversed(self.regions), *reversed(self.functions)]
        while stack:
            block = stack.pop()
            yield block
            stack.extend(r for op in reversed(block.body) for r in reversed(op.regions) if not r.isolated)


@contextmanager
def collector_paused() -> Iterator[None]:
    """No garbage collection inside: making a million nodes is three times as fast without."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            if not gc.get_freeze_count():  # what was made counts as old: no collection goes through it at once
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def clone_blocks(blocks: list[Region], values: dict[Value, Value] | None = None) -> list[Region]:
    """Copies of `blocks` (functions stay functions) that share no op, value or region with them; literals are shared."""
    values = {} if values is None else values
    regions: dict[Region, Region] = {}

    def operand(x: Operand) -> Operand:
        if isinstance(x, Value):
            return values.get(x, x)
        return Element(values.get(x.value, x.value), x.index) if isinstance(x, Element) else x

    def value(v: Value, op: Op | None) -> Value:
        values[v] = copy = Value(v.type, v.name, op)
        return copy

    def copy_op(op: Op, *, define: bool = True) -> Op:
        copy = Op(op.defn, tuple(map(operand, op.operands)), op.attrs, (), tuple(map(region, op.regions)), op.loc)
        copy.results = tuple(value(v, copy) if define else values.get(v, v) for v in op.results)
        return copy

    def region(r: Region) -> Region:
        if (done := regions.get(r)) is not None:
            return done
        regions[r] = copy = type(r)(r.name, result_types=list(r.result_types), isolated=r.isolated, loc=r.loc)
        copy.return_loc = r.return_loc
        copy.params = [value(p, None) for p in r.params]
        copy.body = [copy_op(op) for op in r.body]
        copy.results = [operand(x) for x in r.results]
        if isinstance(r, Function) and isinstance(copy, Function):
            copy.attrs = dict(r.attrs)
            copy.hints = [hint(h) for h in r.hints]
        return copy

    def hint(h: Hint) -> Hint:
        inputs, exports = (tuple(values.get(v, v) for v in vs) for vs in (h.inputs, h.exports))
        return Hint(h.id, h.kind, h.policy, inputs, exports, h.attrs, [copy_op(op, define=False) for op in h.body], h.loc)

    return [region(b) for b in blocks]


def clone(program: Program) -> Program:
    """A copy of `program` that shares no op, value or region with it."""
    with collector_paused():
        n = len(program.functions)
        copies = clone_blocks([*program.functions, *program.regions])
        functions = [f for f in copies[:n] if isinstance(f, Function)]
        p = program
        return Program(p.dialect, functions, copies[n:], p.entry, dict(p.attrs), p.source, p.format)
