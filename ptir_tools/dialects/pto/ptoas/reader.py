"""The assembler's text to ops of PTO IR: a buffer becomes the tiles that ops write into it, one value per write.

Loops carry the buffers that they write and that are read later, and branches give them (`flow`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ptir_tools.core.declare import OPS
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dtypes import INDEX
from ptir_tools.core.ir import Argument, Function, Literal, Op, Operand, Region, Value, create, operand_type
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.source import Loc
from ptir_tools.core.types import UNKNOWN, Type
from ptir_tools.core.violations import OP_NAME, Violation, require
from ptir_tools.dialects.pto import ops as _ops  # noqa: F401  (declares them)
from ptir_tools.dialects.pto.affine import constant
from ptir_tools.dialects.pto.memory.info import tile_bytes
from ptir_tools.dialects.pto.ptoas.flow import Flow, defined, fixed, has_pipe, written
from ptir_tools.dialects.pto.ptoas.types import BufferType, OtherType, PointerType, Spelled, ViewType, parse
from ptir_tools.dialects.pto.structure import BLOCK_DIM
from ptir_tools.dialects.pto.text import literals
from ptir_tools.dialects.pto.types import INDEX_TYPE, ScalarType, TileType, memref, tile, type_text
from ptir_tools.grammars.parser import Node, Token


@dataclass(slots=True, eq=False)
class Storage:
    """The bytes of one or several buffers. `held` is the value in them, or None where nothing was written."""

    name: str
    type: TileType
    address: Value | None = None
    held: Value | None = None
    own: bool = False  # allocated, not passed or popped


@dataclass(slots=True, eq=False)
class Buffer:
    """A tile buffer: bytes and the type under which they are seen. `valid` are its valid extents where they vary."""

    type: BufferType
    storage: Storage
    valid: tuple[Operand, ...] = ()
    region: Region | None = None  # the block that defines it


@dataclass(slots=True, frozen=True, eq=False)
class View:
    """A window of memory: where it begins, and its extents."""

    memory: Value
    offsets: tuple[Operand, ...]
    sizes: tuple[Operand, ...]


@dataclass(slots=True, eq=False)
class Reserved:
    """The bytes of a FIFO: those of `function`, or with a `peer` those that it reserves. `opened`: a pipe has them."""

    name: str
    function: str
    peer: str
    loc: Loc
    base: int | None = None  # the address that the text gives
    opened: bool = False


@dataclass(slots=True, frozen=True, eq=False)
class Pipe:
    """A pipe between cores: its FIFO of each direction. `whole` says whether it splits no tiles, where the text does that.
    `places` has the address of the tiles that are popped from a FIFO, where they all have one."""

    fifos: dict[str, str]
    whole: bool | None
    places: dict[str, int]


@dataclass(slots=True, frozen=True, eq=False)
class Shifted:
    """A pointer behind the start of a memory: only a pipe takes it."""

    memory: Value


Known = Value | Buffer | View | Reserved | Pipe | Shifted


def entries(node: Node) -> list[Node]:
    """The entries of the dictionaries of a node."""
    return [e for d in node.parts("dict") for e in d.parts("entry")]


DEPTH = 96  # of blocks: what the readers' recursion can follow


class Lost(Exception):
    """A statement uses a name that a statement with an error should have defined: nothing more is reported."""


@dataclass(slots=True, eq=False)
class Reader:
    """Reads one function. `statement` makes the op of one statement, at the end of `region`."""

    diagnostics: Diagnostics
    statement: Callable[[Reader, Node], None]
    made: Function
    region: Region
    flow: Flow
    known: dict[str, Known] = field(default_factory=dict)
    views: dict[Value, tuple[object, ...]] = field(default_factory=dict)  # the shape and strides that a pointer is seen with
    fixed: dict[str, Storage] = field(default_factory=dict)  # those at an address that is a number, by their first name
    every: list[Storage] = field(default_factory=list)
    yielded: list[Known] = field(default_factory=list)  # what the last block ended with
    lost: set[str] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)
    shared: list[Reserved] = field(default_factory=list)  # buffers of all functions
    pipe: Pipe | None = None  # the one of ops that name none
    piped: bool = False  # whether the function has a pipe
    launched: bool = False  # whether the module says on how many cores its entry is launched
    warned: bool = False
    depth: int = 0
    loc: Loc = 0

    # Functions and blocks

    def read_body(self, node: Node) -> None:
        """The parameters and ops of the function."""
        self.loc = node.loc
        try:
            self.parameters(node)
            for place in self.flow.same.values():
                if place.name not in self.fixed:
                    t = parse(str(place.type))
                    assert isinstance(t, BufferType)
                    at = self.named(literals.integer(place.address, INDEX))
                    self.fixed[place.name] = self.storage(place.name[1:], t.tile, at)
        except Violation as violation:
            self.diagnostics.violation(violation, node.loc)
        self.statements(node.parts("block")[0].children)

    def storage(self, name: str, t: TileType, address: Value | None = None, held: Value | None = None) -> Storage:
        """New bytes. What loops carry in them may be valid in any part."""
        self.every.append(Storage(name, tile(t.dtype, t.shape, t.loc, t.layout), address, held))
        return self.every[-1]

    def parameters(self, node: Node) -> None:
        """Bind what the function takes. Raises Violation."""
        for p in (x for part in node.parts("parameters") for x in part.parts("parameter")):
            name, t = p.token("SSA"), self.type(p.token("TYPE"))
            if isinstance(t, BufferType):
                value = Value(t.tile, str(name)[1:])
                self.bind(name, Buffer(t, self.storage(str(name)[1:], t.tile, held=value)))
            else:
                value = Value(self.parameter_type(t), str(name)[1:])
                whole = isinstance(t, ViewType)
                zero = literals.integer(0, INDEX)
                sizes = tuple(literals.integer(d, INDEX) if isinstance(d, int) else zero for d in getattr(t, "shape", ()))
                self.bind(name, View(value, (zero,) * len(sizes), sizes) if whole else value)
            self.made.params.append(value)

    def parameter_type(self, t: Spelled) -> Type:
        """The type of a parameter. Raises Violation for one that PTO IR does not have."""
        if isinstance(t, PointerType):
            return memref(t.dtype, (UNKNOWN,))
        if isinstance(t, ViewType):
            return memref(t.dtype, t.shape)
        require(isinstance(t, ScalarType), "TypeMismatch", f"a kernel takes no {t.text if isinstance(t, OtherType) else t}")
        assert isinstance(t, ScalarType)
        return t

    def statements(self, nodes: Sequence[Node]) -> None:
        """The ops of statements, into the region; what is wrong with one leaves the others alone."""
        self.depth += 1
        if self.depth > DEPTH:
            raise LimitExceeded(f"blocks nest deeper than {DEPTH}")
        for node in nodes:
            try:
                self.loc = node.loc
                self.statement(self, node)
            except (Violation, Lost) as wrong:
                if isinstance(wrong, Violation):
                    self.diagnostics.violation(wrong, node.loc)
                self.lost.update(name[1:] for name in (*defined(node), *written(node)))
        self.depth -= 1

    def bind(self, token: Token | str, what: Known) -> None:
        """Define a name, which no other statement of the function may have defined in a block that encloses this one."""
        name = str(token)[1:]
        require(name not in self.known, "RedefinedValue", f"%{name} is defined twice", at=str(token))
        self.known[name] = what

    def value_name(self, wanted: str) -> str:
        """A name for a new value."""
        name, n = wanted, 0
        while name in self.taken:
            n += 1
            name = f"{wanted}_{n}"
        self.taken.add(name)
        return name

    # What a name is

    def look(self, token: Token | str) -> Known:
        """What a name is. Raises Violation for one that is not defined."""
        name = str(token)[1:]
        found = self.known.get(name)
        if found is None:
            if name in self.lost:
                raise Lost
            help, instead = self.diagnostics.proposed(name, sorted(self.known))
            raise Violation("UndefinedValue", f"%{name} is not defined", help=help, at=str(token), instead=instead)
        return found

    def scalar(self, token: Token | str) -> Value:
        """The scalar that a name is. Raises Violation."""
        found = self.look(token)
        if not isinstance(found, Value):
            raise Violation("TypeMismatch", f"`{token}` is {kind_of(found)}, expected a scalar", at=str(token))
        return found

    def index(self, token: Token) -> Operand:
        """An index: a name or a number; a scalar of another integer type is converted. Raises Violation."""
        return literals.index(token) if token.type == "NUMBER" else self.as_index(self.scalar(token))

    def as_index(self, value: Value) -> Operand:
        """A scalar as an index, a number where it is one."""
        if (known := constant(value)) is not None:
            return literals.integer(known, INDEX)
        if value.type is INDEX_TYPE:
            return value
        if value.op is not None and value.op.name == "pto.index_cast" and operand_type(value.op.operands[0]) is INDEX_TYPE:
            return value.op.operands[0]
        return self.emit("pto.index_cast", [value], {"to": INDEX_TYPE}, f"{value.name}_index").results[0]

    def buffer(self, token: Token | str) -> Buffer:
        """The buffer that a name is. Raises Violation."""
        found = self.look(token)
        if not isinstance(found, Buffer):
            raise Violation("TypeMismatch", f"`{token}` is {kind_of(found)}, expected a tile buffer", at=str(token))
        return found

    def view(self, token: Token | str) -> View:
        """The window of memory that a name is. Raises Violation."""
        found = self.look(token)
        if not isinstance(found, View):
            raise Violation("TypeMismatch", f"`{token}` is {kind_of(found)}, expected a view of memory", at=str(token))
        return found

    def read(self, token: Token | str) -> Value:
        """The value in a buffer, or a scalar. Raises Violation."""
        found = self.look(token)
        return self.held(found) if isinstance(found, Buffer) else self.scalar(token)

    def held(self, buffer: Buffer) -> Value:
        """The value in a buffer; undefined elements where nothing was written."""
        return self.seen(buffer.storage, buffer.type.tile)

    def seen(self, storage: Storage, t: TileType) -> Value:
        """The value in bytes as a tile of type `t`. Raises Violation where the bytes are in another order."""
        if storage.held is None:
            self.put(storage, self.emit("pto.tile.undef", [], {"to": t}, storage.name).results[0])
        value = storage.held
        assert value is not None and isinstance(value.type, TileType)
        own = value.type
        if own.shape == t.shape and own.dtype is t.dtype and t.layout in (None, own.layout):
            return value
        flat = all(1 in x.shape or x.layout in (None, "ND") for x in (own, t))
        message = f"`%{storage.name}` was written as {type_text(own)} and is read as {type_text(t)}"
        require(flat, "InvalidLayout", message, help="such a view of the same bytes cannot be read", at=OP_NAME)
        found = self.emit("pto.tile.reshape", [value, (), ()], {"to": t}, storage.name).results[0]
        self.assign(storage, found)
        return found

    def put(self, storage: Storage, value: Value) -> None:
        """Let bytes hold a value, which is at their address."""
        storage.held = value
        self.assign(storage, value)

    def assign(self, storage: Storage, value: Value) -> None:
        """A value is at the address of bytes, if they have one."""
        if storage.address is not None:
            self.emit("pto.tile.assign", [value, storage.address], {}, "")

    def type(self, token: Token) -> Spelled:
        """The type that a token spells. Raises Violation."""
        return parse(str(token))

    # Making ops

    def emit(
        self, name: str, arguments: Sequence[Argument], attrs: dict[str, object], result: str, loc: Loc = 0,
        regions: Sequence[Region] = (),
    ) -> Op:  # fmt: skip
        """A new op at the end of the region. Raises Violation for what does not fit."""
        made = create(OPS[name], arguments, attrs, regions=regions, loc=loc or self.loc)
        for value in made.results:
            value.name = self.value_name(result or "v")
        self.region.body.append(made)
        return made

    def named(self, x: Operand) -> Value:
        """An index as a value."""
        if isinstance(x, Value):
            return x
        assert isinstance(x, Literal)
        return self.emit("pto.constant", [], {"value": x}, f"c{number(x)}").results[0]


def kind_of(x: Known) -> str:
    """What a name is, in messages."""
    if isinstance(x, Value):
        return type_text(x.type)
    return _KINDS[type(x)]


_KINDS: dict[type, str] = {
    Buffer: "a tile buffer", View: "a view of memory", Reserved: "a reserved buffer", Pipe: "a pipe", Shifted: "a pointer",
}  # fmt: skip


_KEPT = ("pto.entry", BLOCK_DIM)  # attributes of a function


def read_function(
    node: Node, diagnostics: Diagnostics, statement: Callable[[Reader, Node], None], shared: list[Reserved], launched: bool
) -> Function:
    """A function. The numbers of the core that runs are parameters after its own ones. `shared` gets its reserved buffers."""
    made = Function(literals.unquoted(node.token("SYMBOL")[1:]), loc=node.loc)
    made.attrs = {key: literals.attribute(e) for e in entries(node) if (key := literals.unquoted(e.token())) in _KEPT}
    listed = [x for part in node.parts("results") for x in part.tokens()]
    made.result_types = [t for x in listed if isinstance(t := parse(str(x)), ScalarType)]
    flow = Flow(node, fixed(node, _bytes))
    reader = Reader(diagnostics, statement, made, made, flow, shared=shared, piped=has_pipe(node), launched=launched)
    reader.read_body(node)
    placed = next((x for x in reader.known.values() if isinstance(x, Reserved) and x.base is not None), None)
    if placed is not None and (free := next((s for s in reader.every if s.address is None and s.own), None)) is not None:
        message = f"`%{free.name}` has no address, and `{placed.name}` is at a fixed one: give both, or none"
        diagnostics.error("TypeMismatch", message, placed.loc)
    return made


def _bytes(token: Token) -> object:
    """The space and the size of a buffer of a type; None where the statement that makes the buffer will report an error."""
    try:
        t = parse(str(token))
    except Violation:
        return None
    return (t.tile.loc, tile_bytes(t.tile)) if isinstance(t, BufferType) else None


def number(x: Operand) -> int | None:
    """The number that an index is, or None."""
    return constant(x)
