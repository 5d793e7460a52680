"""Integer expressions over symbols: extents (`H*D`, `Cout//G`) and the entries of a VIEW's index map.

An expression is kept as a polynomial in normal form (`Sum`). Its atoms are quotients and maxima with 0, and names or other
unknowns. So equal polynomials have equal text, and the symbol of a polynomial is one object. `//` and `%` round toward minus
infinity. The axes of an index map are atoms named `@0`, `@1`, …, which no program can write.
"""

from __future__ import annotations

import operator
import re
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import cache, lru_cache, reduce
from itertools import product as pairs
from math import gcd, prod

from ptir_tools.core.arrays import Array
from ptir_tools.core.lazy import np, regex
from ptir_tools.core.records import dataclass
from ptir_tools.core.typed import ClassVar, Generic, TypeAlias, TypeVar
from ptir_tools.core.types import Dim, Sym, composed, sym
from ptir_tools.core.violations import Violation

MAX_TERMS = 256
MAX_DEPTH = 64
MAX_DIGITS = 19

Interval = tuple[int, int]


Integers = int | Array


class NoDivisor(Violation):
    """A divisor is below 1."""


A = TypeVar("A", bound="Hashable")  # an atom: a name, or an unknown value
T = TypeVar("T")


@dataclass(slots=True, frozen=True)
class Quotient(Generic[A]):
    """`left // right`, `left % right` or `max(left, right)`, as an atom. The operand `right` of a maximum is 0."""

    op: str
    left: Sum[A]
    right: Sum[A]

    def __str__(self) -> str:
        if self.op == "max":
            return f"max({self.left},{self.right})"
        left = str(self.left) if self.left.is_plain else f"({self.left})"
        return f"{left}{self.op}{self.right if self.right.is_plain else f'({self.right})'}"


class Sum(Generic[A]):
    """A number and a sum of products of atoms with integer coefficients; build it with `constant`, `name` and the operators.

    `terms` has the coefficients, none of which is 0, in no order. Its keys are atoms, and tuples of two or more of them for
    products. Equal sums have equal parts, if atoms of a product with equal text are equal.
    """

    __slots__ = ("_hash", "_ordered", "const", "terms")

    def __init__(self, const: int, terms: Mapping[Key[A], int]) -> None:
        self.const = const
        self.terms = terms

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sum) and self.const == other.const and self.terms == other.terms

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            self._hash: int = hash((self.const, frozenset(self.terms.items())))
            return self._hash

    def __repr__(self) -> str:
        return f"Sum({self})"

    def __add__(self, other: Sum[A]) -> Sum[A]:
        if not other.terms:
            return Sum(self.const + other.const, self.terms) if other.const else self
        terms = dict(self.terms)
        for m, c in other.terms.items():
            terms[m] = terms.get(m, 0) + c
        return _checked(Sum(self.const + other.const, {m: c for m, c in terms.items() if c}))

    def __neg__(self) -> Sum[A]:
        return self * -1

    def __sub__(self, other: Sum[A]) -> Sum[A]:
        return self + other * -1

    def __mul__(self, other: Sum[A] | int) -> Sum[A]:
        if isinstance(other, Sum) and other.terms and self.terms:
            return collect(((*a, *b), c * d) for (a, c), (b, d) in pairs(self.monomials, other.monomials))
        k, sum = (other, self) if isinstance(other, int) else (self.const, other) if other.terms else (other.const, self)
        if k == 1:
            return sum
        return Sum(sum.const * k, {m: c * k for m, c in sum.terms.items()} if k else {})

    def __floordiv__(self, other: Sum[A]) -> Sum[A]:
        return _quotient("//", self, other)

    def __mod__(self, other: Sum[A]) -> Sum[A]:
        return _quotient("%", self, other)

    @property
    def value(self) -> int | None:
        """The value of a constant sum; None if the sum has terms."""
        return None if self.terms else self.const

    @property
    def monomials(self) -> tuple[tuple[Monomial[A], int], ...]:
        """The atoms and the coefficient of each term, in a fixed order. The number is a term without atoms, unless it is 0."""
        try:
            return self._ordered
        except AttributeError:
            found = [(_atoms(m), c) for m, c in self.terms.items()] + ([((), self.const)] if self.const else [])
            if len(found) > 1:
                found.sort(key=lambda t: (t[1] < 0, -len(t[0]), _monomial_text(t[0], 1)))
            self._ordered: tuple[tuple[Monomial[A], int], ...] = tuple(found)
            return self._ordered

    @property
    def is_plain(self) -> bool:
        """Whether the sum needs no parentheses as an operand: it is a name or a number that is not negative."""
        if not self.terms or self.const:
            return not self.terms and self.const >= 0
        (m, c), *others = self.terms.items()
        return c == 1 and not others and not isinstance(m, tuple | Quotient)

    def names(self) -> Iterator[A]:
        """The names in the sum, in order, with repetitions."""
        for m, _ in self.monomials:
            for a in m:
                if isinstance(a, Quotient):
                    yield from a.left.names()
                    yield from a.right.names()
                else:
                    yield a

    def quotients(self) -> int:
        """The number of `//`, `%` and `max` in the sum."""
        inner = [a for m, _ in self.monomials for a in m if isinstance(a, Quotient)]
        return len(inner) + sum(a.left.quotients() + a.right.quotients() for a in inner)

    def put(self, values: Mapping[A, Sum[A]]) -> Sum[A]:
        """The sum with names replaced by expressions."""
        total: Sum[A] = Sum(self.const, {})
        for m, c in self.terms.items():
            product: Sum[A] = Sum(c, {})
            for a in _atoms(m):
                product = product * (_put_quotient(a, values) if isinstance(a, Quotient) else values.get(a) or term((a,)))
            total = total + product
        return total

    def evaluate(self, values: Mapping[A, Integers]) -> Integers:
        """The value, for an integer or an array of integers per name."""
        total: Integers = self.const
        for m, c in self.terms.items():
            product: Integers = c
            for a in _atoms(m):
                product = product * (_evaluate_quotient(a, values) if isinstance(a, Quotient) else values[a])
            total = total + product
        return total

    def built(self, name: Callable[[A], T], number: Callable[[int], T], combined: Callable[[str, T, T | int], T]) -> T:
        """What the sum is elsewhere, as text or as ops. `combined` makes the sum, product, quotient, remainder or maximum (`+`,
        `*`, `//`, `%`, `max`) of two; a coefficient is an integer."""

        def atom(a: Atom[A]) -> T:
            if not isinstance(a, Quotient):
                return name(a)
            left, right = (x.built(name, number, combined) for x in (a.left, a.right))
            return combined(a.op, left, right)

        terms: list[T] = []
        for m, c in self.monomials:
            whole = reduce(lambda x, y: combined("*", x, y), map(atom, m)) if m else number(c)
            terms.append(combined("*", whole, c) if m and c != 1 else whole)
        return reduce(lambda x, y: combined("+", x, y), terms) if terms else number(0)

    def interval(self, ranges: Mapping[A, Interval]) -> Interval:
        """Inclusive bounds of the value, if every name lies in its range and every divisor is positive."""
        low = high = self.const
        for m, c in self.terms.items():
            a, b = c, c
            for atom in _atoms(m):
                ends = [x * y for x in (a, b) for y in (_bounds(atom, ranges) if isinstance(atom, Quotient) else ranges[atom])]
                a, b = min(ends), max(ends)
            low, high = low + a, high + b
        return low, high

    def magnitude(self, ranges: Mapping[A, Interval]) -> int:
        """A bound on the absolute value of every intermediate result, if every name lies in its range."""
        return abs(self.const) + sum(abs(c) * prod(_atom_magnitude(a, ranges) for a in _atoms(m)) for m, c in self.terms.items())

    def __str__(self) -> str:
        if not self.monomials:
            return "0"
        text = "".join(("-" if c < 0 else "+") + _monomial_text(m, abs(c), c < 0) for m, c in self.monomials)
        return text.removeprefix("+")


Atom: TypeAlias = "A | Quotient[A]"
Monomial: TypeAlias = "tuple[Atom[A], ...]"
Key: TypeAlias = "Atom[A] | tuple[Atom[A], ...]"  # of a sum: an atom by itself, or several
Poly = Sum[str]  # over the names of symbols


def constant(value: int) -> Poly:
    """The polynomial of a number."""
    return Sum(value, {})


def name(text: str) -> Poly:
    """The polynomial of a name."""
    return Sum(0, {text: 1})


def term(m: Monomial[A], coefficient: int = 1) -> Sum[A]:
    """The sum of one term; the coefficient is not 0."""
    return Sum(0, {_key(m): coefficient}) if m else Sum(coefficient, {})


def of_quotient(q: Quotient[A]) -> Sum[A]:
    """The sum that is a quotient, remainder or maximum."""
    return Sum(0, {q: 1})


def total(addends: Iterable[Poly]) -> Poly:
    """A sum of any number of terms; the operators refuse one of more than MAX_TERMS."""
    return collect((t for p in addends for t in p.monomials), sys.maxsize)


def _atoms(m: Key[A]) -> Monomial[A]:
    return m if isinstance(m, tuple) else (m,)


def _key(m: Monomial[A]) -> Key[A]:
    return m[0] if len(m) == 1 else tuple(sorted(m, key=str))


def _checked(made: Sum[A], most: int = MAX_TERMS) -> Sum[A]:
    if len(made.terms) > most:
        raise Violation("InvalidArg", f"an expression of more than {MAX_TERMS} terms")
    return made


def collect(terms: Iterable[tuple[Monomial[A], int]], most: int = MAX_TERMS) -> Sum[A]:
    """The sum of terms, of which several may have the same atoms. Raises Violation("InvalidArg") for more than `most`."""
    const = 0
    totals: dict[Key[A], int] = {}
    for m, c in terms:
        if m:
            key = _key(m)
            totals[key] = totals.get(key, 0) + c
        else:
            const += c
    return _checked(Sum(const, {m: c for m, c in totals.items() if c}), most)


def _monomial_text(m: Monomial[A], coefficient: int, negative: bool = False) -> str:
    alone = len(m) == 1 and coefficient == 1 and not negative  # a leading minus binds closer than `//`
    factors = [f"({a})" if isinstance(a, Quotient) and not alone else str(a) for a in m]
    return "*".join(([str(coefficient)] if coefficient != 1 or not m else []) + factors)


def _quotient(op: str, left: Sum[A], right: Sum[A]) -> Sum[A]:
    """The quotient, rounded down, or its remainder, for every positive divisor. Terms that the divisor divides are taken out of a
    quotient and dropped from a remainder; then a common factor is canceled. Raises NoDivisor."""
    divisor = right.value
    if divisor is not None and divisor <= 0:
        raise NoDivisor("InvalidArg", f"the divisor of `{left}{op}{right}` is not positive")
    whole, rest = _taken_out(left, right)
    if divisor is not None and not rest.terms:
        return Sum(rest.const % divisor, {}) if op == "%" else whole + Sum(rest.const // divisor, {})
    if not rest.terms and not rest.const:
        return whole if op == "//" else rest
    common = gcd(*(c for p in (rest, right) for c in (p.const, *p.terms.values())))
    rest, right = (Sum(p.const // common, {m: c // common for m, c in p.terms.items()}) for p in (rest, right))
    atom: Sum[A] = Sum(0, {Quotient(op, rest, right): 1})
    return whole + atom if op == "//" else atom * common


def _taken_out(left: Sum[A], right: Sum[A]) -> tuple[Sum[A], Sum[A]]:
    """Two sums: the terms of `left` that the only term of `right` divides, divided by it, and the other terms. Where `right` has
    more terms: all of `left`, divided, if `right` divides it; else nothing, and `left`."""
    (by, n), *others = right.monomials
    if others:
        whole = _divided(left, right)
        return (Sum(0, {}), left) if whole is None else (whole, Sum(0, {}))
    divided = [(m, c) for m, c in left.monomials if not (c % n or Counter(by) - Counter(m))]
    rest = [t for t in left.monomials if t not in divided]
    return collect((tuple((Counter(m) - Counter(by)).elements()), c // n) for m, c in divided), collect(rest)


def _divided(left: Sum[A], right: Sum[A]) -> Sum[A] | None:
    """The sum whose product with `right` is `left`; None where there is none. It is found from the highest powers down."""
    atoms = sorted({a for p in (left, right) for m, _ in p.monomials for a in m}, key=str)

    def powers(t: tuple[Monomial[A], int]) -> list[int]:
        return [t[0].count(a) for a in atoms]

    (by, n), whole = max(right.monomials, key=powers), Sum[A](0, {})
    while left.monomials:
        m, c = max(left.monomials, key=powers)
        if c % n or Counter(by) - Counter(m):
            return None
        part = term(tuple((Counter(m) - Counter(by)).elements()), c // n)
        whole, left = whole + part, left - part * right
    return whole


def larger(left: Sum[A], right: Sum[A]) -> Sum[A]:
    """The larger of two expressions: `right` and the maximum of the difference and 0."""
    difference = left - right
    if (number := difference.value) is not None:
        return left if number > 0 else right
    return right + of_quotient(Quotient("max", difference, Sum(0, {})))


def _put_quotient(a: Quotient[A], values: Mapping[A, Sum[A]]) -> Sum[A]:
    left, right = a.left.put(values), a.right.put(values)
    return larger(left, right) if a.op == "max" else _quotient(a.op, left, right)


def _evaluate_quotient(a: Quotient[A], values: Mapping[A, Integers]) -> Integers:
    left, right = a.left.evaluate(values), a.right.evaluate(values)
    if a.op == "max":
        return max(left, right) if isinstance(left, int) and isinstance(right, int) else np.maximum(left, right)
    return left // right if a.op == "//" else left % right


def _bounds(a: Quotient[A], ranges: Mapping[A, Interval]) -> Interval:
    ends = a.left.interval(ranges)
    if a.op == "max":
        return max(ends[0], 0), max(ends[1], 0)
    divisors = [max(d, 1) for d in a.right.interval(ranges)]
    quotients = [n // d for n in ends for d in divisors]
    if a.op == "//":
        return min(quotients), max(quotients)
    same = len({*divisors}) == 1 and len({*quotients}) == 1
    return (ends[0] % divisors[0], ends[1] % divisors[0]) if same else (0, divisors[1] - 1)


def _atom_magnitude(a: Atom[A], ranges: Mapping[A, Interval]) -> int:
    if isinstance(a, Quotient):
        return a.left.magnitude(ranges) + a.right.magnitude(ranges)
    return max(map(abs, ranges[a]))


_TOKEN = regex(r"\s*(?:(?P<number>\d+)|(?P<name>@?[^\W\d][\w']*|@\d+)|(?P<op>//|[-+*%(),])|(?P<end>\Z)|(?P<bad>.))", re.S)


class Parser:
    """`sum = term {(+|-) term}`, `term = unary {OPERATOR unary}`, `unary = -unary | atom`. A notation gives its `pattern` of
    tokens, its `operators`, what an expression is called, and the names and functions that are atoms."""

    pattern: ClassVar[re.Pattern[str]]
    operators: ClassVar[Mapping[str, Callable[[Poly, Poly], Poly]]]
    called: ClassVar[str]

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [(m.lastgroup or "", m[m.lastgroup or 0]) for m in self.pattern.finditer(text)]
        self.at = 0
        self.depth = 0

    def fail(self, what: str) -> Violation:
        return Violation("InvalidArg", f"`{self.text.strip()[:60]}` is not {self.called}: {what}", at=self.text)

    def wrong(self) -> Violation:
        kind, word = self.tokens[self.at]
        return self.fail("it ends too early" if kind == "end" else f"`{word}` does not fit there")

    def parse(self) -> Poly:
        result = self.sum()
        self.end()
        return result

    def end(self) -> None:
        if self.tokens[self.at][0] != "end":
            raise self.wrong()

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
        while op := self.take(*self.operators):
            result = self.operators[op](result, self.unary())
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
        if kind != "number":
            return self.named()
        self.at += 1
        if len(text) > MAX_DIGITS:
            raise self.fail(f"a number of {len(text)} digits")
        return constant(int(text))

    def named(self) -> Poly:
        """An atom that is no number and not in parentheses. Raises Violation."""
        raise NotImplementedError


class _Parser(Parser):
    """The notation of Tiny and PTO: `//` and `%`; also `floordiv`, `mod` and `max` of two expressions."""

    pattern = _TOKEN
    operators: ClassVar = {"*": operator.mul, "//": operator.floordiv, "%": operator.mod}
    called = "an integer expression"

    def named(self) -> Poly:
        kind, text = self.tokens[self.at]
        if kind != "name":
            raise self.wrong()
        self.at += 1
        return self.call(text) if text in ("floordiv", "mod", "max") and self.take("(") else name(text)

    def call(self, function: str) -> Poly:
        left = self.sum()
        self.expect(",")
        right = self.sum()
        self.expect(")")
        return left // right if function == "floordiv" else left % right if function == "mod" else larger(left, right)


@lru_cache(maxsize=65536)
def parse(text: str) -> Poly:
    """The polynomial of `text`. Raises Violation("InvalidArg") if it is not an expression."""
    return _Parser(text).parse()


def to_dim(p: Poly) -> Dim:
    """A polynomial as an extent: a number, a named symbol, or the symbol of an expression."""
    if (value := p.value) is not None:
        return value
    return sym(str(p)) if p.is_plain else composed(p)


def of_dim(d: Dim) -> Poly:
    """An extent as a polynomial."""
    return constant(d) if isinstance(d, int) else name(d.name) if d.poly is None else d.poly


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
    known = {s.name: constant(numbers[s.name]) for s in symbols_in(d) if s.name in numbers}
    return to_dim(of_dim(d).put(known)) if known else d


@cache
def names(text: str) -> tuple[str, ...]:
    """The symbols in an expression's text, each once. The axes of an index map are not symbols."""
    return tuple(dict.fromkeys(n for n in parse(text).names() if not n.startswith("@")))


@cache
def symbols_in(s: Sym) -> tuple[Sym, ...]:
    """The named symbols in an extent or an entry of an index map, each once."""
    if s.poly is None:
        return () if s.name.startswith("@") else (s,)
    return tuple(map(sym, dict.fromkeys(n for n in s.poly.names() if not n.startswith("@"))))


def linear(p: Poly, unknown: str) -> tuple[Poly, Poly] | None:
    """`a` and `b` without `unknown`, such that `p` is `a * unknown + b`. None if there are none, or `a` is 0."""
    scale, rest = constant(0), constant(0)
    for m, c in p.monomials:
        having = [a for a in m if a == unknown or (isinstance(a, Quotient) and unknown in (*a.left.names(), *a.right.names()))]
        if not having:
            rest = rest + term(m, c)
        elif having == [unknown]:
            scale = scale + term(tuple(a for a in m if a != unknown), c)
        else:
            return None
    return (scale, rest) if scale != constant(0) else None


def solve_power(p: Poly, total: int) -> tuple[str, int | None] | None:
    """The same for a number times a power of one name, as `D*D` is."""
    (m, by), *others = p.monomials or (((), 0),)
    if others or len({*m}) != 1 or not isinstance(unknown := m[0], str):
        return None
    power, (whole, rest) = len(m), divmod(total, by)
    root = round(abs(whole) ** (1 / power))
    return unknown, root if rest == 0 and root**power == whole else None


def solve_linear(p: Poly, total: int) -> tuple[str, int | None] | None:
    """The one name in `p` and the number that makes `p` equal to `total` (None when no whole number does).

    None when `p` has not exactly one name or is not linear in it.
    """
    unknowns = set(p.names())
    if len(unknowns) != 1 or len(p.terms) > 1 or not unknowns.issuperset(p.terms):
        return None
    (unknown,) = unknowns
    whole, rest = divmod(total - p.const, p.terms[unknown])
    return unknown, whole if rest == 0 and whole >= 0 else None
