"""Plans: live ranges, aliases, placement, what is written."""

from __future__ import annotations

import json
import random
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptir_tools.core.builder import single_function
from ptir_tools.core.dtypes import F32
from ptir_tools.core.ir import Element
from ptir_tools.core.strides import dense_strides, is_dense
from ptir_tools.core.types import sym, tensor
from ptir_tools.core.violations import Violation
from ptir_tools.dialects import load_dialect
from ptir_tools.plan import placement, plan, search, to_csv, to_json, to_text
from ptir_tools.plan.exact import Budget, improve
from ptir_tools.plan.placement import Interval, lower_bound, peak, place
from ptir_tools.plan.validate import conflicts
from tests.bench.plan import cut
from tests.ptir.programs import programs


def chain(*ops):
    """A function of one 64x4 parameter, each op on the value before it; (plan, names of the values)."""
    program, b = single_function(load_dialect("ptir"))
    x = b.param(tensor(F32, (64, 4)), "x")
    for i, (name, attrs) in enumerate(ops):
        x = b.op(name, x, name=f"t{i}", **attrs)
    b.results(x)
    return plan(program).functions["main"]


def buffer(block, name):
    return next(b for b in block.buffers if b.name == name)


def test_live_range_ends_at_the_last_use():
    program, b = single_function(load_dialect("ptir"))
    x = b.param(tensor(F32, (8,)), "x")
    a = b.op("exp", x, name="a")
    c = b.op("neg", x, name="c")
    b.results(b.op("add", a, c, name="d"))
    block = plan(program).functions["main"]
    assert [(buffer(block, n).start, buffer(block, n).end) for n in "xacd"] == [(0, 2), (1, 4), (2, 3), (3, 4)]


def test_parameters_constants_and_results_are_outside_the_arena():
    block = chain(("exp", {}))
    assert (block.peak, block.nbytes("parameter"), block.nbytes("result")) == (0, 1024, 1024)
    assert block.total == 2048


def test_reshape_and_stop_gradient_share_their_operands_storage():
    block = chain(("exp", {}), ("reshape", {"new_shape": (4, 64)}), ("stop_gradient", {}), ("neg", {}))
    assert [buffer(block, n).alias for n in ("t1", "t2")] == ["identity", "identity"]
    assert buffer(block, "t1").root is buffer(block, "t0")


def test_a_view_keeps_its_source_alive():
    program, b = single_function(load_dialect("ptir"))
    x = b.param(tensor(F32, (8, 8)), "x")
    a = b.op("exp", x, name="a")
    view = b.op("slice", a, starts=(0, 0), sizes=(2, 2), name="view")
    other = b.op("neg", x, name="other")
    b.results(b.op("reduce_sum", other, axes=(0, 1)), b.op("exp", view))
    block = plan(program).functions["main"]
    a, view, other = (buffer(block, n) for n in ("a", "view", "other"))
    assert view.root is a
    assert view.alias == "view"
    assert a.end >= view.end
    assert a.offset + a.nbytes <= other.offset or other.offset + other.nbytes <= a.offset


def test_a_reshape_of_a_transposed_view_has_storage_of_its_own():
    block = chain(("exp", {}), ("transpose", {"perm": (1, 0)}), ("reshape", {"new_shape": (256,)}), ("neg", {}))
    assert buffer(block, "t1").alias == "view"
    assert buffer(block, "t2").alias == ""


@pytest.mark.parametrize(
    ("op", "returned"),
    [
        (("reshape", {"new_shape": (4, 64)}), True), (("stop_gradient", {}), True), (("transpose", {"perm": (0, 1)}), True),
        (("transpose", {"perm": (1, 0)}), False), (("slice", {"starts": (0, 0), "sizes": (2, 4)}), False),
        (("slice", {"starts": (8, 0), "sizes": (56, 4)}), False), (("slice", {"starts": (0, 0), "sizes": (64, 2)}), False),
        (("slice", {"starts": (0, 0), "sizes": (64, 4)}), True),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_returned_without_a_copy_is_all_of_its_storage_in_order(op, returned):
    """A result that sees a part of an intermediate value, or all in another order, is copied out of the arena."""
    block = chain(("exp", {}), op)
    assert buffer(block, "t1").root is (made := buffer(block, "t0"))
    assert made.usage == ("result" if returned else "temporary")


def test_an_elementwise_result_takes_the_storage_of_a_dying_operand():
    block = chain(("exp", {}), ("neg", {}), ("tanh", {}), ("reduce_sum", {"axes": (0,)}))
    assert {buffer(block, n).root.name for n in ("t0", "t1", "t2")} == {"t0"}
    assert block.peak == 1024


def test_a_result_is_not_written_over_what_another_operand_sees_differently():
    program, b = single_function(load_dialect("ptir"))
    x = b.param(tensor(F32, (8, 8)), "x")
    a = b.op("exp", x, name="a")
    b.results(b.op("neg", b.op("add", a, b.op("transpose", a, perm=(1, 0)), name="sum")))
    assert buffer(plan(program).functions["main"], "sum").alias == ""


def test_symbolic_extents_are_refused():
    program, b = single_function(load_dialect("ptir"))
    x = b.param(tensor(F32, (sym("N"),)), "x")
    b.results(b.op("exp", x))
    with pytest.raises(Violation) as caught:
        plan(program)
    assert caught.value.code == "UnboundSymbol"


def test_sizes_are_exact_beyond_64_bits():
    program, b = single_function(load_dialect("ptir"))
    x = b.param(tensor(F32, (10**9, 10**9, 10**3)), "x")
    b.results(b.op("reduce_sum", b.op("neg", b.op("exp", x)), axes=(0, 1, 2)))
    assert plan(program).functions["main"].peak == 4 * 10**21


@settings(max_examples=60, deadline=None)
@given(programs())
def test_plans_never_overlap(program):
    made = plan(program)
    for block in (*made.functions.values(), *made.regions.values()):
        assert block.faults() == []
        assert block.peak >= block.lower_bound


intervals = st.builds(
    lambda lower, length, size: Interval(lower, lower + length, size),
    st.integers(0, 30),
    st.integers(0, 10),
    st.integers(0, 9),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(intervals, max_size=30))
def test_placements_are_valid_and_not_below_the_bound(items):
    offsets = place(items)
    assert conflicts(items, offsets, limit=peak(items, offsets)) == []
    assert peak(items, offsets) >= lower_bound(items) == brute_force_bound(items)


def brute_force_bound(items):
    return max((sum(x.size for x in items if x.lower <= t < x.upper) for t in range(45)), default=0)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(intervals, st.integers(0, 20)), max_size=12))
def test_the_judge_finds_every_overlap(placed):
    items, offsets = [x for x, _ in placed], [at for _, at in placed]
    wrong = any(
        a.size and b.size and a.lower < b.upper and b.lower < a.upper and p < q + b.size and q < p + a.size
        for i, (a, p) in enumerate(placed)
        for b, q in placed[:i]
        if a.upper > a.lower and b.upper > b.lower
    )
    assert bool(conflicts(items, offsets)) == wrong


@pytest.mark.skipif(search.kernel() is None, reason="no C compiler at installation")
@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-20, 20), st.integers(0, 60), st.integers(0, 40)), max_size=60), st.sampled_from([1, 10**15])
)
def test_the_kernel_places_as_python_does(items, scale):
    """Whatever the scale of time, and with intervals that are empty."""
    intervals = [Interval(a * scale, (a + length) * scale, size) for a, length, size in items]
    along = placement.timeline(intervals)
    assert [*placement._fit_in_kernel(intervals, along)] == [*placement._fit_in_python(intervals, along)]


def test_what_the_kernel_cannot_count_is_placed():
    assert sorted(place([Interval(0, 2, 1 << 70), Interval(1, 3, 1 << 70)])) == [0, 1 << 70]
    assert sorted(place([Interval(0, 1 << 70, 1), Interval(1, 1 << 71, 1)])) == [0, 1]


def test_a_hundred_thousand_intervals_are_placed_in_time():
    rng = random.Random(0)
    items = [Interval(i, i + rng.randint(1, 8), rng.randint(1, 100)) for i in range(100_000)]
    offsets = place(items)
    assert conflicts(items, offsets) == []
    assert peak(items, offsets) <= 2 * lower_bound(items)


def test_uneven_pieces_of_a_rectangle_are_packed_nearly_without_a_gap():
    """In blocks: too few steps for them, or one way to place them, leaves a gap of a fifth of the height."""
    items = cut(20_000, 1, 1 << 16, 1 << 20)
    offsets = improve(items, place(items), Budget(400_000)).offsets
    assert conflicts(items, offsets, limit=(1 << 20) * 11 // 10) == []


def test_weights_of_blocks_are_changed_for_the_better():
    items = cut(1000, 1, 4000, 4000)
    first, later = (improve(items, place(items), Budget(steps), joined=True).offsets for steps in (4000, 150_000))
    assert peak(items, later) < peak(items, first)
    assert improve(items, place(items), Budget(150_000), joined=True).offsets == later
    assert conflicts(items, later) == []


def test_json_has_every_buffer_with_its_place():
    made = chainless()
    data = json.loads("".join(to_json(made)))
    block = data["functions"]["main"]
    assert {"peak", "lower_bound", "ratio", "total", "buffers", "parameter_bytes"} <= block.keys()
    assert [b["value"] for b in block["buffers"]] == ["x", "e", "r", "s"]
    assert block["buffers"][2]["alias_of"] == 1


def test_text_and_csv_tell_the_same():
    made = chainless()
    assert "ratio 1.0000" in "".join(to_text(made))
    assert "".join(to_csv(made)).splitlines() == ["id,lower,upper,size,offset", "@main:e,1,4,1024,0"]


def chainless():
    program, b = single_function(load_dialect("ptir"))
    x = b.param(tensor(F32, (64, 4)), "x")
    r = b.op("reshape", b.op("exp", x, name="e"), new_shape=(256,), name="r")
    b.results(b.op("reduce_sum", r, axes=(0,), name="s"))
    return plan(program)


@given(st.lists(st.integers(0, 4), max_size=5).map(tuple))
def test_row_major_is_dense(shape):
    assert is_dense(shape, dense_strides(shape))
    if prod(shape) > 1 and len(shape) > 1:
        assert not is_dense((2, *shape), (1, *dense_strides(shape)))


def test_live_ranges_begin_where_a_value_is_made_and_results_live_to_the_end():
    """Each buffer of a body of five, by position: parameters at 0, op i at i + 1, results are read at 6."""
    program, b = single_function(load_dialect("ptir"))
    x, unused = b.param(tensor(F32, (8,)), "x"), b.param(tensor(F32, (8,)), "unused")
    first = b.op("exp", x, name="first")  # a result, and last used before the end
    dead = b.op("log", x, name="dead")
    top = b.op("top_k", first, k=3, name="top")  # of which one leaf is a result
    copied = b.op("cumsum", dead, axis=0, name="copied")
    b.op("neg", copied, name="last")  # of which no one reads
    b.results(first, unused, Element(top, 1))
    block = plan(program).functions["main"]
    found = {v.name: (v.start, v.end) for v in block.buffers}
    assert found == {
        "x": (0, 2), "unused": (0, 6), "first": (1, 6), "dead": (2, 4), "top.0": (3, 3), "top.1": (3, 6), "copied": (4, 5),
        "last": (5, 5),
    }  # fmt: skip
