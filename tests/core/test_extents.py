"""Extents as expressions: the canonical form is sound, finds the common identities, and its text reads back."""

from __future__ import annotations

import math
import operator
import random
from collections import Counter
from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptir_tools.core import extents
from ptir_tools.core.expressions import Poly, constant, name, of_dim, to_dim
from ptir_tools.core.extents import ceildiv, floordiv, maximum, minimum, mod, parse, text
from ptir_tools.core.types import sym
from ptir_tools.core.violations import Violation

NAMES = "NMK"
OPERATORS: dict[str, tuple[Callable[[Poly, Poly], Poly], Callable[[int, int], int]]] = {
    "+": (operator.add, int.__add__), "-": (operator.sub, int.__sub__), "*": (operator.mul, int.__mul__),
    "max": (maximum, max), "min": (minimum, min),
}  # fmt: skip
DIVISIONS: dict[str, tuple[Callable[[Poly, Poly], Poly], Callable[[int, int], int]]] = {
    "floordiv": (floordiv, int.__floordiv__), "ceildiv": (ceildiv, lambda a, b: -(-a // b)), "mod": (mod, int.__mod__),
}  # fmt: skip
BINDINGS = [dict(zip(NAMES, values, strict=True)) for values in product((0, 1, 2, 3, 7), repeat=3)]
Meaning = Callable[[dict[str, int]], int]


def drawn(rng: random.Random, depth: int) -> tuple[Poly, Meaning]:
    """A random expression and what it means."""
    if depth == 0 or rng.random() < 0.2:
        if rng.random() < 0.6:
            n = rng.choice(NAMES)
            return name(n), lambda v: v[n]
        number = rng.randint(-5, 9)
        return constant(number), lambda v: number
    x, a = drawn(rng, depth - 1)
    if rng.random() < 0.4:
        build, apply = rng.choice([*DIVISIONS.values()])
        by = rng.randint(1, 6)
        return build(x, constant(by)), lambda v: apply(a(v), by)
    build, apply = rng.choice([*OPERATORS.values()])
    y, b = drawn(rng, depth - 1)
    return build(x, y), lambda v: apply(a(v), b(v))


@given(st.integers(0, 2**32))
@settings(max_examples=400, deadline=None)
def test_the_canonical_form_is_sound(seed: int) -> None:
    p, meaning = drawn(random.Random(seed), 4)
    low, high = extents.bounds(p)
    for values in BINDINGS:
        assert p.evaluate(values) == meaning(values), (str(p), values)
        assert low <= meaning(values) <= high
    assert extents.canonical(p) == p
    some = {"N": constant(3), "M": name("K") + constant(1)}
    assert extents.canonical(p, some).evaluate({"K": 4}) == meaning({"N": 3, "M": 5, "K": 4})


@given(st.integers(0, 2**32))
@settings(max_examples=300, deadline=None)
def test_text_reads_back(seed: int) -> None:
    p, _ = drawn(random.Random(seed), 4)
    assert parse(text(to_dim(p))) == p


@pytest.mark.parametrize(("left", "right"), [
    ("?past + ?new", "?new + ?past"),
    ("(?H - 1) floordiv 2 + 1", "?H ceildiv 2"),
    ("(?H + 2 - 3) floordiv 1 + 1", "?H"),
    ("((?H + 1) floordiv 2 + 1) floordiv 2", "?H ceildiv 4"),
    ("(?H ceildiv 2) floordiv 2", "(?H + 1) floordiv 4"),
    ("?n floordiv 2 + ?n ceildiv 2", "?n"),
    ("?a mod 4 + 4 * (?a floordiv 4)", "?a"),
    ("max(?a, ?b) + min(?a, ?b)", "?a + ?b"),
    ("max(?a, 0)", "?a"), ("min(?a + 3, ?a + 1)", "?a + 1"), ("max(0, ?a floordiv 2)", "?a floordiv 2"),
    ("(?B * ?S * 768) floordiv (?B * ?S)", "768"),
    ("(?B * ?S * 768) floordiv (12 * ?S)", "64 * ?B"),
    ("2 * (?T floordiv 2) - ?T", "-(?T mod 2)"),
    ("(6 * ?n) floordiv 4", "(3 * ?n) floordiv 2"),
])  # fmt: skip
def test_common_identities(left: str, right: str) -> None:
    assert parse(left) == parse(right)


@pytest.mark.parametrize(("expression", "shown"), [
    ("(?H - 1) floordiv 2 + 1", "?H ceildiv 2"), ("?new + ?past", "?new + ?past"), ("?b + max(?a - ?b, 0)", "max(?b, ?a)"),
    ('?"max" * 3', '3 * ?"max"'), ("?N - 3", "?N - 3"), ("(?H - 3) floordiv 2 + 1", "(?H - 1) floordiv 2"),
])  # fmt: skip
def test_spelling(expression: str, shown: str) -> None:
    assert text(to_dim(parse(expression))) == shown


def test_equal_expressions_are_one_extent() -> None:
    a, b = to_dim(parse("?N + ?M")), to_dim(parse("?M + ?N"))
    assert a is b
    assert extents.put(a, {"M": 2}) is to_dim(parse("?N + 2"))
    assert extents.put(a, {"N": 1, "M": 2}) == 3
    assert of_dim(sym("batch-size")) == name("batch-size")


@pytest.mark.parametrize("wrong", ["?N +", "?N floordiv 0", "N", "?N ?M", "min()", "(?N", "?N / 2", "1" * 30 + " + ?N"])
def test_what_is_no_expression(wrong: str) -> None:
    with pytest.raises(Violation):
        parse(wrong)


@pytest.mark.parametrize(
    ("quotient", "wanted"),
    [
        ("(64 * ?F - 384) floordiv (?F - 6)", "64"),
        ("(?F * ?F - 36) floordiv (?F - 6)", "?F + 6"),
        ("(?B * ?T + ?B + 2 * ?T + 2) floordiv (?T + 1)", "?B + 2"),
        ("(2 * ?B * ?T + ?B) floordiv (2 * ?T + 2)", "(2 * ?B * ?T + ?B) floordiv (2 * ?T + 2)"),
    ],
)
def test_a_sum_that_divides_leaves_no_quotient(quotient: str, wanted: str) -> None:
    assert text(to_dim(parse(quotient))) == wanted


@pytest.mark.parametrize("above", ["N", "NN", "NM", "NNM", "NMMK", "NNN"])
@pytest.mark.parametrize("below", ["N", "NN", "NM", "NNM", "MM", "NNK", "NNNN"])
@pytest.mark.parametrize("kind", DIVISIONS)
def test_names_that_both_sides_of_a_division_have_leave_as_often_as_both_have_them(above: str, below: str, kind: str) -> None:
    """A sum above, so that what leaves is a factor of each term."""
    build, apply = DIVISIONS[kind]

    def product_of(names: str) -> Poly:
        p = constant(1)
        for n in names:
            p = p * name(n)
        return p

    made = build(product_of(above) + product_of(above + "K") * constant(2), product_of(below))
    left = Counter(above)
    left.subtract(below)
    if min(left.values()) >= 0:
        rest = product_of("".join(left.elements())) * (constant(1) + name("K") * constant(2))
        assert made == (constant(0) if kind == "mod" else rest)
    for values in BINDINGS:
        if 0 not in values.values():
            a, b = math.prod(values[n] for n in above), math.prod(values[n] for n in below)
            assert made.evaluate(values) == apply(a + 2 * a * values["K"], b), (str(made), values)


def divided(rng: random.Random) -> tuple[Poly, Meaning]:
    """A sum of names and of quotients and products by names, some of which are a remainder."""
    p, parts = constant(0), list[tuple[int, Meaning]]()
    for _ in range(rng.randint(1, 3)):
        c, n, k = rng.choice((-2, -1, 1, 2)), rng.choice("NM"), rng.choice("KM")
        q = floordiv(name(n), name(k))
        what, meaning = rng.choice(
            [
                (name(n), lambda v, n=n: v[n]),
                (q, lambda v, n=n, k=k: v[n] // v[k]),
                (q * name(k), lambda v, n=n, k=k: v[n] // v[k] * v[k]),
                (mod(name(n), name(k)), lambda v, n=n, k=k: v[n] % v[k]),
            ]
        )
        p = p + what * constant(c)
        parts.append((c, meaning))
    return p, lambda v: sum(c * meaning(v) for c, meaning in parts)


@given(st.integers(0, 2**32))
@settings(max_examples=400, deadline=None)
def test_bounds_of_quotients_by_names_are_sound(seed: int) -> None:
    p, meaning = divided(random.Random(seed))
    low, high = extents.bounds(p)
    for values in product(range(1, 8), repeat=3):
        named = dict(zip(NAMES, values, strict=True))
        assert p.evaluate(named) == meaning(named) and low <= meaning(named) <= high, (str(p), named)


@pytest.mark.parametrize(
    ("expression", "low", "high"),
    [
        ("?N mod ?K", 0, extents.LARGEST - 1),
        ("-(?N mod ?K)", 1 - extents.LARGEST, 0),
        ("?K - 1 - ?N mod ?K", 0, None),
        ("?N - ?K * (?N floordiv ?K)", 0, None),
        ("?K * (?N floordiv ?K) - ?N", None, 0),
        ("?N mod 4", 0, 3),
        ("?N - 4 * (?N floordiv 4)", 0, 3),
        ("4 * (?N floordiv 4) - ?N", -3, 0),
        ("4 * (?N ceildiv 4) - ?N", 0, 3),
        ("max(?N, 3)", 3, extents.LARGEST),
        ("?N + 2", 2, None),
        ("5 - ?N", None, 5),
        ("7", 7, 7),
    ],
)
def test_bounds_that_are_exact(expression: str, low: int | None, high: int | None) -> None:
    found = extents.bounds(parse(expression))
    assert found == (found[0] if low is None else low, found[1] if high is None else high)


@pytest.mark.parametrize(
    ("a", "b", "may"),
    [
        ("?N", "?M", True),
        ("?N", "?N + 1", False),
        ("?N + 1", "?N", False),
        ("?N", "3", True),
        ("?N + 3", "3", True),
        ("?N + 4", "3", False),
        ("3", "?N + 4", False),
        ("?N", "?N", True),
        ("?N mod 4", "3", True),
        ("?N mod 4", "4", False),
        ("?N", "0", True),
        ("3", "3", True),
        ("3", "4", False),
        ("4", "3", False),
    ],
)
def test_extents_may_be_equal_unless_bounds_say_no(a: str, b: str, may: bool) -> None:
    assert extents.may_be_equal(to_dim(parse(a)), to_dim(parse(b))) is may
