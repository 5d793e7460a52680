"""Sums over any unknowns: equal ones are equal and hash alike, whatever the order of their parts."""

from __future__ import annotations

import pytest

from ptir_tools.core.expressions import MAX_TERMS, NoDivisor, Sum, constant, name, parse
from ptir_tools.core.violations import Violation


class Unknown:
    """Known by its identity."""


def test_sums_over_unknowns():
    x, y = Sum(0, {Unknown(): 1}), Sum(0, {Unknown(): 1})
    left, right = x * 3 + y + constant(4), constant(4) + y + x + x * 2
    assert left == right and hash(left) == hash(right) and left != x * 3 + x + constant(4)
    assert (left - right).value == 0 and (left - y - x * 3).value == 4
    assert left.value is None and -left + right == constant(0)


def test_unknowns_are_replaced():
    v, w = Unknown(), Unknown()
    x, y = Sum(0, {v: 1}), Sum(0, {w: 1})
    assert (x * 5 + y).put({v: y + constant(2)}) == y * 6 + constant(10)
    assert (x * 5 + y).evaluate({v: 2, w: -1}) == 9
    assert (x * -5 + y).interval({v: (0, 2), w: (1, 3)}) == (-9, 3)


def test_quotients_of_unknowns():
    x = Sum(0, {Unknown(): 1})
    assert (x * 8 + constant(11)) // constant(4) == x * 2 + constant(2)
    assert (x * 8 + constant(11)) % constant(4) == constant(3)
    assert x // x == constant(1) and x % x == constant(0)
    assert (x * 2 + constant(1)) // constant(4) == (x + x + constant(1)) // constant(4)
    with pytest.raises(NoDivisor):
        x // constant(0)


@pytest.mark.parametrize(
    "text, shown",
    [
        ("b + 2*a + 3", "2*a+b+3"),
        ("a*b - b*a", "0"),
        ("-a", "-a"),
        ("(a+1)*(a-1)", "a*a-1"),
        ("7 // 2", "3"),
        ("(3*a+6)//3", "a+2"),
    ],
)
def test_text_is_in_one_order(text, shown):
    assert str(parse(text)) == shown and parse(shown) == parse(text)


def test_a_sum_has_a_limit():
    some = [name(f"n{k}") for k in range(MAX_TERMS + 1)]
    with pytest.raises(Violation, match="more than"):
        sum(some[1:], some[0])
