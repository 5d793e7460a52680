"""The values of a region as expressions of its parameters: what a reducer combines, and what a comparator compares."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from ptir_tools.bridges.stablehlo.scopes import read_names
from ptir_tools.bridges.stablehlo.syntax import Block, Statement
from ptir_tools.bridges.stablehlo.table import Site
from ptir_tools.grammars.parser import Token

# Ops of two operands in any order, and ops that their operands determine alone.
_EITHER_WAY = {f"stablehlo.{name}" for name in ("add", "multiply", "maximum", "minimum", "and", "or", "xor")}
_PLAIN = {*_EITHER_WAY, "stablehlo.select"}


class Terms:
    """Each value as a number, the same for equal expressions: of an op, and the numbers of its operands."""

    def __init__(self, site: Site, region: Block, parameter: Callable[[int], int] = lambda k: k) -> None:
        self.site = site
        self.numbers: dict[object, int] = {}
        self.ops: list[tuple[object, Collection[int]]] = []  # by number
        self.reads: list[set[int]] = []  # the parameters that an expression depends on, by number
        self.named = {str(p.name): self.parameter(parameter(k)) for k, p in enumerate(region.params)}
        for s in region.body:
            operands = [self.of(t) for t in read_names(s.pieces)]
            number = self.number(*self._op(s, operands))
            self.named |= {f"%{name}": number for name, count in s.results if count == 1}

    def number(self, op: object, operands: Collection[int] = (), reads: Collection[int] = ()) -> int:
        """The number of an expression."""
        found = self.numbers.setdefault((op, operands), len(self.ops))
        if found == len(self.ops):
            self.ops.append((op, operands))
            self.reads.append(set(reads).union(*(self.reads[x] for x in operands)))
        return found

    def parameter(self, k: int) -> int:
        """The number of parameter `k`."""
        return self.number(("parameter", k), reads=[k])

    def of(self, name: str) -> int:
        """The number of the value `%name`, which may be an outer one."""
        return self.named[str(name)] if str(name) in self.named else self.number(("outer", str(name)))

    def both(self, op: object, a: int, b: int) -> int:
        """The number of an op on two operands in any order."""
        return self.number(op, frozenset((a, b)))

    def _op(self, s: Statement, operands: list[int]) -> tuple[object, Collection[int]]:
        if s.name == "stablehlo.compare":
            at = Site(self.site.scope, s, {})
            direction = at.words[0] if at.words else at.word("comparison_direction")
            kind = at.words[1] if len(at.words) > 1 else at.word("compare_type", "")
            op = ("compare", direction, kind == "TOTALORDER")
            return op, frozenset(operands) if direction in ("EQ", "NE") else tuple(operands)
        if next(s.regions(), None) is not None:
            return ("region", id(s)), tuple(operands)
        if s.name in _PLAIN:
            return s.name, frozenset(operands) if s.name in _EITHER_WAY and len(operands) == 2 else tuple(operands)
        return (s.name, *map(str, _words(s.pieces)), str(s.returned or s.given)), tuple(operands)


def _words(pieces: list[object]) -> Iterator[object]:
    """What an op is written with, except its operands."""
    for piece in pieces:
        if type(piece) is list:
            yield from _words(piece)
        elif not isinstance(piece, Token) or piece.type != "SSA":
            yield piece
