"""Random inputs, and comparing within the computed bound."""

from __future__ import annotations

import tracemalloc

import ml_dtypes
import numpy as np
import pytest

import ptir_tools
from ptir_tools.core.arrays import numpy_dtype
from ptir_tools.core.builder import Builder, single_function
from ptir_tools.core.dtypes import BF16, F32, F64, I1, PTIR_DTYPES, SI32, UI8
from ptir_tools.core.ir import Region
from ptir_tools.core.types import sym, tensor
from ptir_tools.core.violations import Violation
from ptir_tools.dialects import load_dialect
from ptir_tools.engines import RunOptions, compare, run
from ptir_tools.engines.inputs import random_array, random_inputs
from tests.engines.programs import agree, build

# ---- Random inputs.


def test_random_inputs_do_not_depend_on_each_other():
    program, b, params = build((F32, (100,)), (SI32, (100,)), (UI8, (100,)), (BF16, (100,)), (I1, (100,)))
    b.results(*params)
    first = random_inputs(program, 5)
    again = random_inputs(program, 5, given={"p0": np.zeros(100, np.float32), "p3": first["p3"]})
    assert all(np.array_equal(first[k], again[k]) for k in again)
    assert not np.array_equal(first["p0"], random_inputs(program, 6)["p0"])
    assert -1 <= first["p0"].min() < -0.8 and 0.8 < first["p0"].max() < 1
    assert set(np.unique(first["p1"])) == set(range(-8, 8))
    assert set(np.unique(first["p2"])) == set(range(16))
    assert first["p3"].astype(float).max() < 1
    assert 30 < first["p4"].sum() < 70


FLOATS = [dtype for dtype in PTIR_DTYPES if dtype.is_float]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(), (0, 4), (3,), (70, 1001)])
def test_floats_drawn_in_pieces_are_those_drawn_at_once(dtype, shape):
    stream = np.random.Generator(np.random.Philox(key=np.array([7, 2], np.uint64)))
    one = 1 << dtype.precision
    wanted = np.asarray(stream.integers(-one, one, shape) / one).astype(numpy_dtype(dtype))
    found = random_array(dtype, shape, 7, 2)
    assert found.shape == shape and found.dtype == wanted.dtype
    assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_drawing_floats_takes_little_more_memory_than_they_do(dtype):
    random_array(dtype, (3,), 0, 0)
    tracemalloc.start()
    try:
        found = random_array(dtype, (1 << 20,), 0, 0)
        assert tracemalloc.get_traced_memory()[1] < found.nbytes + (1 << 20)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("dtype", PTIR_DTYPES, ids=str)
def test_special_inputs_have_the_ends_of_their_dtype(dtype):
    program, b, params = build((dtype, (3000,)), (SI32, (50,)), (F32, (9,)))
    b.results(params[0], b.op("take", params[2], params[1]))
    plain, special = random_inputs(program, 1), random_inputs(program, 1, special=True)
    assert np.array_equal(plain["p1"], special["p1"])  # an index stays inside
    x = special["p0"]
    assert x.dtype == plain["p0"].dtype
    if dtype.is_integer:
        info = ml_dtypes.iinfo(x.dtype)
        assert {info.min, info.max, 0} <= {int(v) for v in x}
    elif dtype.is_float:
        wide, info = x.astype(np.float64), ml_dtypes.finfo(x.dtype)
        assert {float(info.max), -float(info.max), float(info.smallest_subnormal)} <= set(wide[np.isfinite(wide)])
        assert np.isnan(wide).any() and np.signbit(wide[wide == 0]).any() and not np.signbit(wide[wide == 0]).all()
    elif dtype.is_complex:
        assert np.isnan(x.real).any() and np.isinf(x.imag).any() and np.signbit(x.real[x == 0]).any()


def test_random_indices_and_divisors_are_in_range():
    program, b, (x, i, j, d) = build((F32, (3, 50)), (SI32, (40, 2)), (SI32, (2,)), (SI32, (40,)))
    b.results(
        b.op("take", x, b.op("transpose", b.op("stop_gradient", i), perm=(1, 0))),
        b.op("dynamic_slice", x, b.op("cast", j, dtype=SI32), sizes=(2, 10)),
        b.op("div", d, b.op("reshape", d, new_shape=(40,))),
    )
    for seed in range(5):
        inputs = random_inputs(program, seed)
        assert set(np.unique(inputs["p1"])) == {0, 1, 2}
        assert 0 <= inputs["p2"][0] <= 1 and 0 <= inputs["p2"][1] <= 40
        assert (inputs["p3"] != 0).all()
        run(program, inputs)


def test_random_indices_of_windows_keep_these_inside() -> None:
    text = (
        "func @f(%x: tensor<f32, 5x4>, %i: tensor<si32, 9x2>, %u: tensor<f32, 2x9x3>) -> tensor<f32, 5x4> {\n"
        "  %y = scatter_add(%x, %i, %u) update_window_dims[0, 2] inserted_window_dims[] scatter_dims_to_operand_dims[1, 0] "
        "index_vector_dim[1] -> tensor<f32, 5x4>\n  return %y\n}\n"
    )
    program = ptir_tools.read(text)
    for seed in range(20):
        indices = random_inputs(program, seed)["i"]
        assert indices.min() >= 0 and indices.max() <= 1  # 4 - 3 along axis 1, 5 - 2 along axis 0


def test_random_indices_know_extents_that_follow_from_others() -> None:
    """The second extent of %y is one that an op makes, 2·N - 1: it bounds the index although no input mentions it."""
    text = (
        "func @f(%x: tensor<f32, 2x?N>, %i: tensor<si32, 90>) -> tensor<f32, 90x2> {\n"
        "  %y = pad(%x) low[0, 0] high[0, 0] interior[0, 1] -> tensor<f32, 2x?M>\n"
        "  %t = transpose(%y) perm[1, 0] -> tensor<f32, ?Mx2>\n"
        "  %z = take(%t, %i) -> tensor<f32, 90x2>\n  return %z\n}\n"
    )
    program = ptir_tools.read(text)
    found = random_inputs(program, 0, bindings={"N": 3})["i"]
    assert set(np.unique(found)) == set(range(5))


def test_random_indices_know_the_range_of_what_is_padded_and_joined() -> None:
    text = (
        "func @f(%i: tensor<si32, 90x4>, %x: tensor<f32, 10>) -> tensor<f32, 94x4> {\n"
        "  %o = iota() axis[0] -> tensor<si32, 3>\n  %p = pad(%o) low[1] high[0] pad_value[5] -> tensor<si32, 4>\n"
        "  %c = concat(%p, %p, %p, %p) axis[0] -> tensor<si32, 16>\n  %m = reshape(%c) new_shape[4, 4] -> tensor<si32, 4x4>\n"
        "  %b = broadcast_to(%p) result_shape[90, 4] -> tensor<si32, 90x4>\n  %j = add(%i, %b) -> tensor<si32, 90x4>\n"
        "  %k = concat(%m, %j) axis[0] -> tensor<si32, 94x4>\n  %y = take(%x, %k) -> tensor<f32, 94x4>\n  return %y\n}\n"
    )
    program = ptir_tools.read(text)
    found = random_inputs(program, 0)["i"]
    assert set(np.unique(found)) == set(range(5))  # up to 5 are added, and 10 elements are there


@pytest.mark.parametrize("first", [0, 5])
@pytest.mark.parametrize("op", ["add", "sub"])
def test_random_indices_that_two_inputs_make_reach_every_element(op: str, first: int) -> None:
    """The table begins at `first`."""
    text = (
        "func @f(%a: tensor<si32, 90>, %b: tensor<si32, 90>, %x: tensor<f32, 6>) -> tensor<f32, 90> {\n"
        f"  %c = constant() value[dense<{first}>] -> tensor<si32, 90>\n"
        f"  %j = {op}(%a, %b) -> tensor<si32, 90>\n  %k = sub(%j, %c) -> tensor<si32, 90>\n"
        "  %y = take(%x, %k) -> tensor<f32, 90>\n  return %y\n}\n"
    )
    found = random_inputs(ptir_tools.read(text), 0)
    made = found["a"] + found["b"] if op == "add" else found["a"] - found["b"]
    assert set(np.unique(made)) == set(range(first, first + 6))
    assert len(np.unique(found["a"])) > 1 < len(np.unique(found["b"]))


@pytest.mark.parametrize("first", [-4, 0, 7])
@pytest.mark.parametrize("op", ["add(%a, %d)", "sub(%a, %d)", "sub(%d, %a)", "mul(%a, %d)", "mul(%d, %a)", "div(%a, %d)"])
def test_random_indices_made_of_one_input_and_known_numbers_are_inside(op: str, first: int) -> None:
    """The table begins at `first`; the known numbers are 1, 2 and 3."""
    text = (
        "func @f(%a: tensor<si32, 3>, %x: tensor<f32, 40>) -> tensor<f32, 3> {\n"
        "  %d = constant() value[dense<[1, 2, 3]>] -> tensor<si32, 3>\n"
        f"  %c = constant() value[dense<{first}>] -> tensor<si32, 3>\n"
        f"  %j = {op} -> tensor<si32, 3>\n  %k = sub(%j, %c) -> tensor<si32, 3>\n"
        "  %y = take(%x, %k) -> tensor<f32, 3>\n  return %y\n}\n"
    )
    program = ptir_tools.read(text)
    drawn = [random_inputs(program, seed) for seed in range(60)]
    for inputs in drawn:
        run(program, inputs)
    assert len(np.unique([x["a"] for x in drawn])) > 5


def test_needs_pass_through_regions():
    program, b, (x, i) = build((F32, (3,)), (SI32, (6, 4)))
    body = Region("r0")
    inner = Builder(b.dialect, body)
    c, s = inner.param(x.type, "c"), inner.param(tensor(SI32, (4,)), "s")
    inner.results(c, inner.op("take", c, s))
    program.regions.append(body)
    b.results(b.op("scan", [x, i], regions=[body], carry_count=1, scan_output_count=1))
    assert random_inputs(program, 0)["p1"].max() == 2
    agree(program)


def test_an_unbound_symbol_has_no_random_input():
    program, b = single_function(load_dialect("ptir"))
    b.results(b.param(tensor(F32, (sym("N"),)), "x"))
    with pytest.raises(Violation) as caught:
        random_inputs(program)
    assert caught.value.code == "UnboundSymbol"
    assert random_inputs(program, bindings={"N": 3})["x"].shape == (3,)


# ---- Comparing.


def test_the_first_diverging_element_is_told():
    a = np.array([[1.0, 2.0], [3.0, np.nan]], np.float32)
    b = a.copy()
    assert compare.diverging("y", a, b) is None
    b[1, 0] = 3.5
    found = compare.diverging("y", a, b, compare.Tolerance(0.1))
    assert (found.index, found.count, found.absolute) == ((1, 0), 1, 0.5)
    assert compare.diverging("y", a, b, compare.Tolerance(found.absolute)) is None
    assert compare.diverging("y", a, b, compare.Tolerance(0, found.relative)) is None
    assert str(found) == "y[1, 0] is 3.5, expected 3.0 (1 elements differ; passes with atol 0.5 or rtol 0.167)"
    b[1, 1] = 0
    assert compare.diverging("y", a, b).absolute is None
    assert str(compare.diverging("y", a, b)) == "y[1, 0] is 3.5, expected 3.0 (2 elements differ)"


def test_no_relative_tolerance_makes_something_of_zero():
    found = compare.diverging("y", np.zeros(2, np.float32), np.array([0, 0.5], np.float32))
    assert str(found) == "y[1] is 0.5, expected 0.0 (1 elements differ; passes with atol 0.5)"


def test_integers_are_compared_bit_for_bit():
    a = np.array([1, 2], np.int32)
    assert compare.diverging("y", a, a + 1, compare.Tolerance(9, 9)).index == (0,)


def test_check_finds_a_changed_program():
    before, b, (x,) = build((F32, (sym("N"), 4)))
    b.results(b.op("exp", x))
    after, b, (x,) = build((F32, (sym("N"), 4)))
    b.results(b.op("tanh", x))
    assert compare.check(before, before).diverged == []
    found = compare.check(before, after)
    assert found.diverged and found.sizes == {"N": 2} and found.inputs["p0"].shape == (2, 4)


@pytest.mark.parametrize("dtype,digits", [(F32, 1e-4), (F64, 1e-12), (BF16, 0.125)])
def test_the_bound_is_neither_nothing_nor_everything(dtype, digits):
    program, b, (x, y) = build((dtype, (32, 32)), (dtype, (32, 32)))
    z = b.op("dot_general", x, y, contract_lhs=(1,), contract_rhs=(0,))
    b.results(b.op("exp", b.op("tanh", z)))
    _, bounds = compare.reference_outputs(program, random_inputs(program), RunOptions())
    (bound,) = bounds.values()
    assert 0 < bound.absolute.min() <= bound.absolute.max() < digits


@pytest.mark.parametrize("inside", [False, True])
def test_an_index_that_tiles_read_at_is_in_range(inside: bool) -> None:
    """Loops of PTO see the values around them, and ops that store have no result."""
    view = "pto.memref<4x4xf32, strided<[16, 1], offset: ?>>"
    body = f"""%s = pto.memref.subview %m[%i, %c0] [4, 4] [1, 1] : pto.memref<16x16xf32> to {view}
    %t = pto.tile.load %s[%c0, %c0] : {view}, tile<4x4xf32>
    pto.tile.store %t, %o[%c0, %c0] : pto.memref<4x4xf32>, tile<4x4xf32>"""
    loop = f"scf.for %k = %c0 to %c1 step %c1 {{\n{body}\n}}" if inside else body
    program = ptir_tools.read(
        f"""module {{
  func.func @k(%m: pto.memref<16x16xf32>, %o: pto.memref<4x4xf32>, %i: index) {{
    %c0 = pto.constant 0 : index
    %c1 = pto.constant 1 : index
    {loop}
    return
  }}
}}
""",
        format="pto",
    )
    drawn = {int(random_inputs(program, seed)["i"]) for seed in range(60)}
    assert min(drawn) >= 0 and max(drawn) <= 12 and len(drawn) > 6
