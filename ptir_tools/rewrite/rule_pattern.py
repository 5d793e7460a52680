"""Compiled rules (`rewrite.rules`): rows of plain data, and patterns that read them on first use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from types import CodeType, FunctionType

from ptir_tools.core.declare import OPS
from ptir_tools.core.dialect import Dialect
from ptir_tools.core.ir import Attribute, Literal, Op, OpDef, Operand, Value, create, exact, operand_type
from ptir_tools.core.records import NamedTuple, dataclass, field
from ptir_tools.core.typed import Any
from ptir_tools.core.types import TensorType
from ptir_tools.core.violations import Violation
from ptir_tools.rewrite.patterns import Effect, Look, Origin, Pattern, named, variadic
from ptir_tools.rewrite.rewriter import Rewriter

Meaning = Any  # a text, a number, an `exact` key or a pair, as the kind of a symbol says
Number = complex  # or an int, float or bool
CONST = "const"  # instead of an op: the origins of a constant
RowLook = tuple[str | None, str, int]  # as `Look`, by name
Symbol = tuple[str, str, Meaning]  # its name in the code of a row, a kind, a value: see `RuleList.meaning`


class Row(NamedTuple):
    """One orientation of a rule; ops and families by their full names."""

    name: str
    root: str
    effect: int
    depth: int
    wants: tuple[str | None, ...]  # the origins of the root's operands
    numbers: tuple[tuple[int, float], ...]
    looks: tuple[RowLook, ...]
    looks_for_uses: bool  # whether it depends on use counts
    same: tuple[tuple[int, int], ...]  # operands of the root that must be equal
    symbols: tuple[Symbol, ...]  # the symbols of the code, besides the vocabulary
    match: CodeType  # from the root and the rewriter to the bindings, or a false value
    build: CodeType | None  # the right side: from a `Site` and the bindings to the new operand; None where it is an existing one


@dataclass(slots=True, eq=False)
class RuleList:
    """Data shared by the rows of one list."""

    dialect: Dialect
    words: dict[str, object]  # the names available to their code
    splat: Callable[[TensorType, Number], list[Op]]

    def function(self, code: CodeType, row: Row) -> Callable[..., Any]:
        """The function of `code`, in `row`."""
        return FunctionType(code, self.words | {name: self.meaning(kind, value) for name, kind, value in row.symbols})

    def meaning(self, kind: str, value: Meaning) -> object:
        """What a symbol means: an op or the ops of a family, the default of an attribute, a number or an `exact` key."""
        if kind == "op":
            result = named(value)
            return result[0] if len(result) == 1 else frozenset(result)
        if kind == "default":
            op, attr = value
            return exact(OPS[op].attrs[OPS[op].attr_index[attr]].default)
        return value

    def origins(self, name: str) -> frozenset[OpDef | type[Literal]]:
        """What the name of an op, of a family, or `CONST` means."""
        return _constants(self.dialect) if name == CONST else frozenset(named(name))


@cache
def _constants(dialect: Dialect) -> frozenset[OpDef | type[Literal]]:
    return frozenset([Literal, *(d for d in dialect.ops.values() if d.is_constant or d.repeats)])


class RulePattern(Pattern):
    """One orientation of a rule."""

    __slots__ = ("benefit", "build", "depth", "effect", "list", "match", "name", "numbers", "origins", "roots", "row")

    def __init__(self, row: Row, made_of: RuleList, benefit: int) -> None:
        self.row, self.list, self.benefit = row, made_of, benefit
        self.name, self.roots, self.depth, self.numbers = row.name, (row.root,), row.depth, row.numbers
        self.effect = Effect(row.effect)
        self.match: Callable[[Op, Rewriter], Sequence[Operand]] | None = None  # made when first tried, as is `build`
        self.build: Callable[..., Operand] | None = None
        self.origins: list[frozenset[OpDef | type[Literal]] | None] | None = None  # what `wants` means

    def admits(self, origins: Sequence[Origin]) -> bool:
        if len(origins) != len(self.row.wants) or any(origins[i] is not origins[j] for i, j in self.row.same):
            return False
        if self.origins is None:
            self.origins = [None if name is None else self.list.origins(name) for name in self.row.wants]
        return all(w is None or o in w for o, w in zip(origins, self.origins, strict=True))

    def looks_through(self) -> Iterable[Look]:
        for below, user, level in self.row.looks:
            ops = [None] if below is None else [d for d in self.list.origins(below) if isinstance(d, OpDef)]
            yield from ((d, u, level) for d in ops for u in named(user))

    def looks_for_uses(self) -> Iterable[Look]:
        return self.looks_through() if self.row.looks_for_uses else ()

    def match_and_rewrite(self, root: Op, rw: Rewriter) -> bool:
        if self.match is None:
            self.match = self.list.function(self.row.match, self.row)
        if not (bound := self.match(root, rw)):
            return False
        result = root.results[0]
        if not self.row.build:
            return _stands(bound[0], root, rw)
        if self.build is None:
            self.build = self.list.function(self.row.build, self.row)
        site = Site(result, self.list.splat)
        try:
            by = self.build(site, *bound)
        except Violation:
            return False
        if operand_type(by) is not result.type and not site.declare(by):
            return False
        if not rw.accepts(result, by):
            return False
        for op in site.ops:
            rw.insert_before(root, op)
        rw.replace(root, by)
        return True


def _stands(by: Operand, root: Op, rw: Rewriter) -> bool:
    """Replace `root` by an existing value."""
    result = root.results[0]
    if operand_type(by) is not result.type or not rw.accepts(result, by):
        return False
    rw.replace(root, by)
    return True


@dataclass(slots=True, eq=False)
class Site:
    """Builds the ops of a right side. They are inserted only when all are well typed."""

    result: Value
    splat: Callable[[TensorType, Number], list[Op]]
    ops: list[Op] = field(default_factory=list)

    def op(self, d: OpDef, operands: Sequence[Operand], attrs: dict[str, Attribute]) -> Value:
        """A new op."""
        new = create(d, [operands] if variadic(d) else operands, attrs)
        self.ops.append(new)
        return new.results[0]

    def like(self, op: Op, operands: Sequence[Operand], attrs: dict[str, object]) -> Value:
        """A new op like `op`, with its attributes but `attrs`."""
        return self.op(op.defn, operands, op.defn.named(op.attrs) | attrs)

    def number(self, number: Number) -> Value:
        """A constant of the root's type, all elements `number`."""
        if not isinstance(self.result.type, TensorType):
            raise Violation("TypeMismatch", "a number needs a tensor type")
        self.ops += self.splat(self.result.type, number)
        return self.ops[-1].results[0]

    def declare(self, by: Operand) -> bool:
        """Give the new value the root's type where its rule leaves extents open; False when the types differ."""
        if not (isinstance(by, Value) and self.ops and by.op is self.ops[-1] and self.result.type.accepts(by.type)):
            return False
        by.type = self.result.type
        return True
