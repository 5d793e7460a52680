"""The parts of the IR one by one: keys of constants, needs, operand groups, copies, walks, what a block keeps while it runs."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator
from typing import Any

import pytest

from ptir_tools.core.declare import OPS, op
from ptir_tools.core.dialect import Dialect, Option, Program, clone, declare_options
from ptir_tools.core.dtypes import F32, I1, SI4, SI32
from ptir_tools.core.evaluate import Context, last_uses
from ptir_tools.core.ir import (
    COMMUTES,
    CONSTANT,
    ELEMENTWISE,
    MOVEMENT,
    NOTHING,
    PURE,
    RANDOM,
    REPEATS,
    WRITES,
    Algebra,
    Annotation,
    Asks,
    Branch,
    Element,
    Function,
    InPlace,
    Kept,
    Kernel,
    Literal,
    Loop,
    Need,
    Op,
    Region,
    Trait,
    Value,
    View,
    create,
    exact,
    leaves_read,
    may_fail,
    operand_type,
    result_names,
)
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.types import POISON, UNKNOWN, TensorType, sym, tensor, tuple_of
from ptir_tools.core.violations import Violation
from ptir_tools.core.walks import holds, post_order

V = tensor(F32, (2,))
Many = tuple[Any, ...]
Maybe = Any


@pytest.fixture(autouse=True)
def _declared() -> Iterator[None]:
    before = dict(OPS)

    @op("parts.add", infer=lambda x, y: x)
    def add(x: Any, y: Any) -> Any: ...

    @op("parts.maybe", infer=lambda x, y, z: x)
    def maybe(x: Any, y: Maybe, z: Any) -> Any: ...

    @op("parts.many", infer=lambda x, ys: x)
    def many(x: Any, ys: Many) -> Any: ...

    @op("parts.groups", infer=lambda xs, ys, z: z)
    def groups(xs: Many, ys: Many, z: Maybe) -> Any: ...

    @op("parts.run", infer=lambda x, body: x)
    def run(x: Any, *, body: Region) -> Any: ...

    @op("parts.risky", infer=lambda x: x, fails=lambda op: op.operands[0].name == "bad")
    def risky(x: Any) -> Any: ...

    yield
    OPS.clear()
    OPS.update(before)


# ---- constants


def test_freed_bytes_equal_the_bytes_and_are_computed_again() -> None:
    data, calls = bytes(range(8)), []

    def back() -> bytes:
        calls.append(1)
        return data

    kept, other, wrong = Kept(data, back), Kept(data, lambda: bytes(range(8))), Kept(data, lambda: bytes(8))
    assert kept == kept and not calls
    assert kept == data and data == kept and kept == other and kept != wrong and kept != bytes(8) and kept != "x"
    assert hash(kept) == hash(data) and {data: 1}[kept] == 1
    literal = Literal(V, data)
    literal.keep(back)
    assert isinstance(literal.payload, Kept) and literal.size == 8 and not literal.is_missing
    assert literal.same(Literal(V, data)) and not literal.same(Literal(V, bytes(8)))
    assert literal.data == data and literal.payload is data


def test_a_literal_is_freed_once_and_a_missing_one_never() -> None:
    literal, missing = Literal(tensor(SI4, (3,)), bytes(2)), Literal(V, None)
    literal.keep(lambda: bytes(2))
    first = literal.payload
    literal.keep(lambda: b"")
    missing.keep(lambda: b"")
    assert literal.payload is first and literal.size == 2 and Literal(V, bytes(8)).size == 8
    assert missing.payload is None and missing.is_missing and missing.size is None and missing.data is None


@pytest.mark.parametrize("splat", [False, True])
def test_literals_are_the_same_by_type_form_and_bytes(splat: bool) -> None:
    one = Literal(V, b"abcd" if splat else b"abcdabcd", splat, "file:key")
    assert one.same(one) and one.same(Literal(V, one.data, splat)) and one.key == Literal(V, one.data, splat).key
    for other in (Literal(tensor(SI32, (2,)), one.data, splat), Literal(V, b"efgh" * (2 - splat), splat), Value(V)):
        assert not one.same(other)
    assert not Literal(V, b"abcd", True).same(Literal(V, b"abcd"))
    again = copy.copy(one)
    assert (again.type, again.data, again.splat, again.origin) == (V, one.data, splat, "file:key")


# ---- needs: each is a set of vectors, and both together are their intersection

NEEDS = [NOTHING, Need(nonzero=True), Need((3,)), Need((5,), low=1), Need((4, 2)), Need((2, 5), True, -1), Need((4,), False, -2)]


def fits(vector: tuple[int, int], need: Need) -> bool:
    bounds = need.bounds * 2 if len(need.bounds) == 1 else need.bounds
    below = all(need.low <= x < b for x, b in zip(vector, bounds, strict=True)) if bounds else True
    return below and not (need.nonzero and 0 in vector)


@pytest.mark.parametrize(("a", "b"), [*itertools.product(NEEDS, repeat=2)])
def test_two_needs_hold_together(a: Need, b: Need) -> None:
    """Exactly, or where one has bounds for each element and the other one for all, at least as strictly."""
    for vector in itertools.product(range(-3, 7), repeat=2):
        both = fits(vector, a) and fits(vector, b)
        if len(a.bounds) == len(b.bounds) or not (a.bounds and b.bounds):
            assert fits(vector, a | b) is both
        else:
            assert both or not fits(vector, a | b)
            assert (a | b).bounds == (min(*a.bounds, *b.bounds),)


@pytest.mark.parametrize("need", NEEDS)
def test_a_need_of_elements_in_another_order_holds_for_each_order(need: Need) -> None:
    loose = need.loosely()
    assert loose.nonzero is need.nonzero and len(loose.bounds) == min(1, len(need.bounds))
    for vector in itertools.product(range(-3, 7), repeat=2):
        assert fits(vector, loose) is (fits(vector, need) and fits(vector[::-1], need))


# ---- operand groups


@pytest.mark.parametrize(
    ("name", "segments", "count", "parts"),
    [
        ("add", None, 2, [0, 1]),
        ("maybe", None, 2, [0, None, 1]),
        ("maybe", None, 3, [0, 1, 2]),
        ("many", None, 1, [0, ()]),
        ("many", None, 4, [0, (1, 2, 3)]),
        ("groups", (2, 1, 0), 3, [(0, 1), (2,), None]),
        ("groups", (0, 2, 1), 3, [(), (0, 1), 2]),
        ("groups", (0, 0, 0), 0, [(), (), None]),
    ],
)
def test_operands_are_split_into_their_groups(name: str, segments: tuple[int, ...] | None, count: int, parts: list[Any]) -> None:
    d = OPS[f"parts.{name}"]
    attrs = () if segments is None else (segments,)
    assert d.split(attrs, range(count)) == parts


@pytest.mark.parametrize(
    ("name", "segments", "count", "wanted"),
    [
        ("add", None, 1, "2 operands"),
        ("add", None, 3, "2 operands"),
        ("maybe", None, 1, "at least 2 operands"),
        ("maybe", None, 4, "at least 2 operands"),
        ("many", None, 0, "at least 1 operand"),
        ("groups", (1, 1, 0), 3, "at least 0 operands"),
        ("groups", (1, 2), 3, "at least 0 operands"),
    ],
)
def test_a_count_that_no_groups_have_is_refused(name: str, segments: tuple[int, ...] | None, count: int, wanted: str) -> None:
    d = OPS[f"parts.{name}"]
    with pytest.raises(Violation, match=f"{name} takes {wanted}, got {count}") as caught:
        d.split(() if segments is None else (segments,), range(count))
    extra = name == "add" and count == 3
    assert caught.value.code == "OperandCountMismatch" and caught.value.at is not None
    assert caught.value.at.key == (2 if extra else 0)  # the operands that are too many, else all


# ---- values and leaves


def test_the_leaves_that_an_operand_reads_are_counted_through_tuples() -> None:
    pair = tuple_of([V, V])
    x = Value(tuple_of([V, pair, V]), "x")
    assert leaves_read(x) == [(x, 0), (x, 1), (x, 2), (x, 3)]
    assert [leaves_read(Element(x, i)) for i in range(3)] == [[(x, 0)], [(x, 1), (x, 2)], [(x, 3)]]
    assert leaves_read(Literal(V, bytes(8))) == []


def test_an_element_of_what_is_no_tuple_is_refused_and_one_of_an_error_is_none() -> None:
    x, wrong = Value(tuple_of([V, POISON]), "x"), Value(POISON, "wrong")
    assert operand_type(Element(x, 0)) is V and operand_type(Element(wrong, 3)) is POISON and operand_type(x) is x.type
    for element in (Element(Value(V, "x"), 0), Element(x, 2), Element(x, -1)):
        with pytest.raises(Violation) as caught:
            operand_type(element)
        assert caught.value.code == "TupleIndexOutOfRange"


@pytest.mark.parametrize("x", [1, True, 1.0, 0.0, -0.0, math.nan, "a", None, (1,), ((1.0, "a"),), F32, V])
def test_a_key_is_equal_only_for_what_is_exactly_the_same(x: object) -> None:
    others: list[object] = [1, True, 1.0, 0.0, -0.0, "a", None, (1,), (True,), ((1.0, "a"),), ((1, "a"),), F32, V]
    assert exact(x) == exact(x) and hash(exact(x)) == hash(exact(x))
    assert sum(exact(x) == exact(y) for y in others) == (x == x)


@pytest.mark.parametrize("trait", [t for t in Trait if t])
def test_a_trait_is_a_fact_of_its_own(trait: Trait) -> None:
    facts = {
        "is_pure": PURE, "is_constant": CONSTANT, "is_elementwise": ELEMENTWISE, "is_movement": MOVEMENT, "writes": WRITES,
        "is_random": RANDOM, "commutes": COMMUTES, "repeats": REPEATS,
    }  # fmt: skip
    d = op("parts.trait", infer=lambda x: x, traits=trait)(lambda x: x) and OPS["parts.trait"]
    assert {name: getattr(d, name) for name in facts} == {name: t is trait for name, t in facts.items()}


def test_types_are_inferred_once_for_equal_attributes_and_for_constants_of_one_size() -> None:
    calls: list[object] = []

    def infer(x: TensorType, *, value: Any, scale: float = 0.0) -> TensorType:
        calls.append(value)
        return x

    for traits, more in ((Trait.NONE, 3), (CONSTANT, 1)):

        @op("parts.typed", infer=infer, traits=traits)
        def typed(x: Any, *, value: Literal, scale: float = 0.0) -> Any: ...

        d = OPS["parts.typed"]
        calls.clear()
        for data in (bytes(8), bytes(8), b"abcdefgh", b"ABCDEFGH"):
            assert d.result_types((V,), (Literal(V, data), 0.0)) == (V,)
        assert len(calls) == more
        d.result_types((V,), (Literal(V, bytes(4), splat=True), 0.0))
        d.result_types((V,), (Literal(V, bytes(8)), -0.0))
        d.result_types((tensor(I1),), (Literal(V, bytes(8)), 0.0))
        assert len(calls) == more + 3


def test_a_rule_that_is_broken_once_is_broken_again() -> None:
    calls: list[object] = []

    def infer(x: TensorType) -> TensorType:
        calls.append(x)
        raise Violation("Broken", "no")

    d = op("parts.broken", infer=infer)(lambda x: x) and OPS["parts.broken"]
    for _ in range(2):
        with pytest.raises(Violation, match="Broken: no"):
            d.result_types((V,), ())
    assert len(calls) == 1


def test_results_are_named_by_the_text_or_by_values() -> None:
    x, t, none = Value(V, "x"), Value(tuple_of([V, V]), "t"), Value(V)
    block = Function("f", results=[x, Element(t, 1), none, Literal(V, bytes(8)), Element(none, 0)])
    assert result_names(block) == ["x", "t.1", "result_2", "result_3", "result_4"]
    assert result_names(block, {x: "a", t: "b", none: "c"}) == ["a", "b.1", "c", "result_3", "c.0"]
    block.attrs["output_names"] = ["p", "q", "r", "s", "u"]
    assert result_names(block) == ["p", "q", "r", "s", "u"]
    assert result_names(block, {x: "a"})[:2] == ["a", "t.1"]


def test_a_tuple_fits_a_tuple_whose_elements_fit() -> None:
    n, m = tensor(F32, (sym("N"),)), tensor(F32, (UNKNOWN,))
    assert tuple_of([V, n]).accepts(tuple_of([V, m])) and tuple_of([V, POISON]).accepts(tuple_of([V, n]))
    assert not tuple_of([V, n]).accepts(tuple_of([V, V])) and not tuple_of([V, n]).accepts(tuple_of([n, V]))
    assert (
        not tuple_of([V]).accepts(tuple_of([V, V]))
        and not tuple_of([V, V]).accepts(tuple_of([V]))
        and not tuple_of([V]).accepts(V)
    )
    assert not V.accepts(tuple_of([V])) and repr(sym("N")) == str(sym("N")) and repr(V) == str(V)


# ---- regions


def test_a_copy_has_all_of_a_program_and_shares_only_literals_and_declarations() -> None:
    x, y, n = Value(V, "x"), Value(V, "y"), Value(V, "n")
    inner = create(OPS["parts.add"], [x, n], types=[V], names=["i"], loc=7)
    nested = Region("r", [n], [inner], [inner.result], [V], isolated=False, loc=3, return_loc=4)
    outer = create(OPS["parts.run"], [x], regions=[nested], types=[V], names=["o"], loc=8)
    noted = Annotation((x,), (outer.result,), [create(OPS["parts.add"], [x, y], types=[V])], loc=11)
    f = Function("f", [x, y], [outer], [Element(outer.result, 0), outer.result], [V, V], loc=5, return_loc=6)
    f.annotations, f.attrs = [noted], {"a": 1}
    toy = Dialect("parts", constant="")
    made_again = clone(Program(toy, [f], [], "f"))
    (g,) = made_again.functions
    (made,), (note,) = g.body, g.annotations
    assert (g.name, g.loc, g.return_loc, g.result_types, g.isolated, g.attrs) == ("f", 5, 6, [V, V], True, {"a": 1})
    assert g.attrs is not f.attrs and g.result_types is not f.result_types
    assert [p.name for p in g.params] == ["x", "y"] and g.params[0] is not x
    assert (made.loc, made.result.name, made.result.op, made.operands) == (8, "o", made, (g.params[0],))
    (region,) = made.regions
    assert (region.name, region.isolated, region.loc, region.return_loc) == ("r", False, 3, 4) and region is not nested
    assert region.body[0].operands == (g.params[0], region.params[0]) and region.results == [region.body[0].result]
    element, whole = g.results
    assert isinstance(element, Element) and (element.value, element.index) == (made.result, 0) and whole is made.result
    assert note is not noted and (note.inputs, note.exports, note.loc) == ((g.params[0],), (made.result,), 11)
    assert note.body[0].operands == tuple(g.params) and note.body[0] is not noted.body[0]


def test_an_op_may_fail_where_one_that_it_runs_may() -> None:
    good, bad, x = Value(V, "good"), Value(V, "bad"), Value(V, "x")
    risky = {v: create(OPS["parts.risky"], [v], types=[V]) for v in (good, bad)}
    assert may_fail(risky[bad]) and not may_fail(risky[good]) and not may_fail(create(OPS["parts.add"], [x, x], types=[V]))
    for v, op_ in risky.items():
        deep = Region("deep", [], [op_])
        deep.body.append(create(OPS["parts.run"], [x], regions=[deep], types=[V]))  # which runs itself
        outer = create(
            OPS["parts.run"],
            [x],
            regions=[Region("r", [], [create(OPS["parts.run"], [x], regions=[deep], types=[V])])],
            types=[V],
        )
        assert may_fail(outer) is (v is bad)


def test_uses_in_a_region_that_captures_keep_a_value_until_its_op() -> None:
    x, y, z = Value(V, "x"), Value(V, "y"), Value(V, "z")
    inner = create(OPS["parts.add"], [y, y], types=[V], names=["in"])
    first = create(OPS["parts.add"], [x, z], types=[V], names=["a"])
    captures = create(
        OPS["parts.run"], [first.result], regions=[Region("r", [], [inner], [z], isolated=False)], types=[V], names=["b"]
    )
    apart = create(
        OPS["parts.run"], [first.result], regions=[Region("s", [], [inner], [], isolated=True)], types=[V], names=["c"]
    )
    last = create(OPS["parts.add"], [captures.result, captures.result], types=[V], names=["d"])
    block = Region(
        "f", [x, y, z], [first, captures, apart, last], [captures.result, Element(last.result, 0), Literal(V, bytes(8))]
    )
    ends = {i: {v.name for v in values} for i, values in last_uses(block).items()}
    assert ends == {0: {"x"}, 1: {"y", "z"}, 2: {"a", "c"}}


def test_a_walk_gives_each_item_once_behind_all_before_it() -> None:
    graph = {"d": ["b", "c"], "b": ["a"], "c": ["a", "b"], "a": [], "e": []}
    assert post_order(["d", "e", "a"], graph.__getitem__) == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize("wrong", [None, *range(5)])
def test_a_rule_holds_where_it_holds_for_all_that_it_names(wrong: int | None) -> None:
    """Each item is asked once, also in a circle; True asks no further."""
    items = [[n] for n in range(6)]  # by identity
    asked: list[int] = []

    def rule(x: list[int]) -> bool | list[list[int]]:
        asked.append(x[0])
        return False if x[0] == wrong else True if x[0] == 4 else [items[(x[0] + 1) % 5], items[(x[0] + 2) % 5]]

    assert holds(items[0], rule) is (wrong is None) and len(asked) == len(set(asked))
    assert wrong is not None or sorted(asked) == [0, 1, 2, 3, 4]


# ---- facts: what is left out says nothing


def test_facts_that_are_left_out_say_nothing() -> None:
    assert Algebra() == ("", "", False, False, None, None) and Algebra().laws() == []
    assert Kernel("map") == ("map", "", "", False, False) and InPlace("ufunc") == ("ufunc", "", ())
    assert Asks() == (None, None, None) and not any(Need()) and Branch() == (1,) and not View(lambda *_: None).in_order
    laws = ["odd", "increasing", "idempotent", "involution", "identity 0", "absorbing 1"]
    assert Algebra("odd", "increasing", True, True, 0, 1).laws() == laws


def test_a_loop_says_what_it_runs_and_whether_it_does() -> None:
    test, body, x = Region("test"), Region("body"), Value(V, "x")
    run = Op(OPS["parts.run"], (x,), regions=(test, body))
    assert Loop(len).parts(run) == [(test, 0, False)]
    assert Loop(len, body=1, runs=lambda op: op is run).parts(run) == [(body, 0, True)]
    assert Loop(len, body=1, test=0).parts(run) == [(test, 1, True), (body, 0, False)]


# ---- time and options


def test_the_clock_stops_what_takes_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("ptir_tools.core.evaluate.time.monotonic", lambda: now)
    context, free = Context(timeout=5), Context()
    free.start()
    context.check_time()  # it has not begun
    context.start()
    context.check_time()
    now = 105.0
    context.check_time()
    now = 105.1
    free.check_time()
    with pytest.raises(LimitExceeded, match="stopped after 5 s") as caught:
        context.check_time()
    assert caught.value.flag == "--timeout"


def test_an_option_with_a_name_or_a_flag_that_is_taken_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptir_tools.core.dialect.OPTIONS", {})
    first = Option("parts_one", default=1, flag="--parts-one", help="")
    declare_options(first)
    declare_options(first)
    declare_options(Option("parts_two", default=1, flag="", help=""), Option("parts_three", default=1, flag="", help=""))
    for other, clash in (
        (Option("parts_one", default=2, flag="", help=""), "parts_one"),
        (Option("x", default=2, flag="--parts-one", help=""), "--parts-one"),
    ):
        with pytest.raises(ValueError, match=f"there is an option `{clash}` already"):
            declare_options(other)


def test_a_program_is_shown_by_its_counts() -> None:
    x = Value(V, "x")
    f = Function("f", [x], [create(OPS["parts.add"], [x, x], types=[V]) for _ in range(3)])
    r = Region("r", [], [create(OPS["parts.add"], [x, x], types=[V])])
    assert repr(Program(Dialect("parts", constant=""), [f], [r], "f")) == "<parts program f: 1 functions, 1 regions, 4 ops>"
    assert repr(f) == "<function f: 3 ops>" and repr(r) == "<region r: 1 ops>" and repr(Op(OPS["parts.add"])) == "<parts.add>"
    assert tensor(I1).accepts(POISON) and POISON.accepts(tensor(I1))
