"""The values of a node's arg, by kind: what each is read as, and what each refuses, at the entry that is wrong."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import pytest

from ptir_tools.core.dtypes import BF16, F32, I1
from ptir_tools.core.limits import LIMITS, LimitExceeded
from ptir_tools.core.records import replace
from ptir_tools.core.types import sym
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.tiny.text import args

WRONG: dict[str, list[Any]] = {
    "Shape": [3, "N", [True], [-1], [1 << 63], [1.5], [None], ["@0"], ["N N"], [2, "x" * 5000]],
    "DType": ["f33", 3, None, ["fp32"]],
    "Ints": [3, [True], [1.0], ["1"], [2, None]],
    "Axes": [3, [True], [1.5], [None]],
    "Pads": [3, [1], [[1]], [[1, 2, 3]], [[1, 2], [1, -1]], ["ab"]],
    "Scalar": ["one", None, [1], {}],
    "str": [3, None, ["a"]],
    "Names": [3, [3], ["i 0"], [""], [None]],
    "Trees": [3, [None], [True], [{}], [{"add": [1]}], [{"add": 1}], [{"add": [1, 2], "mul": [1, 2]}], [{"or": [1, 2]}],
              [{"sub": [1, 2, 3]}], [{"mod": [5, 3, 2]}], [{"floordiv": ["i0"]}]],
    "Comparisons": [3, [3], ["i0"], ["i0>=1>=2"], ["i0=1"], ["i0!=1"], ["i0>>1"], [None], [""]],
}  # fmt: skip


@pytest.mark.parametrize(("kind", "value"), [(kind, value) for kind, values in WRONG.items() for value in values], ids=repr)
def test_a_value_of_another_kind_is_refused(kind: str, value: Any) -> None:
    with pytest.raises(Violation) as caught:
        args.READ[kind](value, LIMITS)
    assert caught.value.code == ("UnknownDtype" if kind == "DType" else "InvalidArg")
    what, wanted, shown = caught.value.message.partition(" is wanted, not ")
    given = [json.dumps(x) for x in (value, *(value if isinstance(value, list) else ()))]
    assert not wanted or (shown in given and what not in given)
    if isinstance(value, list) and kind not in ("DType", "Scalar", "str"):
        at = caught.value.at  # a text is a piece of the entry
        assert isinstance(at, str) or (at is not None and at.entry == (len(value) - 1,))


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        ("Shape", [0, 3, "N", (1 << 63) - 1], (0, 3, sym("N"), (1 << 63) - 1)),
        ("Shape", ["2*3"], (6,)),
        ("Ints", [-1, 0, 5], (-1, 0, 5)),
        ("Axes", [-1, "N-1"], (-1, "N-1")),
        ("Pads", [[0, 3], ["N", 1]], ((0, 3), (sym("N"), 1))),
        ("DType", "fp32", F32),
        ("DType", "bf16", BF16),
        ("DType", "bool", I1),
        ("Scalar", True, True),
        ("Scalar", 3, 3),
        ("Scalar", "inf", math.inf),
        ("Scalar", "-inf", -math.inf),
        ("str", "a", "a"),
        ("Names", ["i0", "row"], ("i0", "row")),
    ],
)
def test_a_value_is_read(kind: str, value: Any, read: object) -> None:
    found = args.READ[kind](value, LIMITS)
    assert found == read and type(found) is type(read)


def test_a_list_is_as_long_as_the_largest_rank() -> None:
    limits = replace(LIMITS, rank=3)
    assert args.READ["Ints"]([1, 2, 3], limits) == (1, 2, 3)
    with pytest.raises(LimitExceeded, match="a list of 4 integers, the limit is 3") as caught:
        args.READ["Ints"]([1, 2, 3, 4], limits)
    assert caught.value.flag == "--max-rank"


def test_a_tree_means_its_operators() -> None:
    trees: list[tuple[Any, Any]] = [
        ("i0 * 2 + i1", lambda i, j: i * 2 + j),
        ({"add": ["i0", "i1", 3]}, lambda i, j: i + j + 3),
        ({"sub": ["i0", "i1"]}, lambda i, j: i - j),
        ({"mul": ["i0", "i1", 2]}, lambda i, j: i * j * 2),
        ({"floordiv": [{"sub": ["i0", "i1"]}, 2]}, lambda i, j: (i - j) // 2),
        ({"mod": [{"sub": ["i0", "i1"]}, 3]}, lambda i, j: (i - j) % 3),
        (7, lambda i, j: 7),
    ]
    for tree, meaning in trees:
        (poly,) = args.READ["Trees"]([tree], LIMITS)  # type: ignore[misc]
        for i, j in itertools.product(range(4), repeat=2):
            assert poly.evaluate({"i0": i, "i1": j}) == meaning(i, j), tree


def test_a_tree_is_as_deep_as_expressions_may_be() -> None:
    for depth, fits in ((args.ex.MAX_DEPTH, True), (args.ex.MAX_DEPTH + 1, False)):
        tree: Any = 1
        for _ in range(depth):
            tree = {"add": [tree, 1]}
        if fits:
            assert args.READ["Trees"]([tree], LIMITS)[0].value == depth + 1  # type: ignore[index]
        else:
            with pytest.raises(Violation, match="nested deeper"):
                args.READ["Trees"]([tree], LIMITS)


@pytest.mark.parametrize("sign", [">=", "<=", ">", "<", "=="])
def test_a_comparison_holds_where_none_of_its_expressions_is_negative(sign: str) -> None:
    (polys,) = args.READ["Comparisons"]([f"2*i0 {sign} i1 + 1"], LIMITS)  # type: ignore[misc]
    for i, j in itertools.product(range(5), repeat=2):
        left, right = 2 * i, j + 1
        holds = {">=": left >= right, "<=": left <= right, ">": left > right, "<": left < right, "==": left == right}[sign]
        assert all(p.evaluate({"i0": i, "i1": j}) >= 0 for p in polys) is holds
