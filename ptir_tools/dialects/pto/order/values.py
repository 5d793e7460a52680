"""What values may be where a walk is, and the conditions that comparisons make.

A value is a number in unknowns, or one of several tiles, events or windows of memory, each under a condition (`decisions`).
"""

from __future__ import annotations

from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import I1
from ptir_tools.core.ir import Op, Operand, Value, operand_type
from ptir_tools.core.typed import Any
from ptir_tools.dialects.pto.affine import Linear, atom, linear, most_of, number, parts
from ptir_tools.dialects.pto.order.decisions import ALWAYS, NEVER, Decisions, Number
from ptir_tools.dialects.pto.structure import is_for
from ptir_tools.dialects.pto.types import EventType, MemRefType, TileType, is_integer, scalar_dtype

Alternatives = tuple[tuple[Number, Any], ...]  # what a value may be, each with its condition
BlockValue = tuple[Any, Linear | None]  # options or a condition, and the expression of an index


class Values:
    """The values at a place of an execution."""

    def __init__(self, program: Program) -> None:
        self.program = program
        loops = (op for f in program.functions for op in filter(is_for, f.ops()))
        self.counters = {op.regions[0].params[0]: op for op in loops}
        self.decisions = Decisions()
        self.known: dict[Operand, Any] = {}  # options of tiles, events and memrefs; the condition that an i1 is
        self.index: dict[Value, Linear] = {}
        self.atoms: dict[object, Linear] = {}  # opaque results, by op and operands
        self.nesting = 0  # loops and calls around the next op

    def block_value(self, x: Operand) -> BlockValue:
        t = operand_type(x)
        if t.__class__ in (TileType, EventType, MemRefType):
            return self.options(x), None
        if scalar_dtype(t) is I1:
            return self.condition(x), None
        return None, linear(x, self.index) if is_integer(t) else None

    def bind(self, v: Value, passed: BlockValue) -> None:
        self.known[v] = passed[0]
        if passed[1] is not None:
            self.index[v] = passed[1]
        elif is_integer(v.type):
            self.index[v] = atom(Value(v.type, v.name))

    def options(self, x: Operand) -> Alternatives:
        """The tiles, events or memrefs that a value may be, each with its condition."""
        return self.known.get(x) or ()

    def value(self, x: Operand) -> Linear:
        """The expression of an index."""
        return linear(x, self.index)

    def number(self, v: Value) -> None:
        """Update the expression of an index value. An opaque one is a new unknown in each iteration."""
        again = self.index.pop(v, None) is not None
        x: Operand = v
        if v.op is not None and v.op.defn.short == "select" and isinstance(chosen := self.condition(v.op.operands[0]), int):
            x = v.op.operands[1 if chosen else 2]
        expression = linear(x, self.index)
        if expression.terms != {v: 1} or expression.const:
            self.index[v] = expression
        elif v.op is not None and v.op.defn.is_pure and all(is_integer(operand_type(y)) for y in v.op.operands):
            parts = [linear(y, self.index) for y in v.op.operands]
            key = v.op.defn, v.op.attrs, *parts
            if (made := self.atoms.get(key)) is None:  # equal for equal operands
                self.atoms[key] = made = atom(self.fresh_value(v))
            self.index[v] = made
        elif self.nesting:
            self.index[v] = atom(self.fresh_value(v) if again else v)

    def fresh_value(self, v: Value) -> Value:
        """A copy of a value, as the unknown of this iteration."""
        return Value(v.type, v.name, v.op)

    def unknown_value(self, v: Value) -> BlockValue:
        """A value of which nothing is known."""
        return (self.decisions.fresh() if scalar_dtype(v.type) is I1 else None), None

    def merged_value(self, condition: Number, a: BlockValue, b: BlockValue) -> BlockValue:
        """The value that is `a` where the condition holds, else `b`."""
        d = self.decisions
        index = a[1] if a[1] is not None and b[1] is not None and a[1] == b[1] else None
        if a[0] is b[0]:
            return a[0], index
        if not isinstance(a[0], tuple) and not isinstance(b[0], tuple):
            return d.either(condition, a[0], b[0]), None
        sides = ((condition, a[0] or ()), (d.negated(condition), b[0] or ()))
        options: dict[object, Number] = {}
        for when, side in sides:
            for own, x in side:
                w = d.both(when, own)
                if w != NEVER:
                    before = options.get(x)
                    options[x] = w if before is None else d.either(before, ALWAYS, w)
        return tuple([(w, x) for x, w in options.items()]), None

    # Conditions

    def condition(self, x: Operand) -> Number:
        """The condition that is the value of an i1."""
        if not isinstance(x, Value):
            return int(any(x.data or b"")) if hasattr(x, "data") else self.decisions.fresh()
        if (found := self.known.get(x)) is None:
            self.known[x] = found = self.decisions.fresh()
        return found

    def condition_of(self, op: Op) -> Number:
        """The condition that is the result of an op."""
        short, d = op.defn.short, self.decisions
        if short == "constant":
            return int(any(op.attr("value").data or b""))
        if short in ("andi", "ori", "xori", "select"):
            a, b, *rest = [self.condition(x) for x in op.operands]
            if short == "andi":
                return d.both(a, b)
            return d.either(a, ALWAYS if short == "ori" else d.negated(b) if short == "xori" else b, rest[0] if rest else b)
        if short == "cmpi" and is_integer(operand_type(op.operands[0])):
            return self.comparison(op.attr("predicate").lstrip("s"), *[linear(x, self.index) for x in op.operands])
        return d.fresh()

    def comparison(self, predicate: str, a: Linear, b: Linear) -> Number:
        if predicate in ("lt", "gt"):
            return self.positive(b - a if predicate == "lt" else a - b)
        if predicate in ("le", "ge"):
            return self.decisions.negated(self.positive(a - b if predicate == "le" else b - a))
        if predicate not in ("eq", "ne"):
            return self.decisions.fresh()
        least, more = self.positive(a - b + number(1)), self.positive(a - b)
        equal = self.decisions.both(least, self.decisions.negated(more))
        return equal if predicate == "eq" else self.decisions.negated(equal)

    def positive(self, x: Linear) -> Number:
        """The condition that `x` is greater than 0."""
        if not x.terms:
            return int(x.const > 0)
        most, less = most_of(x, self.counters), most_of(x * -1, self.counters)
        if most is not None and most <= 0:
            return NEVER
        if less is not None and less < 0:
            return ALWAYS
        sign, key = _signed_terms(x)
        if sign > 0:
            return self.decisions.above(key, -x.const)
        return self.decisions.negated(self.decisions.above(key, x.const - 1))


def _signed_terms(x: Linear) -> tuple[int, frozenset[tuple[Value, int]]]:
    """The sign of the first value's term, and the terms multiplied by it."""
    first = min(x.terms, key=id)
    sign = 1 if x.terms[first] > 0 else -1
    return sign, frozenset(parts(x * sign))
