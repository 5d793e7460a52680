"""Scopes of names while a block is read, and the outer values that isolated regions capture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ptir_tools.bridges.constants import known
from ptir_tools.bridges.stablehlo.checks import Checks
from ptir_tools.bridges.stablehlo.symbolic import SymbolicElements
from ptir_tools.bridges.stablehlo.syntax import Binding, Block, Clause, FunctionText, Parameter, Statement
from ptir_tools.bridges.stablehlo.types import Quantized, Tuple, refused, type_of
from ptir_tools.bridges.stablehlo.types import Token as TokenType
from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import Attribute, Operand, Region, Value
from ptir_tools.core.source import Loc
from ptir_tools.core.spelling import proposed
from ptir_tools.core.typed import Protocol
from ptir_tools.core.types import Shape, TensorType, Type
from ptir_tools.core.violations import Violation, require
from ptir_tools.dialects.ptir.builder.build import Block as Target
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.grammars.parser import Token

CALLS = ("call", "func.call")
POISON = None  # the value of an op in error: its readers are not reported
RETURNS = ("return", "func.return", "stablehlo.return", "mhlo.return", "chlo.return", "sdy.return")


class Reader(Protocol):
    """Protocol of the reader, for scopes."""

    symbolic: SymbolicElements
    checks: Checks
    meshes: dict[str, dict[str, int]]
    calls: list[str]
    lost: set[str]

    @property
    def text(self) -> str: ...
    @property
    def functions(self) -> Mapping[str, FunctionText]: ...
    def error(self, violation: Violation, s: Statement) -> None: ...
    def statement(self, s: Statement, scope: Scope) -> None: ...
    def returned(self, s: Statement, scope: Scope) -> list[object]: ...
    def inlined(self, name: str, operands: Sequence[object], scope: Scope) -> list[object]: ...


class InError(Exception):
    """An operand is in error."""


class Scope:
    """The names that are visible in a block, and the PTIR block that gets the ops. A region on scalars can be read as ops on
    whole tensors: `lift` is then the shape that scalars have."""

    def __init__(self, reader: Reader, block: Target, outer: Scope | None = None, lift: Shape | None = None) -> None:
        self.reader, self.block, self.outer = reader, block, outer
        self.lift: Shape | None = lift if lift is not None else outer.lift if outer else None
        self.lifts = lift is not None
        self.expressed: DType | None = None  # the dtype of dequantized values, where it differs from their own
        self.device: int | None = None  # whose body is read, in a computation on a mesh
        self.values: dict[str, list[object]] = {}
        self.places: dict[str, Loc] = {}  # of their definitions

    @property
    def on_device(self) -> int | None:
        """The device for which this block is read, None where there is one device."""
        return self.device if self.device is not None or self.outer is None else self.outer.on_device

    def define(self, token: Token | None, name: str, values: Sequence[object]) -> None:
        """Bind a name. Raises Violation when it is taken."""
        if name in self.values:
            labels = [(self.places[name], "first defined here")] if name in self.places else []
            raise Violation("RedefinedValue", f"%{name} is defined twice", labels=labels)
        self.values[name] = list(values)
        if token is not None:
            self.places[name] = token.loc

    def lookup(self, token: str) -> object:
        """The value of `%name` or `%name#index`. Raises Violation for an undefined name, InError for a value in error."""
        name, _, index = token[1:].partition("#")
        result, at = self.find(name), int(index or 0)
        require(at < len(result), "UndefinedValue", f"%{name} has {len(result)} results")
        if result[at] is POISON:
            raise InError
        return result[at]

    def find(self, name: str) -> list[object]:
        """The values of a name; those of an outer scope are broadcast to the shape of scalars here."""
        if (result := self.values.get(name)) is not None:
            return result
        if self.outer is None:
            if name in self.reader.lost:
                raise InError
            help, instead = proposed(name, self.values)
            raise Violation("UndefinedValue", f"%{name} is not defined here", help=help, instead=instead)
        result = self.outer.find(name)
        if self.lifts:
            result = self.values[name] = [self.lifted(x) for x in result]
        return result

    def lifted(self, x: object) -> object:
        """A scalar broadcast to the shape that scalars have here."""
        if not isinstance(x, Tensor) or x.shape or not self.lift:
            return x
        return x.broadcast_to(result_shape=self.lift)

    def type(self, text: str) -> TensorType | TokenType | Tuple:
        """The type spelled `text`, where scalars have the shape of `lift`."""
        t = type_of(str(text))
        if isinstance(t, Quantized):
            t = t.storage.with_dtype(self.expressed or t.expressed)
        return t.with_shape(self.lift) if self.lift and isinstance(t, TensorType) and not t.shape else t

    # Regions

    def inline(
        self, region: Block, arguments: Sequence[object], lift: Shape | None = None, count: int | None = None
    ) -> list[object]:
        """The `count` results of a region whose ops are appended here; `lift` is the shape that its scalars have.

        Raises InError, and Violation for another count.
        """
        inner = Scope(self.reader, self.block, self, lift)
        inner.parameters(region.params, arguments)
        results = inner.body(region)
        message = f"a region returns {len(results)} results, {count} are expected"
        require(count in (None, len(results)), "OperandCountMismatch", message)
        return results

    def lifted_scope(self, lift: Shape) -> Scope:
        """A scope inside, in the same block, where scalars have the shape `lift`."""
        return Scope(self.reader, self.block, self, lift)

    def capture(self, regions: Sequence[Block]) -> Capture:
        """The values of this scope that isolated regions capture."""
        return Capture(self, regions)

    def parameters(self, params: Sequence[Parameter], arguments: Sequence[object]) -> None:
        """Bind parameters. Raises Violation unless there is an argument of the declared type for each."""
        if len(params) != len(arguments):
            place = params[min(len(arguments), len(params) - 1)].type.loc if params else 0
            message = f"the region declares {len(params)} of {len(arguments)} parameters"
            raise Violation("OperandCountMismatch", message, loc=place)
        for p, x in zip(params, arguments, strict=True):
            if isinstance(x, Tensor) and not fits(self.type(p.type), x.type):
                raise Violation("OperandTypeMismatch", f"{p.called} is declared {p.type}, and gets {x.type}")
            self.define(p.called, p.called[1:], [x])

    def body(self, region: Block) -> list[object]:
        """Append the ops of a region and return its results. Raises InError when one is in error."""
        for i, statement in enumerate(region.body):
            if statement.name in RETURNS:
                if i < len(region.body) - 1:
                    self.reader.error(Violation("SyntaxError", "a return is the last op of its block"), statement)
                return self.reader.returned(statement, self)
            self.reader.statement(statement, self)
        help = "write `return %result : type` there; in the region of an op `stablehlo.return`"
        last = region.body[-1].at.loc if region.body else 0
        raise Violation("SyntaxError", "the block ends without a return after this op", help=help, loc=last)

    def region(self, types: Sequence[Type], build: Build) -> Region:
        """An isolated PTIR region, with the ops that `build` appends and the results that it returns."""
        graph = self.block.graph
        region = Region(f"r{len(graph.program.regions)}")
        graph.program.regions.append(region)
        block = Target(graph, region)
        params = [Tensor(block, block.builder.param(t)) for t in types]
        inner = Scope(self.reader, block)
        given = build(inner, params)
        tensors = [x for x in given if isinstance(x, Tensor)]
        if len(tensors) < len(given):
            raise refused("a region gives a tuple or token")
        block.builder.results(*(self.reader.checks.before(block, x).operand for x in tensors))
        return region


Build = Callable[[Scope, list[Tensor]], Sequence[object]]  # from the parameters of a region to its results


class Capture:
    """Outer values that isolated regions capture: as arguments, or, for constants, rematerialized inside."""

    def __init__(self, scope: Scope, regions: Sequence[Block], bound: Sequence[str] = ()) -> None:
        names = {name: None for region in regions for name in free_names(region) if name not in bound}
        self.values = {name: scope.find(name) for name in names}
        self.arguments: list[Tensor] = []
        self.places: dict[tuple[str, int], int] = {}
        for name, values in self.values.items():
            for i, x in enumerate(values):
                if isinstance(x, Tensor) and _constant(x) is None:
                    self.places[name, i] = len(self.arguments)
                    self.arguments.append(x)

    @property
    def types(self) -> list[Type]:
        """The types of the arguments."""
        return [x.type for x in self.arguments]

    def bind(self, inner: Scope, params: Sequence[Tensor]) -> None:
        """Bind the captured names inside a region; `params` are the parameters for the arguments."""
        for name, values in self.values.items():
            bound: list[object] = []
            for i, x in enumerate(values):
                if isinstance(x, Tensor) and (name, i) in self.places:
                    param = params[self.places[name, i]]
                    if (meaning := inner.reader.symbolic.of(x)) is not None:
                        inner.reader.symbolic.values[param.operand] = meaning
                    bound.append(param)
                elif isinstance(x, Tensor):
                    defn, operands, attrs = _constant(x) or ("", (), {})
                    bound.append(inner.block.op(defn, *(Tensor(inner.block, o) for o in operands), **attrs))
                else:
                    bound.append(x)
            inner.values[name] = bound


def _constant(x: Tensor) -> tuple[str, tuple[Operand, ...], dict[str, Attribute]] | None:
    """The op that rematerializes a constant: its name, operands and attributes. None for other values."""
    op = x.operand.op if isinstance(x.operand, Value) else None
    if op is None or any(isinstance(o, Value) for o in op.operands) or known(x) is None:
        return None
    return op.defn.short, op.operands, {a.name: v for a, v in zip(op.defn.attrs, op.attrs, strict=True)}


def free_names(region: Block) -> dict[str, None]:
    """The names that a region reads and does not define, in order."""
    own = {p.name[1:] for p in region.params if p.name is not None}
    names: dict[str, None] = {}
    for statement in region.body:
        for token in read_names(statement.pieces):
            name = token[1:].partition("#")[0]
            if name not in own:
                names[name] = None
        bound = {b for piece in statement.pieces for b in _bound(piece)}
        bound |= {p.name[1:] for tail in statement.tails if isinstance(tail, Clause) for p in tail.value}
        for inner in statement.regions():
            names |= {name: None for name in free_names(inner) if name not in own and name not in bound}
        own.update(name for name, _ in statement.results)
    return names


def read_names(pieces: Sequence[object]) -> list[Token]:
    """The operand tokens among parsed pieces."""
    names: list[Token] = []
    for piece in pieces:
        if isinstance(piece, Token):
            names += [piece] * (piece.type == "SSA")
        elif isinstance(piece, Binding):
            names += [piece.first, piece.second] if piece.init else [piece.second]
        elif isinstance(piece, list):
            names += read_names(piece)
    return names


def _bound(piece: object) -> list[str]:
    parts = piece if isinstance(piece, list) else []
    return [x.first[1:] for x in parts if isinstance(x, Binding) and not x.init] + [
        x.called[1:] for x in parts if isinstance(x, Parameter)
    ]


def fits(declared: object, t: Type) -> bool:
    """Whether a value of type `t` fits the declared type: extents `?` and symbols match any extent."""
    if not isinstance(declared, TensorType) or not isinstance(t, TensorType):
        return True
    if declared is t:
        return True
    if declared.dtype is not t.dtype or len(declared.shape) != len(t.shape):
        return False
    return all(a == b or not isinstance(a, int) or not isinstance(b, int) for a, b in zip(declared.shape, t.shape, strict=True))
