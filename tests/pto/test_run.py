"""Running PTO programs: samples, valid regions, undefined elements, orders, loops and calls."""

import numpy as np
import pytest

import ptir_tools
from ptir_tools import engines
from ptir_tools.core.arrays import numpy_dtype
from ptir_tools.core.diagnostics import Diagnostics, Rejected, UsageError
from ptir_tools.core.dialect import Options
from ptir_tools.core.limits import LimitExceeded, Limits
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.pto.names import DTYPE_TEXT
from ptir_tools.engines.inputs import random_inputs
from ptir_tools.engines.options import ORDERS, RunOptions
from tests.conftest import TESTDATA, run_ptir
from tests.pto.programs import SAMPLES, event, good, module, pattern, run

M, T, T8 = "pto.memref<32x32xf32>", "tile<32x32xf32>", "tile<8x8xf32>"

# Sums of the last memref after a run on the inputs of `pattern`, and how many of its elements change.
SUMS = {
    "01_vector_add_subview": (-7.75, 1024, {"bi": 2, "bj": 3}),
    "03_matmul_moves_a3": (-25.75, None, {}),
    "04_matmul_bias_a3": (-92.6875, None, {}),
    "08_async_pipeline": (-0.75, None, {}),
    "09_dynamic_valid": (-5.25, None, {"vr": 5, "vc": 7}),
    "11_target_a5_bf16_add": (-2.25, None, {}),
    "12_elementwise_chain": (590, None, {}),
    "13_canonicalize_me": (898.5, None, {}),
    "16_ub_exact_fit_a3": (0, None, {}),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", SUMS)
def test_samples(name, order):
    program = good((SAMPLES / f"{name}.pto").read_text())
    total, changed, index = SUMS[name]
    inputs = pattern(program, index)
    made = run(program, inputs, order=order, seed=3)
    last = [p.name for p in program.main.params if p.name not in index][-1]
    assert made[last].astype(np.float64).sum() == total
    if changed is not None:
        assert (made[last] != inputs[last]).sum() == changed
    for name, array in inputs.items():
        assert name in index or name == last or made[name].tobytes() == array.tobytes()


def test_inputs_are_not_written():
    program = good((SAMPLES / "08_async_pipeline.pto").read_text())
    inputs = pattern(program)
    before = {n: a.copy() for n, a in inputs.items()}
    run(program, inputs)
    assert all((inputs[n] == before[n]).all() for n in inputs)


def code_of(source, inputs, **options):
    with pytest.raises(Violation) as error:
        run(source, inputs, **options)
    return error.value.code


def square(fill=1.0):
    return np.full((32, 32), fill, np.float32)


@pytest.mark.parametrize("valid", [0, -1, 33])
def test_valid_is_checked_when_it_is_known(valid):
    source = module(f"%a: {M}, %v: index", f"%t = pto.tile.load %a[0, 0] {{valid = [%v, 4]}} : {M}, {T}")
    assert code_of(source, {"a": square(), "v": np.int64(valid)}) == "InvalidValid"


@pytest.mark.parametrize("at", [1, -1])
def test_windows_are_not_clipped(at):
    source = module(f"%a: {M}, %i: index", f"%t = pto.tile.load %a[%i, 0] : {M}, {T}")
    assert code_of(source, {"a": square(), "i": np.int64(at)}) == "OutOfBounds"
    source = module(
        f"%a: {M}, %i: index",
        f"%v = pto.memref.subview %a[%i, 0] [32, 32] [1, 1] : {M} to pto.memref<32x32xf32, strided<[32, 1], offset: ?>>",
    )
    assert code_of(source, {"a": square(), "i": np.int64(at)}) == "OutOfBounds"


def test_a_store_touches_only_what_is_valid():
    source = module(
        f"%a: {M}, %out: {M}",
        f"%t = pto.tile.load %a[0, 0] {{valid = [3, 5]}} : {M}, {T}",
        f"%u = pto.tile.add %t, %t : {T}",  # valid flows: the intersection of the operands'
        f"pto.tile.store %u, %out[2, 1] : {M}, {T}",
    )
    want = square(7)
    want[2:5, 1:6] = 2
    assert (run(source, {"a": square(), "out": square(7)})["out"] == want).all()


UNDEFINED = module(
    f"%a: {M}, %out: {M}",
    f"%t = pto.tile.load %a[0, 0] {{valid = [2, 2]}} : {M}, {T}",
    f"%u = pto.tile.add %t, %t {{valid = [2, 4]}} : {T}",
    f"pto.tile.store %u, %out[0, 0] : {M}, {T}",
)


def test_undefined_elements():
    inputs = {"a": square(), "out": square(7)}
    assert code_of(UNDEFINED, inputs) == "UndefinedElement"
    made = {u: run(UNDEFINED, inputs, undef=u, seed=1)["out"][:2, :4] for u in ("nan", "zero", "random")}
    assert (made["zero"] == [[2, 2, 0, 0]] * 2).all()
    assert np.isnan(made["nan"][:, 2:]).all() and (made["nan"][:, :2] == 2).all()
    assert (made["random"] == run(UNDEFINED, inputs, undef="random", seed=1)["out"][:2, :4]).all()


@pytest.mark.parametrize("dtype", DTYPE_TEXT, ids=str)
def test_what_takes_the_place_of_undefined_elements(dtype):
    """NaN is for floats, and 0 for what has none."""
    source = UNDEFINED.replace("xf32>", f"x{DTYPE_TEXT[dtype]}>").replace("tile.add", "tile.max")
    ones = np.ones((32, 32), numpy_dtype(dtype))
    for undef, filled in (("zero", 0), ("nan", np.nan if dtype.is_float else 0)):
        made = run(source, {"a": ones, "out": ones}, undef=undef)["out"].astype(np.float64)
        np.testing.assert_array_equal(made[:2, :5], [[1, 1, filled, filled, 1]] * 2)
        assert (made[2:] == 1).all()


def test_a_reduction_refuses_undefined_elements():
    source = UNDEFINED.replace(f"pto.tile.store %u, %out[0, 0] : {M}, {T}", f"%r = pto.tile.rowsum %u : {T} -> tile<32x1xf32>")
    assert code_of(source, {"a": square(), "out": square()}) == "UndefinedElement"


RACE = (SAMPLES / "26_bad_missing_wait.pto").read_text()


def raced(program, inputs, **options):
    """The outputs of a run, and what it reports."""
    found = Diagnostics(program.source)
    return engines.run(program, inputs, RunOptions(**options), found), found.items


@pytest.mark.parametrize("order", ORDERS)
def test_a_missing_wait_is_reported_under_every_order(order):
    program = good(RACE, Options(hazards=False))
    inputs = pattern(program)
    outputs, found = raced(program, inputs, order=order)
    assert [d.code for d in found] == ["MissingWait"] and "RAW: add reads %t1" in found[0].message
    if order != "random":
        assert (outputs["out"] == inputs["a"] + inputs["b"]).all() == (order == "sequential")
    with pytest.raises(Violation, match="MissingWait"):
        run(program, inputs, order=order)
    with pytest.raises(Rejected):
        engines.run(program, inputs, RunOptions(order=order))


@pytest.mark.parametrize("order", ORDERS)
def test_an_unordered_store_is_reported_under_every_order(order):
    source = module(
        f"%a: {M}, %out: {M}, %b: {M}",
        f"%t = pto.tile.load %a[0, 0] : {M}, {T}",
        f"%e = pto.tile.store %t, %out[0, 0] : {M}, {T}, {event('TSTORE_VEC')}",
        f"%u = pto.tile.load %out[0, 0] : {M}, {T}",
        f"pto.tile.store %u, %b[0, 0] wait(%e) : {M}, {T}",
    )
    outputs, found = raced(good(source, Options(hazards=False)), {"a": square(1), "out": square(2), "b": square(3)}, order=order)
    assert [d.message.split(",")[0] for d in found] == ["RAW: load reads %out[0"]
    if order != "random":
        assert (outputs["b"] == {"sequential": 1, "adversarial": 2}[order]).all()


LOOP = module(
    "%a: pto.memref<?x8xf32>, %out: pto.memref<8x8xf32>, %n: index, %p: i1",
    "%c1 = pto.constant 1 : index",
    "%c8 = pto.constant 8 : index",
    "%z = pto.constant 0.0 : f32",
    "%s0 = pto.tile.expands %z : f32, tile<8x8xf32>",
    "%s = scf.for %i = %c0 to %n step %c1 iter_args(%x = %s0) -> (tile<8x8xf32>) {",
    "  %o = pto.muli %i, %c8 : index",
    "  %t = pto.tile.load %a[%o, %c0] : pto.memref<?x8xf32>, tile<8x8xf32>",
    "  %y = pto.tile.add %x, %t : tile<8x8xf32>",
    "  scf.yield %y : tile<8x8xf32>",
    "}",
    "%r = scf.if %p -> (tile<8x8xf32>) {",
    "  %q = pto.tile.neg %s : tile<8x8xf32> -> tile<8x8xf32>",
    "  scf.yield %q : tile<8x8xf32>",
    "} else {",
    "  scf.yield %s : tile<8x8xf32>",
    "}",
    "pto.tile.store %r, %out[0, 0] : pto.memref<8x8xf32>, tile<8x8xf32>",
)


@pytest.mark.parametrize("trips", [0, 1, 4])
@pytest.mark.parametrize("negative", [False, True])
def test_loops_and_branches(trips, negative):
    a = np.random.default_rng(0).integers(-9, 9, (32, 8)).astype(np.float32)
    made = run(LOOP, {"a": a, "out": np.ones((8, 8), np.float32), "n": np.int64(trips), "p": np.bool_(negative)})
    want = a[: 8 * trips].reshape(trips, 8, 8).sum(0)
    assert (made["out"] == (-want if negative else want)).all()


def test_a_loop_may_not_run_for_ever():
    with pytest.raises(LimitExceeded):
        run(
            LOOP,
            {"a": np.zeros((8, 8), np.float32), "out": np.ones((8, 8), np.float32), "n": np.int64(9), "p": np.bool_(1)},
            limits=Limits(iterations=8),
        )


def test_a_step_is_positive():
    source = module("%n: index", "scf.for %i = %c0 to %n step %n {", "}")
    assert code_of(source, {"n": np.int64(-1)}) == "InvalidStep"


def test_calls_pass_memory_by_reference():
    source = f"""
    func.func @fill(%m: {M}, %k: f32) -> f32 {{
      %t = pto.tile.expands %k : f32, {T}
      pto.tile.store %t, %m[0, 0] : {M}, {T}
      %r = arith.addf %k, %k : f32
      return %r : f32
    }}
    func.func @main(%a: {M}, %b: {M}) -> f32 {{
      %k = pto.constant 3.0 : f32
      %j = func.call @fill(%a, %k) : ({M}, f32) -> f32
      %l = func.call @fill(%b, %j) : ({M}, f32) -> f32
      return %l : f32
    }}"""
    made = run(source, {"a": square(), "b": square()})
    assert (made["a"] == 3).all() and (made["b"] == 6).all() and made["l"] == 12


def test_inputs_must_fit():
    source = module(f"%a: {M}")
    for inputs in ({}, {"a": np.zeros((32, 31), np.float32)}, {"a": np.zeros((32, 32), np.float16)}):
        with pytest.raises(UsageError):
            run(source, inputs)


def test_a_tile_of_unknown_extent_is_refused():
    source = module("%a: pto.memref<?x8xf32>", "%t = pto.tile.load %a[0, 0] : pto.memref<?x8xf32>, tile<?x8xf32>")
    assert code_of(source, {"a": np.zeros((8, 8), np.float32)}) == "UnboundSymbol"


def test_matmul_takes_its_extents_from_the_valid_regions():
    left, right, acc = (f"tile<16x16xf32, #pto.tile_info<loc={loc}>>" for loc in ("Left", "Right", "Acc"))
    mat = "tile<16x16xf32, #pto.tile_info<loc=Mat>>"
    memory = "pto.memref<16x16xf32>"
    source = module(
        f"%a: {memory}, %b: {memory}, %out: {memory}",
        f"%ma = pto.tile.load %a[0, 0] {{valid = [3, 5]}} : {memory}, {mat}",
        f"%mb = pto.tile.load %b[0, 0] {{valid = [5, 2]}} : {memory}, {mat}",
        f"%l = pto.tile.mov.m2l %ma : {mat} -> {left}",
        f"%r = pto.tile.mov.m2r %mb : {mat} -> {right}",
        f"%c = pto.tile.matmul %l, %r : {left}, {right} -> {acc}",
        f"pto.tile.store %c, %out[0, 0] : {memory}, {acc}",
    )
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-5, 5, (16, 16)).astype(np.float32) for _ in range(2))
    want = np.zeros((16, 16))
    want[:3, :2] = a[:3, :5] @ b[:5, :2]
    assert (run(source, {"a": a, "b": b, "out": np.zeros((16, 16), np.float32)})["out"] == want).all()
    wrong = source.replace("[5, 2]", "[4, 2]")
    assert code_of(wrong, {"a": a, "b": b, "out": a}) == "InvalidValid"


WINDOWED = """module {
  func.func @f(%a: pto.memref<64x8xf32>, %o: pto.memref<64x8xf32>, %n: index, %r: index, %c: index, %i: index) {
    %c0 = pto.constant 0 : index
    %c1 = pto.constant 1 : index
    %c8 = pto.constant 8 : index
    scf.for %k = %c0 to %n step %c1 {
      %at = arith.muli %k, %c8 : index
      %t = pto.tile.load %a[%at, %c0] {loc = #pto.loc<Vec>, valid = [%r, %c]} : pto.memref<64x8xf32>, tile<8x8xf32>
      pto.tile.store %t, %o[%at, %c0] {valid = [%r, %c]} : pto.memref<64x8xf32>, tile<8x8xf32>
    }
    %u = pto.tile.load %a[%i, %c0] {loc = #pto.loc<Vec>} : pto.memref<64x8xf32>, tile<8x8xf32>
    pto.tile.store %u, %o[%i, %c0] : pto.memref<64x8xf32>, tile<8x8xf32>
    return
  }
}
"""


def test_random_indices_bounds_and_extents_lie_inside() -> None:
    program = ptir_tools.read(WINDOWED)
    drawn = [random_inputs(program, seed) for seed in range(60)]
    for inputs in drawn[:20]:
        engines.run(program, inputs)
    ranges = {"n": (0, 8), "r": (1, 8), "c": (1, 8), "i": (0, 56)}
    for name, (low, high) in ranges.items():
        values = [int(inputs[name]) for inputs in drawn]
        assert low <= min(values) and high >= max(values) > min(values), name
    again = random_inputs(program, 7)
    assert all(np.array_equal(again[name], x) for name, x in drawn[7].items())


@pytest.mark.parametrize("seed", range(6))
def test_a_dynamic_valid_runs_on_random_inputs(seed: int) -> None:
    ran = run_ptir("run", str(TESTDATA / "pto" / "09_dynamic_valid.pto"), "--random", str(seed))
    assert ran.status == 0, ran.err


def test_a_tile_of_fewer_dimensions_lies_in_the_last_ones():
    """Of the dimensions before it has one element; what is stored elsewhere is no hazard."""
    m = "pto.memref<3x8x8xf32>"
    source = module(
        f"%a: {m}, %b: {m}, %n: index",
        f"%t = pto.tile.load %a[%n, 0, 0] {{valid = [4, 8]}} : {m}, {T8}",
        f"pto.tile.store %t, %b[2, 4, 0] : {m}, {T8}",
    )
    a = np.arange(192, dtype=np.float32).reshape(3, 8, 8)
    expected = np.zeros_like(a)
    expected[2, 4:] = a[1, :4]
    np.testing.assert_array_equal(run(source, {"a": a, "b": np.zeros_like(a), "n": 1})["b"], expected)
    with pytest.raises(Violation, match="leaves the memref"):
        run(source, {"a": a, "b": np.zeros_like(a), "n": 3})
