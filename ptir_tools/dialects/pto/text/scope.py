"""The names of a function while it is read, and what tokens mean: values, types, operands, attributes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Scope as NamesOfFunction
from ptir_tools.core.ir import Operand, Value
from ptir_tools.core.limits import LimitExceeded, Limits
from ptir_tools.core.source import Loc, pack
from ptir_tools.core.spelling import proposed
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import POISON, UNTYPED, Type
from ptir_tools.core.violations import require
from ptir_tools.dialects.pto import DIALECT
from ptir_tools.dialects.pto.text import literals
from ptir_tools.dialects.pto.text.syntax import Entry, Statement
from ptir_tools.dialects.pto.text.types import TypeSyntaxError, parse_type

if TYPE_CHECKING:
    from ptir_tools.grammars.parser import Token

DEPTH = 192  # of blocks: what the evaluator's recursion can follow


class Scope(NamesOfFunction):
    """The names that are visible where a function is read, and what its tokens mean there. `lost` are names of statements
    that could not be parsed."""

    __slots__ = ("depth", "ever", "limits", "lost", "unknown")

    def __init__(self, diagnostics: Diagnostics, lost: set[str], limits: Limits) -> None:
        super().__init__(DIALECT.codes, diagnostics)
        self.limits = limits
        self.depth = 0
        self.lost = lost
        self.ever: set[str] = set()  # every name that the function defines anywhere
        self.unknown: list[tuple[Value, Loc]] = []

    def bind(self, value: Value, token: Token) -> None:
        """Define a value at its name; one that is visible already is reported."""
        self.ever.add(value.name)
        self.define(value, token.loc)

    def use(self, token: Token) -> Value:
        """The value that a token names; one that is not there yet is judged when the function is read."""
        name = str(token)[1:]
        if (found := self.lookup(name)) is not None:
            return found
        if name.partition("#")[0] in self.lost:
            return Value(POISON, name)
        value = Value(UNTYPED, name)
        self.unknown.append((value, token.loc))
        return value

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Names defined within are not seen after. Raises LimitExceeded where blocks nest too deep."""
        outer = len(self.values)
        self.depth += 1
        deepest = min(self.limits.nesting, DEPTH)
        if self.depth > deepest:
            raise LimitExceeded(f"blocks nest deeper than {deepest}")
        yield
        self.depth -= 1
        while len(self.values) > outer:
            self.values.popitem()  # the last that was defined

    def report_unknown(self) -> None:
        """What no statement defines; what one defines too late, the verifier tells."""
        for value, at in self.unknown:
            if value.name not in self.ever and value.name.partition("#")[0] not in self.lost:
                help, instead = proposed(value.name, sorted(self.ever))
                self.diagnostics.error("UndefinedValue", f"%{value.name} is not defined", at, help=help, instead=instead)
                value.type = POISON

    def type(self, token: Token) -> Type:
        """The type a token spells; POISON after reporting a bad one."""
        try:
            return parse_type(str(token))
        except TypeSyntaxError as error:
            at = token.start_pos + error.offset
            end = at + error.width if error.width else max(at + 1, token.end_pos)
            self.diagnostics.error(error.code, error.message, pack(at, end), help=error.help, instead=error.instead)
            return POISON

    def types(self, tokens: list[Token] | None) -> list[Type]:
        """The types of a list of tokens."""
        return [self.type(t) for t in tokens or []]

    def operand(self, token: Token) -> Operand:
        """A value, or a literal of type index."""
        return self.use(token) if token.type == "SSA" else literals.index(token)

    def entries(self, s: Statement) -> dict[str, Entry]:
        """The attributes of a statement by key. Raises Violation for one that is there twice."""
        found: dict[str, Entry] = {}
        for e in s.attributes:
            key = literals.unquoted(e.key)
            require(key not in found, "ParseError", f"`{key}` is there twice", at=key)
            found[key] = e
        return found
