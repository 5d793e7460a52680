"""Comparing outputs and programs: what is counted as different, what is not compared, and the sizes that open symbols get."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptir_tools.core import symbols
from ptir_tools.core.limits import LimitExceeded, Limits
from ptir_tools.engines import compare
from ptir_tools.engines.compare import Divergence, Tolerance
from ptir_tools.engines.options import RunOptions
from tests.convert.translations import parse

ADD = """func @f(%x: tensor<f32, 3>, %y: tensor<f32, 3>) -> tensor<f32, 3> {
  %q = add(%x, %y) -> tensor<f32, 3>
  return %q
}
"""


@settings(max_examples=60)
@given(
    st.lists(st.floats(-100, 100) | st.sampled_from([np.inf, -np.inf, np.nan]), min_size=1, max_size=4),
    st.integers(0, 3),
    st.floats(0, 2),
    st.sampled_from([0.0, 0.25, 1.0]),
    st.sampled_from([0.0, 0.01]),
)
def test_an_element_passes_within_both_tolerances_together(
    values: list[float], at: int, step: float, absolute: float, relative: float
) -> None:
    """Held to the sentence that says it, element by element."""
    a = np.array(values)
    b = a.copy()
    b[at % len(values)] += step
    found = compare.diverging("q", a, b, Tolerance(absolute, relative))

    def alike(x: float, y: float) -> bool:
        if np.isnan(x) or np.isinf(x) or np.isnan(y) or np.isinf(y):
            return x == y or bool(np.isnan(x) and np.isnan(y))
        return abs(x - y) <= absolute + relative * abs(x)

    wrong = [i for i, (x, y) in enumerate(zip(a, b, strict=True)) if not alike(x, y)]
    assert (found is None) == (not wrong)
    if found is not None:
        assert (found.index, found.count) == ((wrong[0],), len(wrong))
        assert compare.diverging("q", a, b, Tolerance(found.absolute)) is None
        assert found.absolute == 0 or compare.diverging("q", a, b, Tolerance(math.nextafter(found.absolute, 0)))


def test_integers_are_compared_bit_for_bit() -> None:
    a = np.array([1, 2, 2**62 + 1])
    assert compare.diverging("q", a, a.copy(), Tolerance(0.0)) is None
    assert compare.diverging("q", a, a + np.array([0, 0, 1]), Tolerance(3.0)).index == (2,)
    told = compare.diverging("q", a, a + np.array([0, 2, 0]), Tolerance(np.array([0.0, 1.0, 0.0])))
    assert told is not None and (told.absolute, told.relative) == (None, None)
    assert compare.diverging("q", a, a + np.array([0, 1, 0]), Tolerance(np.array([0.0, 1.0, 0.0]))) is None
    assert compare.diverging("q", np.array([True]), np.array([False])) is not None


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Divergence("q", (1, 2), 3.0, 4.0, 2, 1.0, 0.5), "q[1, 2] is 4.0, expected 3.0 (2 elements differ; "
         "passes with atol 1 or rtol 0.5)"),
        (Divergence("q", (), 3.0, 4.0, 1, 1.0, None), "q is 4.0, expected 3.0 (1 elements differ; passes with atol 1)"),
        (Divergence("q", (0,), 3, 4, 1, None, None), "q[0] is 4, expected 3 (1 elements differ)"),
    ],
)  # fmt: skip
def test_what_a_divergence_says(found: Divergence, said: str) -> None:
    assert str(found) == said


def test_another_dtype_or_shape_is_told() -> None:
    a = np.zeros((2, 3), np.float32)
    assert str(compare.diverging("q", a, a.T)) == "q: got float32[3, 2], expected float32[2, 3]"
    assert str(compare.diverging("q", a, a.astype(np.float64))) == "q: got float64[2, 3], expected float32[2, 3]"
    (found,) = compare.compare({"q": a}, {}, {})
    assert str(found) == "outputs: 0 outputs, expected 1"
    (found,) = compare.compare({"q": a, "r": a}, {"a": a, "b": a + 1}, {"r": Tolerance(0.5)})
    assert found.name == "r"
    assert compare.compare({"q": a, "r": a}, {"a": a, "b": a + 1}, {"r": Tolerance(1.0)}) == []


@pytest.mark.parametrize(("k", "wrong"), [(0, 0.0), (1, 1.0), (2, 0.5)])
def test_a_program_that_differs_in_one_run_diverges(k: int, wrong: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs before it are counted, and those after it are not made."""
    made = []
    honest = compare.run

    def off(*arguments: Any) -> Mapping[str, Any]:
        made.append(arguments)
        outputs = honest(*arguments)
        return {n: x + np.float32(wrong) if len(made) - 1 == k else x for n, x in outputs.items()}

    monkeypatch.setattr(compare, "run", off)
    program = parse(ADD, "ptir")
    found = compare.check(program, program)
    assert bool(found.diverged) is bool(wrong)
    assert found.runs == len(made) == (k + 1 if wrong else 3)
    assert found.elements == {"q": 3 * found.runs}
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found.expected["q"], found.inputs["x"] + found.inputs["y"])
    np.testing.assert_equal(found.inputs, found.inputs_after)
    if wrong:
        assert 0 < found.tolerance.largest < (1e-5 if k < 2 else math.inf)  # the last run has limits of f32


def test_runs_have_inputs_of_their_own_and_known_ones_are_kept() -> None:
    program, seen = parse(ADD, "ptir"), list[Mapping[str, Any]]()

    def execute(given: Mapping[str, Any]) -> dict[str, Any]:
        seen.append(dict(given))
        return {"out": given["x"] + given["y"]}

    known = np.array([1, 2, 4], np.float32)
    assert not compare.check(program, program, constants={"y": known, "none": known}, execute=execute).diverged
    assert len({tuple(g["x"].tolist()) for g in seen}) == 3
    assert all(g["y"].tolist() == [1, 2, 4] for g in seen)
    again = compare.check(program, program, runs=1, seed=2, execute=execute)
    np.testing.assert_array_equal(again.inputs["x"], seen[2]["x"])


def test_options_reach_both_runs() -> None:
    program = parse(ADD.replace("tensor<f32, 3>", "tensor<f32, ?N>"), "ptir")
    assert compare.check(program, program).sizes == {"N": 2}
    found = compare.check(program, program, options=RunOptions(bindings={"N": 5}))
    assert found.sizes == {} and [x.shape for x in found.inputs.values()] == [(5,), (5,)] and found.elements == {"q": 15}


def test_what_is_not_finite_before_may_be_anything_after_where_numbers_are_taken_for_finite() -> None:
    before = "func @f(%x: tensor<f32, 3>, %i: tensor<si32>) -> (tensor<f32, 3>, tensor<si32>) {{\n  {}\n  return %q, %i\n}}\n"
    one = parse(before.format("%q = div(%x, dense<0.0> : tensor<f32>) -> tensor<f32, 3>").replace(
        "%q = div(%x, dense<0.0> : tensor<f32>)",
        "%z = broadcast_to(dense<0.0> : tensor<f32>) result_shape[3] -> tensor<f32, 3>\n  %q = div(%x, %z)"), "ptir")  # fmt: skip
    other = parse(before.format("%q = sub(%x, %x) -> tensor<f32, 3>"), "ptir")
    assert compare.check(one, other).diverged
    found = compare.check(one, other, finite=True)
    assert not found.diverged and found.skipped == {"q": 9}
    assert compare.check(other, one, finite=True).diverged


# ---- Memory for results, and dtypes that a translation widens


@pytest.mark.parametrize(
    ("memory", "shapes", "wanted"),
    [
        ([(3,), (1,)], [()], [()]),
        ([(3,), (1,)], [(1,)], [(1,)]),
        ([(3,), (2,)], [()], [(2,)]),
        ([(3,), (4,)], [(3,), (4,)], [(3,), (4,)]),
        ([(3,)], [(3,), (4,)], [(3,)]),
        ([(1,), (1,)], [(), (1,)], [(), (1,)]),
    ],
)
def test_the_last_memory_holds_the_results(memory: list[Any], shapes: list[Any], wanted: list[Any]) -> None:
    given = {f"m{i}": np.full(s, i) for i, s in enumerate(memory)}
    found = compare._results(given, {f"r{i}": np.zeros(s) for i, s in enumerate(shapes)})
    assert [x.shape for x in found.values()] == wanted
    assert list(found) == list(given)[len(given) - len(found) :]


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
@pytest.mark.parametrize("values", [[0, 1], [-1, 5], [200, 3], [2**40, 1]])
@pytest.mark.parametrize("source", [np.int16, np.int64, np.bool_, np.float32])
def test_integers_are_carried_where_none_is_lost(source: Any, kind: Any, values: list[int]) -> None:
    x = np.array(values).astype(source)
    found = compare._carried(x, np.zeros(2, kind))
    whole = np.dtype(source).kind in "iub"
    fits = whole and (np.dtype(kind).itemsize >= np.dtype(source).itemsize or x.astype(kind).tolist() == x.tolist())
    assert found.dtype == (kind if fits else source)
    assert compare._carried(x, np.zeros(2, np.float32)).dtype == source


# ---- Sizes for open symbols


def sized(*shapes: str, body: str = "", result: str = "x0", of: str = "") -> str:
    params = ", ".join(f"%x{i}: tensor<f32, {s}>" for i, s in enumerate(shapes))
    return f"func @f({params}) -> tensor<f32, {of or shapes[0]}> {{\n{body}  return %{result}\n}}\n"


def test_open_symbols_get_distinct_small_sizes() -> None:
    program = parse(sized("?Nx?M", "?Mx?K"), "ptir")
    assert compare.small_sizes(program, {}) == {"N": 2, "M": 3, "K": 4}
    assert compare.small_sizes(program, {"N": 7}) == {"M": 2, "K": 3}
    assert compare.small_sizes(program, {"N": 7, "M": 1, "K": 1}) == {}
    assert compare.small_sizes(parse(sized("4x5"), "ptir"), {}) == {}


def test_sizes_suit_the_types() -> None:
    body = "  %r = reshape(%x0) new_shape[3, ?M] -> tensor<f32, 3x?M>\n"
    program = parse(sized("?Nx2", body=body, result="r", of="3x?M"), "ptir")
    found = compare.small_sizes(program, {})
    assert found["N"] % 3 == 0
    symbols.specialize(program, dict(found))


def test_sizes_that_nothing_suits_are_left_to_the_run() -> None:
    body = "  %r = reshape(%x0) new_shape[7] -> tensor<f32, 7>\n"
    program = parse(sized("?Nx2", body=body, result="r", of="7"), "ptir")
    assert compare.small_sizes(program, {}) == {"N": 2}


@pytest.mark.parametrize("count", [1, 5, 14])
def test_sizes_of_many_symbols_suit_the_types(count: int) -> None:
    """Where the first numbers do not fit, others are tried, as many as there are symbols."""
    body = "  %r = reshape(%x0) new_shape[5, ?M] -> tensor<f32, 5x?M>\n"
    program = parse(sized("?Nx2", *(f"?N{i}" for i in range(count)), body=body, result="r", of="5x?M"), "ptir")
    found = compare.small_sizes(program, {})
    assert len(found) == count + 1 and len(set(found.values())) == count + 1 and found["N"] % 5 == 0


# ---- Special values


@pytest.mark.parametrize(
    ("honest", "wrong"),
    [
        ("%q = mul(%x, dense<0.0> : tensor<f32, 64>)", "%q = sub(dense<0.0> : tensor<f32, 64>, dense<0.0> : tensor<f32, 64>)"),
        ("%q = mul(%x, dense<0.5> : tensor<f32, 64>)", "%h = mul(%x, dense<4.0> : tensor<f32, 64>) -> tensor<f32, 64>\n"
         "%q = mul(%h, dense<0.125> : tensor<f32, 64>)"),
    ],
)  # fmt: skip
def test_the_last_of_several_runs_has_special_values(honest: str, wrong: str) -> None:
    """A rewrite that is wrong for NaN, infinities or limits is found."""
    text = "func @f(%x: tensor<f32, 64>) -> tensor<f32, 64> {{\n{} -> tensor<f32, 64>\nreturn %q\n}}\n"
    before, after = parse(text.format(honest), "ptir"), parse(text.format(wrong), "ptir")
    assert not compare.check(before, after, runs=1).diverged
    found = compare.check(before, after)
    assert found.diverged and found.runs == 3
    assert not np.isfinite(found.inputs["x"]).all()
    assert not compare.check(before, before).diverged


def test_an_output_that_differs_is_measured_again_before_it_is_told() -> None:
    """Found: 8 samples gave a bound of 1.5e-5 for a softmax in f16 whose engines differ by 2e-5; 64 give more."""
    taken: list[int] = []

    def more() -> Tolerance:
        taken.append(1)
        return Tolerance(np.full(3, 0.5))

    few = Tolerance(np.full(3, 0.1), again=more)
    x, near, far = (np.array([1, 2, n], np.float32) for n in (3.0, 3.25, 4.0))
    assert compare.diverging("y", x, x, few) is None and compare.nearest("y", x, x, few) is None and not taken
    assert (
        compare.diverging("y", x, near, few) is None
        and (found := compare.nearest("y", x, near, few))
        and found.bound == 0.5
        and taken
    )
    assert compare.diverging("y", x, far, few)
    both = few + Tolerance(0.25)
    assert compare.diverging("y", x, x + np.float32(0.7), both) is None and compare.diverging("y", x, x + np.float32(0.8), both)
    peer = compare.for_peer({"y": x}, {"y": few})["y"]
    assert compare.diverging("y", x, near, peer) is None and compare.diverging("y", x, far, peer)
    settled = Tolerance(0.1)
    assert settled.settled() is settled and few.settled().absolute[0] == 0.5


def test_the_bound_by_more_samples_is_of_the_same_run() -> None:
    """It is within a small factor of the first one, and as exact where nothing rounds."""
    t = "tensor<f16, 64>"
    ops = [f"mul(%x, %x) -> {t}"] + [f"tanh(%v{i}) -> {t}" for i in range(6)]
    text = f"func @f(%x: {t}) -> {t} {{\n" + "".join(f"  %v{i} = {op}\n" for i, op in enumerate(ops))
    program = parse(text + "  return %v6\n}\n", "ptir")
    x = np.random.default_rng(0).standard_normal(64).astype(np.float16)
    _, tolerances = compare.reference_outputs(program, [x], RunOptions())
    few = tolerances["v6"]
    assert few.again is not None
    more = few.settled()
    assert more.again is None and np.all(np.asarray(more.absolute) < 4 * np.asarray(few.absolute))
    assert np.all(np.asarray(more.absolute) > np.asarray(few.absolute) / 4)


def _without_memory(*_: object) -> None:
    raise MemoryError


def test_a_difference_stays_one_where_there_is_no_room_to_measure_again(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "func @f(%x: tensor<f16, 4096>) -> tensor<f16, 4096> {\n  %a = tanh(%x) -> tensor<f16, 4096>\n"
    text += "".join(f"  %b{i} = sin(%{'a' if i == 0 else f'b{i - 1}'}) -> tensor<f16, 4096>\n" for i in range(8))
    text += "  %c = mul(%b7, %a) -> tensor<f16, 4096>\n  return %c\n}\n"  # errors that meet
    program = parse(text, "ptir")
    x = np.random.default_rng(0).standard_normal(4096).astype(np.float16)
    rooms = [n << 16 for n in range(1, 400)]  # the least in which the first measurement runs
    for room in rooms:
        with suppress(LimitExceeded):
            outputs, tolerances = compare.reference_outputs(program, [x], RunOptions(limits=Limits(memory=room)))
            break
    assert tolerances["c"].again is not None
    few, more = np.asarray(tolerances["c"].absolute), np.asarray(tolerances["c"].settled().absolute)
    assert np.all(more >= few) and np.any(more > few) and np.all(more < 4 * few)  # by runs with as few samples
    _, others = compare.reference_outputs(program, [x], RunOptions())
    monkeypatch.setattr(compare.bounds, "Executable", _without_memory)
    assert others["c"].settled().absolute is others["c"].absolute
    assert compare.diverging("c", outputs["c"], outputs["c"] + np.float16(0.5), others["c"]) is not None


@pytest.mark.parametrize(
    ("shape", "wanted", "found"),
    [((1,), (), ()), ((1,), (0,), (0,)), ((1,), (2, 0), (2, 0)), ((1,), (1,), (1,)), ((1,), (3,), (1,)), ((3,), (3,), (3,))],
)
def test_memory_of_one_element_is_a_result_of_rank_0_or_of_no_elements(
    shape: tuple[int, ...], wanted: tuple[int, ...], found: tuple[int, ...]
) -> None:
    """The results are the last memory that a program writes, under its own names."""
    memory = {"first": np.zeros(7), "x": np.ones(shape), "y": np.full(2, 3.0)}
    made = compare._results(memory, {"r": np.zeros(wanted), "s": np.zeros(2)})
    assert list(made) == ["x", "y"] and made["x"].shape == found and made["x"].size in (0, np.ones(shape).size)
    assert not compare._results(memory, {})
    assert list(compare._results({"x": np.ones(1)}, {"r": np.ones(1), "s": np.ones(1)})) == ["x"]
