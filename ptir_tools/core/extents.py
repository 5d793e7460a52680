"""Extents as expressions: their arithmetic in one canonical form, and their text.

`core.expressions` keeps sums and products in normal form. Here quotients and maxima have one form, too. Whole
multiples of a number that divides are taken out, and nested divisions become one. A remainder is written with its quotient. Of a
quotient rounded down and the one rounded up only one is used. Named symbols are not negative, and divisors are positive.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, reduce
from math import gcd

from ptir_tools.core import expressions
from ptir_tools.core.expressions import (
    Poly,
    Quotient,
    collect,
    constant,
    name,
    of_dim,
    of_quotient,
    term,
    to_dim,
)
from ptir_tools.core.lazy import regex
from ptir_tools.core.typed import ClassVar
from ptir_tools.core.types import UNKNOWN, Dim, Shape, Sym, dim_text, sym

LARGEST = (1 << 63) - 1  # of an extent
_ZERO, _ONE = constant(0), constant(1)


def floordiv(left: Poly, right: Poly) -> Poly:
    """The quotient, rounded down. Raises NoDivisor for a number below 1."""
    if left == right:
        return _ONE
    divisor = right.value
    if divisor is not None and divisor > 0:
        return _by_number(left, divisor)
    common = _common_names(left, right)
    return _without(left, common) // _without(right, common)


def ceildiv(left: Poly, right: Poly) -> Poly:
    """The quotient, rounded up. Raises NoDivisor for a number below 1."""
    return -floordiv(-left, right)


def mod(left: Poly, right: Poly) -> Poly:
    """The remainder, which is not negative. Raises NoDivisor for a number below 1."""
    return left - right * floordiv(left, right)


def maximum(left: Poly, right: Poly) -> Poly:
    """The larger of two expressions."""
    return right + _not_negative(left - right)


def minimum(left: Poly, right: Poly) -> Poly:
    """The smaller of two expressions."""
    return right - _not_negative(right - left)


def bounds(p: Poly) -> tuple[int, int]:
    """Bounds, both inclusive, of the values of an expression."""
    low, high = p.interval(dict.fromkeys(p.names(), (0, LARGEST)))
    for m, c in p.monomials:
        q = m[0] if len(m) == 1 else ""
        if isinstance(q, Quotient) and q.op == "//" and (by := q.right.value) is not None:  # by * q is q.left less 0 to by - 1
            inner = bounds((p - term(m, c)) * constant(by) + q.left * constant(c))
            least, most = inner[0] - max(c * (by - 1), 0), inner[1] - min(c * (by - 1), 0)
            low, high = max(low, -(-least // by)), min(high, most // by)
        elif len(m) == 2 and abs(c) == 1 and (r := _remaindered(m)) is not None:
            others, sign = p - term(m, c), constant(c)  # the product is left less 0 to right - 1, and left less right - 1 or more
            lesser, greater = bounds(others + r.left * sign), bounds(others + (r.left - r.right + _ONE) * sign)
            low, high = max(low, (greater if c == 1 else lesser)[0]), min(high, (lesser if c == 1 else greater)[1])
    return low, high


def _remaindered(m: expressions.Monomial[str]) -> Quotient[str] | None:
    """The quotient of a product of a quotient and its divisor, which is a name; None of any other product."""
    for q, other in (m, m[::-1]):
        if isinstance(q, Quotient) and q.op == "//" and isinstance(other, str) and q.right == name(other):
            return q
    return None


def canonical(p: Poly, values: Mapping[str, Poly] | None = None) -> Poly:
    """An expression in canonical form, with names replaced by expressions."""
    whole = _ZERO
    for m, c in p.monomials:
        product = constant(c)
        for a in m:
            if isinstance(a, str):
                factor = (values or {}).get(a) or name(a)
            else:
                factor = _OPERATORS[a.op](canonical(a.left, values), canonical(a.right, values))
            product = product * factor
        whole = whole + product
    return whole


_OPERATORS: dict[str, Callable[[Poly, Poly], Poly]] = {"//": floordiv, "%": mod, "max": maximum}


def _key(p: Poly) -> tuple[object, ...]:
    """An order of numerators: simple ones are first."""
    return sum(map(abs, p.terms.values())), p.const, str(p)


def _by_number(p: Poly, n: int) -> Poly:
    """`p`, divided by a positive number and rounded down."""
    if n == 1:
        return p
    if (nested := _nested(p, n)) is not None:
        return nested
    whole = collect((m, c // n) for m, c in p.monomials if c // n)
    rest = collect((m, c % n) for m, c in p.monomials if c % n)
    if rest.value is not None:
        return whole
    common = gcd(n, *(c for m, c in rest.monomials if m))
    if common > 1:  # the remainder of the constant does not count
        rest = collect((m, c // common) for m, c in rest.monomials if c // common)
        return whole + _by_number(rest, n // common)
    if (nested := _nested(rest, n)) is not None:
        return whole + nested
    # floor(x / n) is -floor((n - 1 - x) / n), whose coefficients are made positive again
    added = collect((m, 1) for m, c in rest.monomials if m)
    other = added * constant(n) - rest + constant(n - 1)
    if (nested := _nested(other, n)) is not None:
        return whole + added - nested
    if _key(other) < _key(rest):
        return whole + added - of_quotient(Quotient("//", other, constant(n)))
    return whole + of_quotient(Quotient("//", rest, constant(n)))


def _nested(p: Poly, n: int) -> Poly | None:
    """The quotient by `n` where `p` is a whole expression and one quotient by a number, added or subtracted; else None."""
    inner = [(m, c) for m, c in p.monomials if any(isinstance(a, Quotient) for a in m)]
    if len(inner) != 1 or len(inner[0][0]) != 1 or abs(inner[0][1]) != 1:
        return None
    (m, c) = inner[0]
    quotient = m[0]
    if not isinstance(quotient, Quotient) or quotient.op != "//" or (by := quotient.right.value) is None:
        return None
    others = (p - term(m, c)) * constant(by)
    numerator = others + quotient.left if c == 1 else others - quotient.left + constant(by - 1)
    return _by_number(numerator, by * n)


def _common_names(left: Poly, right: Poly) -> list[str]:
    """The names that every term of both has as a factor, each as often."""
    terms = [list(m) for p in (left, right) for m, _ in p.monomials]
    common: list[str] = []
    for a in [*terms[0]] if terms else []:
        if isinstance(a, str) and all(a in m for m in terms):
            common.append(a)
            for m in terms:
                m.remove(a)
    return common


def _without(p: Poly, factors: Iterable[str]) -> Poly:
    terms = []
    for m, c in p.monomials:
        rest = list(m)
        for a in factors:
            rest.remove(a)
        terms.append((tuple(rest), c))
    return collect(terms)


def _not_negative(p: Poly) -> Poly:
    """The maximum of `p` and 0; of it and that of `-p` only one is used."""
    low, high = bounds(p)
    if low >= 0:
        return p
    if high <= 0:
        return _ZERO
    common = gcd(*(c for _, c in p.monomials))
    part = collect((m, c // common) for m, c in p.monomials)
    other = -part
    first, second = (next((c for m, c in q.monomials if m), 0) for q in (part, other))
    assert first and second
    if _positives(other) > _positives(part) or (_positives(other) == _positives(part) and str(other) < str(part)):
        return p + of_quotient(Quotient("max", other, _ZERO)) * constant(common)
    return of_quotient(Quotient("max", part, _ZERO)) * constant(common)


def _positives(p: Poly) -> int:
    return sum(c > 0 for m, c in p.monomials if m)


# ---- extents


def combined(operator: Callable[[Poly, Poly], Poly], *extents: Dim) -> Dim:
    """The extent that a chain of operators gives, from the left."""
    return to_dim(reduce(operator, map(of_dim, extents)))


def total(extents: Iterable[Dim]) -> Dim:
    """The sum of extents."""
    dims = list(extents)
    if UNKNOWN in dims:
        return UNKNOWN
    numbers = [d for d in dims if not isinstance(d, Sym)]
    if len(numbers) == len(dims):
        return sum(numbers)
    return to_dim(reduce(operator.add, map(of_dim, dims), _ZERO))


def product(shape: Shape) -> Dim:
    """The number of elements of a shape."""
    if UNKNOWN in shape:
        return UNKNOWN
    return to_dim(expressions.product(shape))


def put(d: Dim, values: Mapping[str, Dim]) -> Dim:
    """An extent with named symbols replaced by extents. The result is in canonical form."""
    if isinstance(d, int):
        return d
    if d.poly is None:
        return values.get(d.name, d)
    known = {n: of_dim(values[n]) for n in d.poly.names() if n in values}
    return to_dim(canonical(d.poly, known)) if known else d


def may_be_equal(a: Dim, b: Dim) -> bool:
    """Whether some values of the symbols make two extents equal, as far as bounds show."""
    low, high = bounds(of_dim(a) - of_dim(b))
    return low <= 0 <= high


# ---- text


def text(d: Dim) -> str:
    """The expression of an extent as programs spell it: `(?H - 1) floordiv 2 + 1`."""
    return _sum_text(of_dim(d))


def _sum_text(p: Poly) -> str:
    """The shortest of the forms of a sum."""
    return min(_forms(p), key=len)


def _forms(p: Poly) -> list[str]:
    forms = [_terms_text(p)]
    atoms = [(m, c) for m, c in p.monomials if any(isinstance(a, Quotient) for a in m)]
    if len(atoms) != 1 or len(atoms[0][0]) != 1 or abs(atoms[0][1]) != 1:
        return forms
    (m, c), rest = atoms[0], p - term(*atoms[0])
    q = m[0]
    assert isinstance(q, Quotient)
    if q.op == "max":
        word, other = ("max", rest + q.left) if c == 1 else ("min", rest - q.left)
        forms.append(f"{word}({_sum_text(rest)}, {_sum_text(other)})")
    elif q.op == "//" and not (c == 1 and rest == _ZERO):
        word, numerator = ("floordiv", rest * q.right + q.left) if c == 1 else ("ceildiv", rest * q.right - q.left)
        if c == -1 and q.right.value is not None and numerator.const:
            word, numerator = "floordiv", numerator + q.right - _ONE
        forms.append(f"{_factor_text(numerator)} {word} {_factor_text(q.right)}")
    return forms


def _terms_text(p: Poly) -> str:
    if not p.monomials:
        return "0"
    parts: list[str] = []
    for m, c in p.monomials:
        factors = [str(abs(c))] if abs(c) != 1 or not m else []
        texts = [_atom_text(a, alone=len(m) == 1 and abs(c) == 1 and (c > 0 or bool(parts))) for a in m]
        parts.append(("- " if c < 0 else "+ ") + " * ".join([*factors, *texts]))
    return "".join(" " + part for part in parts).strip().removeprefix("+ ").replace("- ", "-", 1 if parts[0][0] == "-" else 0)


def _atom_text(a: expressions.Atom[str], alone: bool) -> str:
    if isinstance(a, str):
        return dim_text(sym(a))
    if a.op == "max":
        return f"max({_sum_text(a.left)}, {_sum_text(a.right)})"
    word = "floordiv" if a.op == "//" else "mod"
    result = f"{_factor_text(a.left)} {word} {_factor_text(a.right)}"
    return result if alone else f"({result})"


def _factor_text(p: Poly) -> str:
    return _terms_text(p) if p.is_plain else f"({_sum_text(p)})"


_TOKEN = regex(
    r"\s*(?:(?P<number>\d+)|\?(?P<name>[A-Za-z_]\w*)|\?(?P<quoted>\"[^\"\\\n]*(?:\\.[^\"\\\n]*)*\")"
    r"|(?P<op>floordiv\b|ceildiv\b|mod\b|min\b|max\b|[-+*(),=])|(?P<end>\Z)|(?P<bad>\S))",
    re.S,
)


class _Reader(expressions.Parser):
    """The notation of text PTIR: words for quotients; `min` and `max` of several expressions."""

    pattern = _TOKEN
    operators: ClassVar = {"*": operator.mul, "floordiv": floordiv, "ceildiv": ceildiv, "mod": mod}
    called = "an extent"

    def table(self) -> dict[str, Dim]:
        found: dict[str, Dim] = {}
        while True:
            called = self.symbol()
            if called in found:
                raise self.fail(f"?{called} is defined twice")
            self.expect("=")
            found[called] = to_dim(self.sum())
            if not self.take(","):
                break
        self.end()
        return found

    def symbol(self) -> str:
        kind, word = self.tokens[self.at]
        if kind not in ("name", "quoted"):
            raise self.wrong()
        self.at += 1
        return _unquoted(kind, word)

    def named(self) -> Poly:
        op = self.take("min", "max")
        if not op:
            return name(self.symbol())
        self.expect("(")
        result = self.sum()
        while self.take(","):
            result = (minimum if op == "min" else maximum)(result, self.sum())
        self.expect(")")
        return result


def _unquoted(kind: str, word: str) -> str:
    return word if kind == "name" else re.sub(r"\\(.)", r"\1", word[1:-1])


@lru_cache(maxsize=65536)
def parse(text: str) -> Poly:
    """The expression that a program spells, in canonical form. Raises Violation("InvalidArg")."""
    return _Reader(text).parse()


def parse_table(text: str) -> dict[str, Dim]:
    """The symbols of a clause `where ?T = ?past + ?new, …`, without its first word. Raises Violation("InvalidArg")."""
    return _Reader(text).table()
