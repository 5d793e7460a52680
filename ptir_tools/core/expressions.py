"""Integer expressions over symbols: extents (`H*D`, `Cout//G`) and the entries of a VIEW's index map.

An expression is kept as a polynomial in normal form whose atoms are names and quotients. So equal polynomials have equal text,
and a core symbol named by that text is one object per polynomial. `//` and `%` round toward minus infinity. The axes
of an index map are atoms named `@0`, `@1`, …, which no program can write.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from itertools import product as pairs
from math import gcd, prod

from ptir_tools.core.arrays import Array
from ptir_tools.core.lazy import regex
from ptir_tools.core.records import dataclass
from ptir_tools.core.types import Dim, Sym, sym
from ptir_tools.core.violations import Violation

MAX_TERMS = 256
MAX_DEPTH = 64
MAX_DIGITS = 19

Interval = tuple[int, int]


Integers = int | Array


class NoDivisor(Violation):
    """A number below 1 divides."""


@dataclass(slots=True, frozen=True)
class Quotient:
    """`left // right` or `left % right`, as an atom."""

    op: str
    left: Poly
    right: Poly

    def __str__(self) -> str:
        left = str(self.left) if self.left.is_plain else f"({self.left})"
        return f"{left}{self.op}{self.right if self.right.is_plain else f'({self.right})'}"


Atom = str | Quotient
Monomial = tuple[Atom, ...]


@dataclass(slots=True, frozen=True)
class Poly:
    """A sum of monomials with integer coefficients; build it with `constant`, `name` and the operators."""

    terms: tuple[tuple[Monomial, int], ...]

    def __add__(self, other: Poly) -> Poly:
        return _collect((*self.terms, *other.terms))

    def __neg__(self) -> Poly:
        return _collect((m, -c) for m, c in self.terms)

    def __sub__(self, other: Poly) -> Poly:
        return self + -other

    def __mul__(self, other: Poly) -> Poly:
        return _collect(((*a, *b), c * d) for (a, c), (b, d) in pairs(self.terms, other.terms))

    def __floordiv__(self, other: Poly) -> Poly:
        return _quotient("//", self, other)

    def __mod__(self, other: Poly) -> Poly:
        return _quotient("%", self, other)

    @property
    def value(self) -> int | None:
        """The number it is, or None."""
        if not self.terms:
            return 0
        return self.terms[0][1] if self.terms == (((), self.terms[0][1]),) else None

    @property
    def is_plain(self) -> bool:
        """Whether it needs no parentheses as an operand: a name or a number that is not negative."""
        if self.value is not None:
            return self.value >= 0
        return len(self.terms) == 1 and self.terms[0][1] == 1 and len(m := self.terms[0][0]) == 1 and isinstance(m[0], str)

    def names(self) -> Iterator[str]:
        """The names in it, in order, with repetitions."""
        for m, _ in self.terms:
            for a in m:
                if isinstance(a, str):
                    yield a
                else:
                    yield from a.left.names()
                    yield from a.right.names()

    def quotients(self) -> int:
        """How many `//` and `%` there are in it."""
        inner = [a for m, _ in self.terms for a in m if isinstance(a, Quotient)]
        return len(inner) + sum(a.left.quotients() + a.right.quotients() for a in inner)

    def put(self, values: Mapping[str, Poly]) -> Poly:
        """It with names replaced by expressions."""
        total = constant(0)
        for m, c in self.terms:
            product = constant(c)
            for a in m:
                product = product * (values.get(a, name(a)) if isinstance(a, str) else _put_quotient(a, values))
            total = total + product
        return total

    def evaluate(self, values: Mapping[str, Integers]) -> Integers:
        """Its value where every name is an integer or an array of integers."""
        total: Integers = 0
        for m, c in self.terms:
            product: Integers = c
            for a in m:
                product = product * (values[a] if isinstance(a, str) else _evaluate_quotient(a, values))
            total = total + product
        return total

    def interval(self, ranges: Mapping[str, Interval]) -> Interval:
        """Bounds, both inclusive, of its values where every name lies in its range and every divisor is positive."""
        low = high = 0
        for m, c in self.terms:
            a, b = c, c
            for atom in m:
                ends = [x * y for x in (a, b) for y in (ranges[atom] if isinstance(atom, str) else _bounds(atom, ranges))]
                a, b = min(ends), max(ends)
            low, high = low + a, high + b
        return low, high

    def magnitude(self, ranges: Mapping[str, Interval]) -> int:
        """A bound on the absolute value of every intermediate result where every name lies in its range."""
        return sum(abs(c) * prod(_atom_magnitude(a, ranges) for a in m) for m, c in self.terms)

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        text = "".join(("-" if c < 0 else "+") + _monomial_text(m, abs(c), c < 0) for m, c in self.terms)
        return text.removeprefix("+")


def constant(value: int) -> Poly:
    """The polynomial of a number."""
    return Poly((((), value),) if value else ())


def name(text: str) -> Poly:
    """The polynomial of a name."""
    return term((text,))


def term(m: Monomial, coefficient: int = 1) -> Poly:
    """The polynomial of one term; the coefficient is not 0."""
    return Poly(((m, coefficient),))


def total(addends: Iterable[Poly]) -> Poly:
    """A sum of any number of terms; the operators refuse one of more than MAX_TERMS."""
    return _collect((t for p in addends for t in p.terms), sys.maxsize)


def _collect(terms: Iterable[tuple[Monomial, int]], most: int = MAX_TERMS) -> Poly:
    totals: dict[Monomial, int] = {}
    for m, c in terms:
        m = tuple(sorted(m, key=str)) if len(m) > 1 else m
        totals[m] = totals.get(m, 0) + c
    if len(totals) > most:
        raise Violation("InvalidArg", f"an expression of more than {MAX_TERMS} terms")
    kept = [(m, c) for m, c in totals.items() if c]
    return Poly(tuple(kept if len(kept) < 2 else sorted(kept, key=lambda t: (t[1] < 0, -len(t[0]), _monomial_text(t[0], 1)))))


def _monomial_text(m: Monomial, coefficient: int, negative: bool = False) -> str:
    alone = len(m) == 1 and coefficient == 1 and not negative  # a leading minus binds closer than `//`
    factors = [str(a) if isinstance(a, str) or alone else f"({a})" for a in m]
    return "*".join(([str(coefficient)] if coefficient != 1 or not m else []) + factors)


def _quotient(op: str, left: Poly, right: Poly) -> Poly:
    """The quotient, rounded down, or its remainder, for every positive divisor. Terms that the divisor divides are taken out of a
    quotient and dropped from a remainder; then a common factor is canceled. Raises NoDivisor."""
    divisor = right.value
    if divisor is not None and divisor <= 0:
        raise NoDivisor("InvalidArg", f"the divisor of `{left}{op}{right}` is not positive")
    whole, rest = (constant(1), constant(0)) if left == right else _taken_out(left, right)
    if divisor is not None and (number := rest.value) is not None:
        return constant(number % divisor) if op == "%" else whole + constant(number // divisor)
    if not rest.terms:
        return whole if op == "//" else rest
    common = gcd(*(c for p in (rest, right) for _, c in p.terms))
    rest, right = (Poly(tuple((m, c // common) for m, c in p.terms)) for p in (rest, right))
    atom = term((Quotient(op, rest, right),))
    return whole + atom if op == "//" else atom * constant(common)


def _taken_out(left: Poly, right: Poly) -> tuple[Poly, Poly]:
    """The terms of `left` that the only term of `right` divides, divided by it, and the other terms."""
    if len(right.terms) != 1:
        return constant(0), left
    (by, n), whole, rest = right.terms[0], list[tuple[Monomial, int]](), list[tuple[Monomial, int]]()
    for m, c in left.terms:
        if c % n or Counter(by) - Counter(m):
            rest.append((m, c))
        else:
            whole.append((tuple((Counter(m) - Counter(by)).elements()), c // n))
    return _collect(whole), Poly(tuple(rest))


def _put_quotient(a: Quotient, values: Mapping[str, Poly]) -> Poly:
    return _quotient(a.op, a.left.put(values), a.right.put(values))


def _evaluate_quotient(a: Quotient, values: Mapping[str, Integers]) -> Integers:
    left, right = a.left.evaluate(values), a.right.evaluate(values)
    return left // right if a.op == "//" else left % right


def _bounds(a: Quotient, ranges: Mapping[str, Interval]) -> Interval:
    ends, divisors = a.left.interval(ranges), [max(d, 1) for d in a.right.interval(ranges)]
    quotients = [n // d for n in ends for d in divisors]
    if a.op == "//":
        return min(quotients), max(quotients)
    same = len({*divisors}) == 1 and len({*quotients}) == 1
    return (ends[0] % divisors[0], ends[1] % divisors[0]) if same else (0, divisors[1] - 1)


def _atom_magnitude(a: Atom, ranges: Mapping[str, Interval]) -> int:
    if isinstance(a, str):
        return max(map(abs, ranges[a]))
    return a.left.magnitude(ranges) + a.right.magnitude(ranges)


_TOKEN = regex(r"\s*(?:(?P<number>\d+)|(?P<name>@?[^\W\d][\w']*|@\d+)|(?P<op>//|[-+*%(),])|(?P<end>\Z)|(?P<bad>.))", re.S)


class _Parser:
    """`sum = term {(+|-) term}`, `term = unary {(*|//|%) unary}`, `unary = -unary | atom`; also `floordiv(e, q)`, `mod(e, q)`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [(m.lastgroup or "", m[m.lastgroup or 0]) for m in _TOKEN.finditer(text)]
        self.at = 0
        self.depth = 0

    def fail(self, what: str) -> Violation:
        return Violation("InvalidArg", f"`{self.text[:60]}` is not an integer expression: {what}", at=self.text)

    def parse(self) -> Poly:
        result = self.sum()
        if self.tokens[self.at][0] != "end":
            raise self.fail(f"`{self.tokens[self.at][1]}` does not fit there")
        return result

    def take(self, *ops: str) -> str:
        kind, text = self.tokens[self.at]
        if kind == "op" and text in ops:
            self.at += 1
            return text
        return ""

    def expect(self, op: str) -> None:
        if not self.take(op):
            raise self.fail(f"`{op}` is missing")

    def sum(self) -> Poly:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.fail(f"nested deeper than {MAX_DEPTH}")
        result = self.term()
        while op := self.take("+", "-"):
            result = result + self.term() if op == "+" else result - self.term()
        self.depth -= 1
        return result

    def term(self) -> Poly:
        result = self.unary()
        while op := self.take("*", "//", "%"):
            right = self.unary()
            result = result * right if op == "*" else result // right if op == "//" else result % right
        return result

    def unary(self) -> Poly:
        negative = False
        while self.take("-"):
            negative = not negative
        return -self.atom() if negative else self.atom()

    def atom(self) -> Poly:
        if self.take("("):
            result = self.sum()
            self.expect(")")
            return result
        kind, text = self.tokens[self.at]
        self.at += kind != "end"
        if kind == "number":
            if len(text) > MAX_DIGITS:
                raise self.fail(f"a number of {len(text)} digits")
            return constant(int(text))
        if kind == "name":
            return self.call(text) if text in ("floordiv", "mod") and self.take("(") else name(text)
        raise self.fail("it ends too early" if kind == "end" else f"`{text}` does not fit there")

    def call(self, function: str) -> Poly:
        left = self.sum()
        self.expect(",")
        right = self.sum()
        self.expect(")")
        return left // right if function == "floordiv" else left % right


@lru_cache(maxsize=65536)
def parse(text: str) -> Poly:
    """The polynomial of `text`. Raises Violation("InvalidArg") for what is not an expression."""
    return _Parser(text).parse()


def to_dim(p: Poly) -> Dim:
    """A polynomial as an extent: a number, or the symbol named by its text."""
    return sym(str(p)) if (value := p.value) is None else value


def of_dim(d: Dim) -> Poly:
    """An extent as a polynomial."""
    return constant(d) if isinstance(d, int) else parse(d.name)


def product(shape: Iterable[Dim]) -> Poly:
    """The number of elements of a shape."""
    dims = tuple(shape)
    numbers = prod(d for d in dims if isinstance(d, int))
    total = constant(numbers)
    for d in dims:
        if isinstance(d, Sym):
            total = total * of_dim(d)
    return total


def put(d: Dim, numbers: Mapping[str, int]) -> Dim:
    """An extent with names replaced by numbers."""
    if isinstance(d, int):
        return d
    known = {n: constant(numbers[n]) for n in names(d.name) if n in numbers}
    return to_dim(parse(d.name).put(known)) if known else d


@cache
def names(text: str) -> tuple[str, ...]:
    """The symbols in an expression's text, each once. The axes of an index map are not symbols."""
    return tuple(dict.fromkeys(n for n in parse(text).names() if not n.startswith("@")))


def symbols_in(s: Sym) -> tuple[Sym, ...]:
    """The symbols in an extent or an entry of an index map."""
    return tuple(map(sym, names(s.name)))


def linear(p: Poly, unknown: str) -> tuple[Poly, Poly] | None:
    """`a` and `b`, which have no `unknown`, where `p` is `a * unknown + b`; None where it is not, or `a` is 0."""
    scale, rest = constant(0), constant(0)
    for m, c in p.terms:
        having = [a for a in m if a == unknown or (isinstance(a, Quotient) and unknown in (*a.left.names(), *a.right.names()))]
        if not having:
            rest = rest + term(m, c)
        elif having == [unknown]:
            scale = scale + term(tuple(a for a in m if a != unknown), c)
        else:
            return None
    return (scale, rest) if scale.terms else None


def solve_power(p: Poly, total: int) -> tuple[str, int | None] | None:
    """The same for a number times a power of one name, as `D*D` is."""
    if len(p.terms) != 1 or len({*p.terms[0][0]}) != 1 or not isinstance(unknown := p.terms[0][0][0], str):
        return None
    power, (whole, rest) = len(p.terms[0][0]), divmod(total, p.terms[0][1])
    root = round(abs(whole) ** (1 / power))
    return unknown, root if rest == 0 and root**power == whole else None


def solve_linear(p: Poly, total: int) -> tuple[str, int | None] | None:
    """The one name in `p` and the number that makes `p` equal to `total` (None when no whole number does).

    None when `p` has not exactly one name or is not linear in it.
    """
    unknowns = set(p.names())
    if len(unknowns) != 1 or any(m and (len(m) > 1 or not isinstance(m[0], str)) for m, _ in p.terms):
        return None
    (unknown,) = unknowns
    by = dict(p.terms)
    scale, offset = by[(unknown,)], by.get((), 0)
    whole, rest = divmod(total - offset, scale)
    return unknown, whole if rest == 0 and whole >= 0 else None
