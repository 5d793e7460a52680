"""Numbers that depend on conditions, as reduced ordered decision diagrams, so that paths need not be enumerated.

A `Number` is an int, or a `Choice` between two numbers by one condition (a variable). Equal numbers are one object. A
condition is itself a number with the leaves 0 and 1. A diagram deeper than MAX_DEPTH is replaced by its least number. The
number of nodes and of cached results is bounded.
"""

from __future__ import annotations

from collections.abc import Hashable, Sized

MAX_DEPTH = 96  # variables on one path through a diagram
MAX_NODES = 20_000  # of the diagrams of one function
MAX_ANSWERS = 200_000  # about pairs of them, of which there are many more


class Undecided(Exception):
    """A `Choice` was compared with a number by `<` or `>`: the result depends on conditions."""


class TooManyConditions(Exception):
    """MAX_NODES or MAX_ANSWERS was exceeded."""


class Choice:
    """`then` where the variable holds, else `otherwise`; `least` and `most` are over all paths."""

    __slots__ = ("depth", "least", "most", "otherwise", "then", "variable")

    def __init__(self, variable: int, then: Number, otherwise: Number) -> None:
        self.variable = variable
        self.then = then
        self.otherwise = otherwise
        depth, low, high = (then.depth, then.least, then.most) if isinstance(then, Choice) else (0, then, then)
        other = (otherwise.depth, otherwise.least, otherwise.most) if isinstance(otherwise, Choice) else (0, otherwise, otherwise)
        self.depth: int = 1 + max(depth, other[0])
        self.least: int = min(low, other[1])
        self.most: int = max(high, other[2])

    def __lt__(self, other: Number) -> bool:
        raise Undecided

    __gt__ = __le__ = __ge__ = __lt__


Number = int | Choice
ALWAYS, NEVER = 1, 0


def least(x: Number) -> int:
    """The least value of a number over all conditions."""
    return x if isinstance(x, int) else x.least


class Decisions:
    """The variables and diagrams of one function. The newest variable is tested first."""

    def __init__(self) -> None:
        self.nodes: dict[tuple[int, Number, Number], Choice] = {}
        self.results: dict[tuple[Hashable, ...], Number] = {}
        self.leasts: dict[tuple[Choice, Choice], int] = {}
        self.variables = 0
        self.narrowed = False  # whether a diagram was too deep to be kept
        self.bounds: dict[Hashable, dict[int, Number]] = {}

    def make(self, variable: int, then: Number, otherwise: Number) -> Number:
        if then is otherwise or then == otherwise:
            return then
        key = (variable, then, otherwise)
        if (found := self.nodes.get(key)) is None:
            if len(self.nodes) >= MAX_NODES:
                raise TooManyConditions
            self.nodes[key] = found = Choice(variable, then, otherwise)
        if found.depth > MAX_DEPTH:
            self.narrowed = True
            return found.least if found.most > 1 else found
        return found

    def room(self, known: Sized) -> None:
        """Raise TooManyConditions when a table has MAX_ANSWERS entries."""
        if len(known) >= MAX_ANSWERS:
            raise TooManyConditions

    def fresh(self) -> Number:
        """A new condition of which nothing is known."""
        self.variables += 1
        return self.make(self.variables, ALWAYS, NEVER)

    def above(self, key: Hashable, bound: int) -> Number:
        """The condition that the unknown integer called `key` is greater than `bound`. It implies those of lesser bounds, in
        any order of calls."""
        known = self.bounds.setdefault(key, {})
        if bound not in known:
            above = known[min(greater)] if (greater := [b for b in known if b > bound]) else 0
            made = self.either(above, ALWAYS, self.fresh())
            known[bound] = self.both(known[max(lesser)], made) if (lesser := [b for b in known if b < bound]) else made
        return known[bound]

    def either(self, condition: Number, then: Number, otherwise: Number) -> Number:
        """`then` where the condition holds, else `otherwise`."""
        if isinstance(condition, int):
            return then if condition else otherwise
        if then is otherwise or then == otherwise:
            return then
        key = ("either", condition, then, otherwise)
        if (found := self.results.get(key)) is None:
            self.room(self.results)
            top = max([x.variable for x in (condition, then, otherwise) if isinstance(x, Choice)])
            (c, a, b), (d, x, y) = zip(_cofactors(condition, top), _cofactors(then, top), _cofactors(otherwise, top), strict=True)
            self.results[key] = found = self.make(top, self.either(c, a, b), self.either(d, x, y))
        return found

    def both(self, a: Number, b: Number) -> Number:
        """The conjunction of two conditions."""
        if a is b or b == 1 or a == 0:
            return a
        if a == 1 or b == 0:
            return b
        return self.either(a, b, NEVER)

    def negated(self, a: Number) -> Number:
        """The negation of a condition."""
        return self.either(a, NEVER, ALWAYS)

    def greater(self, a: Number, b: Number) -> Number:
        """The greater of two numbers."""
        if isinstance(a, int) and isinstance(b, int):
            return a if a > b else b
        if a is b:
            return a
        if isinstance(b, int):
            a, b = b, a
        assert isinstance(b, Choice)
        if (a if isinstance(a, int) else a.most) <= b.least:
            return b
        if (a if isinstance(a, int) else a.least) >= b.most:
            return a
        key = ("greater", a, b)
        if (found := self.results.get(key)) is None:
            self.room(self.results)
            top = max(b.variable, a.variable) if isinstance(a, Choice) else b.variable
            (a0, a1), (b0, b1) = _cofactors(a, top), _cofactors(b, top)
            self.results[key] = found = self.make(top, self.greater(a0, b0), self.greater(a1, b1))
        return found

    def least(self, x: Number, when: Number) -> int:
        """The least that `x` is where the condition `when` holds somewhere."""
        if isinstance(x, int):
            return x
        if isinstance(when, int):
            return x.least
        key = (x, when)
        if (found := self.leasts.get(key)) is None:
            self.room(self.leasts)
            top = max(x.variable, when.variable)
            sides = zip(_cofactors(x, top), _cofactors(when, top), strict=True)
            self.leasts[key] = found = min([self.least(y, w) for y, w in sides if w != NEVER])
        return found


def _cofactors(x: Number, variable: int) -> tuple[Number, Number]:
    """`x` where the variable holds, and where it does not."""
    return (x.then, x.otherwise) if isinstance(x, Choice) and x.variable == variable else (x, x)
