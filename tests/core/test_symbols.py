"""Extents that follow from other extents: the numbers that are derived, solved for, and refused."""

from __future__ import annotations

import pytest

from ptir_tools.core.dtypes import F32
from ptir_tools.core.expressions import to_dim
from ptir_tools.core.extents import LARGEST, parse
from ptir_tools.core.ir import Function, Value
from ptir_tools.core.symbols import DERIVED, derive, mentioned, numbered, symbolic
from ptir_tools.core.types import UNKNOWN, Dim, sym, tensor, tuple_of
from ptir_tools.core.violations import Violation


def extent(text: str) -> Dim:
    return to_dim(parse(text))


def function(table: dict[str, str], *params: str) -> Function:
    """A function with a table of extents, and parameters with one extent each."""
    f = Function("f", [Value(tensor(F32, (extent(p),)), f"p{i}") for i, p in enumerate(params)])
    f.attrs[DERIVED] = {name: extent(text) for name, text in table.items()}
    return f


@pytest.mark.parametrize(
    ("table", "params", "numbers", "wanted"),
    [
        ({"T": "?N + ?M"}, [], {"N": 2, "M": 3}, {"T": 5}),
        ({"T": "?N + ?M"}, [], {"N": 2}, {}),
        ({"T": "?N + ?M"}, [], {"N": 2, "T": 5}, {"M": 3}),
        ({"T": "?N + ?M"}, [], {"N": 0, "M": 0}, {"T": 0}),
        ({"U": "?T * 2", "T": "?N + 1"}, [], {"N": 2}, {"T": 3, "U": 6}),
        ({"U": "?T * 2", "T": "?N + 1"}, [], {"U": 6}, {"T": 3, "N": 2}),
        ({"T": "?N - 3"}, [], {"N": 3}, {"T": 0}),
        ({"T": "?N - 3"}, [], {"T": 0}, {"N": 3}),
        ({}, ["?N + 1"], {"N": 4}, {"N+1": 5}),
        ({"T": f"?N + {LARGEST - 1}"}, [], {"N": 1}, {"T": LARGEST}),
        ({"T": "?N floordiv 2"}, [], {"T": 3}, {}),
    ],
)
def test_extents_follow_from_each_other(
    table: dict[str, str], params: list[str], numbers: dict[str, int], wanted: dict[str, int]
) -> None:
    found = dict(numbers)
    derive(function(table, *params), found)
    assert found == numbers | wanted


@pytest.mark.parametrize(
    ("table", "numbers", "said"),
    [
        ({"T": "?N - 3"}, {"N": 2}, "the extent T, which is N-3, would be -1"),
        ({"T": f"?N + {LARGEST}"}, {"N": 1}, f"would be {LARGEST + 1}"),
        ({"T": "?N + 1"}, {"N": 2, "T": 4}, "T is 4, but N[+]1 is 3"),
        ({"T": "2 * ?N"}, {"T": 5}, r"no integer N makes 2\*N equal to 5"),
        ({"T": "?N + 4"}, {"T": 3}, "no integer N makes|N"),
    ],
)
def test_extents_that_cannot_be_are_refused(table: dict[str, str], numbers: dict[str, int], said: str) -> None:
    with pytest.raises(Violation, match=said) as caught:
        derive(function(table), dict(numbers), "Code")
    assert caught.value.code == "Code"


@pytest.mark.parametrize(
    ("text", "number", "fits"), [("?N - 3", 0, True), ("?N - 4", -1, False), (f"?N + {LARGEST - 3}", LARGEST, True)]
)
def test_an_expression_has_its_number_unless_it_is_no_extent(text: str, number: int, fits: bool) -> None:
    lookup = numbered({"N": 3})
    if fits:
        assert lookup(extent(text)) == number  # type: ignore[arg-type]
    else:
        with pytest.raises(Violation, match=rf"would be {number} \(\?N = 3\)"):
            lookup(extent(text))  # type: ignore[arg-type]
    assert lookup(sym("N")) == 3 and lookup(sym("M")) is sym("M")
    assert lookup(extent("?N + ?M")) is extent("?M + 3")  # type: ignore[arg-type]


def test_symbols_are_found_in_types_attributes_and_expressions() -> None:
    n, m, both = sym("N"), sym("M"), extent("?N + ?K")
    t = tuple_of([tensor(F32, (n, 3)), tuple_of([tensor(F32, (UNKNOWN, both))])])
    assert list(symbolic(t)) == [n, both] and list(mentioned(t)) == [n, sym("K"), n]
    assert list(symbolic((1, (m, "a", t), None))) == [m, n, both] and list(symbolic(UNKNOWN)) == []
