"""Statements that differ from one before them in names alone: they are read from memory, without the grammar."""

from __future__ import annotations

import re
from collections.abc import Mapping
from operator import attrgetter

from ptir_tools.core.ir import Attribute, Op, OpDef, Value, operand_type
from ptir_tools.core.source import Loc
from ptir_tools.core.types import POISON, Type

_type = attrgetter("type")
LONGEST = 500  # characters of a statement: longer ones hold constants, and seldom come twice


class Repeats:
    """What was made of statements that the line reader takes, by what they say besides names, and by the types of operands.

    The group `id` of a match is the name of its result, `operands` lists names; the groups `said` are the rest.
    """

    def __init__(self, *said: str) -> None:
        self.groups = ("id", "operands", *said)
        self.made: dict[tuple[object, ...], tuple[OpDef, tuple[Attribute, ...], Type]] = {}

    def op(self, m: re.Match[str], values: Mapping[str, Value], at: Loc) -> Op | None:
        """The op of a statement; None when none before was like it, or a name is not known."""
        said = m.group(*self.groups)
        name, listed = said[:2]
        if (operands := self.operands(listed, values)) is None:
            return None
        found = self.made.get((said[2:], *map(_type, operands)))
        if found is None:
            return None
        defn, attrs, t = found
        op = Op(defn, operands, attrs, (), (), at)
        op.results = (Value(t, name[1:], op),)
        return op

    @staticmethod
    def operands(listed: str | None, values: Mapping[str, Value]) -> tuple[Value, ...] | None:
        """The values in a list of names; None when one is not known, or is not all of an operand."""
        try:
            return tuple(map(values.__getitem__, listed.strip("(%)").split(", %"))) if listed else ()
        except KeyError:
            return None

    def learn(self, m: re.Match[str], op: Op) -> None:
        """Keep what the grammar made of a statement; there was nothing to report."""
        alone = op.result.op is op and op.result.type is not POISON and not op.defn.regions
        if alone and m.end() - m.start() < LONGEST:
            key = m.group(*self.groups)[2:], *map(operand_type, op.operands)
            self.made[key] = op.defn, op.attrs, op.result.type
