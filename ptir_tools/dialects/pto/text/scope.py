"""What names, types and operands in a function mean: names that are visible, and those that nothing defines yet."""

from __future__ import annotations

from collections.abc import Iterable

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Scope
from ptir_tools.core.ir import Operand, Value
from ptir_tools.core.source import LENGTH_BITS, Loc
from ptir_tools.core.types import POISON, UNTYPED, Type
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.pto import DIALECT
from ptir_tools.dialects.pto.text import literals
from ptir_tools.dialects.pto.text.syntax import File
from ptir_tools.dialects.pto.text.types import parse_type
from ptir_tools.grammars.parser import Node, Token


class FunctionScope(Scope):
    """The names of one function. A name may be used before it is defined; what is wrong with it is reported at its end."""

    __slots__ = ("ever", "file", "unknown")

    def __init__(self, diagnostics: Diagnostics, file: File) -> None:
        super().__init__(DIALECT.codes, diagnostics)
        self.file = file
        self.ever: set[str] = set()  # every name that the function defines anywhere
        self.unknown: list[tuple[Value, Loc]] = []

    def bind(self, value: Value, token: Token) -> None:
        """Define a value at its name; one that is visible already is reported."""
        self.ever.add(value.name)
        self.define(value, token.loc)

    def use(self, token: Token) -> Value:
        """The value that a token names; one that is not there yet is judged when the function is read."""
        name = str(token)[1:]
        if (found := self.values.get(name)) is not None:
            return found
        if name.partition("#")[0] in self.file.lost:
            return Value(POISON, name)
        value = Value(UNTYPED, name)
        self.unknown.append((value, token.loc))
        return value

    def report_unknown(self) -> None:
        """What no statement defines; what one defines too late, the verifier tells."""
        known = sorted(self.ever)
        for value, at in self.unknown:
            if value.name not in self.ever and value.name.partition("#")[0] not in self.file.lost:
                help, instead = self.diagnostics.proposed(value.name, known)
                self.diagnostics.error("UndefinedValue", f"%{value.name} is not defined", at, help=help, instead=instead)
                value.type = POISON

    def type(self, token: Token) -> Type:
        """The type a token spells; POISON after reporting a bad one."""
        try:
            return parse_type(str(token))
        except Violation as v:
            at = v.loc + (token.start_pos << LENGTH_BITS) if v.loc else token.loc
            self.diagnostics.error(v.code, v.message, at, help=v.help, instead=v.instead)
            return POISON

    def types(self, tokens: Iterable[Token] | None) -> list[Type]:
        """The types of a list of tokens."""
        return [self.type(t) for t in tokens or ()]

    def operand(self, token: Token) -> Operand:
        """A value, or a literal of type index."""
        return self.use(token) if token.type == "SSA" else literals.index(token)

    def operands(self, nodes: Iterable[Node]) -> list[Operand]:
        """The operands of nodes that begin with one."""
        return [self.operand(x.token()) for x in nodes]
