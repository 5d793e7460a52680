"""Windows in loops: `verify` refuses what leaves its memref in an iteration that surely runs, and nothing that a run accepts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptir_tools.core.choices import Seeded
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.evaluate import Context
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.pto import generate
from ptir_tools.dialects.pto.run.executor import Executable
from ptir_tools.dialects.pto.text import format as text
from ptir_tools.engines.options import RunOptions
from tests.pto.programs import check, codes, good, module

M = "pto.memref<64x64xf32>"
SMALL, FACTOR = st.integers(-3, 6), st.integers(-4, 16)
LOOP = st.tuples(SMALL, SMALL, st.integers(1, 3))


def source(loops, factors, first, rows, guarded):
    """Loads of `rows` rows at a sum of counters times factors, in nested loops, or under a condition in them."""
    numbers = {*factors, first, *(n for loop in loops for n in loop)}
    lines = [f"%k{n} = pto.constant {n} : index" for n in sorted(numbers)]
    for i, (lower, upper, step) in enumerate(loops):
        lines.append(f"scf.for %i{i} = %k{lower} to %k{upper} step %k{step} {{")
    at = f"%k{first}"
    for i, k in enumerate(factors):
        lines += [f"%p{i} = pto.muli %i{i}, %k{k} : index", f"%s{i} = pto.addi {at}, %p{i} : index"]
        at = f"%s{i}"
    load = f"%t = pto.tile.load %a[{at}, 0] : {M}, tile<{rows}x8xf32>"
    lines += [f"scf.if %c {{ {load} }}"] if guarded else [load]
    return module(f"%a: {M}, %c: i1", *lines, *"}" * len(loops))


def leaves(program):
    """Whether a run of the program ends with OutOfBounds, whatever `verify` says."""
    try:
        Executable(program, program.main, RunOptions())([np.zeros((64, 64), np.float32), np.True_], Context())
    except Violation as violation:
        assert violation.code == "OutOfBounds"
        return True
    return False


@given(st.lists(st.tuples(LOOP, FACTOR.filter(bool)), min_size=1, max_size=3), SMALL, st.sampled_from((1, 8, 16)), st.booleans())
def test_a_linear_index_is_refused_exactly_if_a_run_is(nest, first, rows, guarded):
    program, found = check(source([x for x, _ in nest], [k for _, k in nest], first, rows, guarded))
    assert {d.code for d in found} <= {"OutOfBounds"}
    assert found.errors == (leaves(program) and not guarded)


@given(LOOP, LOOP, st.sampled_from(("minsi", "maxsi", "muli", "remsi", "divsi", "subi")), FACTOR, st.booleans())
def test_what_is_refused_stops_a_run(outer, inner, name, k, turned):
    """Of indices that are not linear, in loops whose bounds depend on others."""
    by = f"%k{abs(k) + 1}" if name in ("remsi", "divsi") else "%j"
    numbers = {abs(k) + 1, k, *outer, *inner}
    program, found = check(
        module(
            f"%a: {M}, %c: i1",
            *(f"%k{n} = pto.constant {n} : index" for n in sorted(numbers)),
            f"scf.for %i = %k{outer[0]} to %k{outer[1]} step %k{outer[2]} {{",
            f"scf.for %j = {'%i' if turned else f'%k{inner[0]}'} to %k{inner[1]} step %k{inner[2]} {{",
            f"%n = pto.{name} %i, {by} : index",
            f"%r = pto.muli %n, %k{k} : index",
            f"%t = pto.tile.load %a[%r, 0] : {M}, tile<16x8xf32>",
            *"}}",
        )
    )
    assert not found.errors or leaves(program)


@pytest.mark.parametrize("trips", [4, 5, 10**5, 10**9])
def test_trips_are_not_followed_one_by_one(trips):
    line = f"%t = pto.tile.load %a[%i, 0] : pto.memref<{trips}x8xf32>, tile<1x8xf32>"
    for more, wanted in ((0, []), (1, ["OutOfBounds"])):
        assert codes(module(f"%a: pto.memref<{trips}x8xf32>", f"scf.for %i = 0 to {trips + more} step 1 {{", line, "}")) == wanted


@pytest.mark.parametrize(
    "lines",
    [
        ("%t = pto.tile.load %b[%i, 0] : pto.memref<?x8xf32>, tile<16x8xf32>",),
        ("%t = pto.tile.load %a[%i, 0] {valid = [%n, 8]} : pto.memref<64x64xf32>, tile<16x8xf32>",),
        ("%s = pto.addi %i, %n : index", "%t = pto.tile.load %a[%s, 0] : pto.memref<64x64xf32>, tile<16x8xf32>"),
    ],
)
def test_what_is_not_known_is_left_to_the_run(lines):
    parameters = "%a: pto.memref<64x64xf32>, %b: pto.memref<?x8xf32>, %n: index"
    good(module(parameters, "scf.for %i = 0 to 64 step 16 {", *lines, "}", "scf.for %i = 0 to %n step 1 {", *lines, "}"))


@pytest.mark.parametrize("rows, wanted", [(16, []), (17, ["OutOfBounds"])])
def test_a_view_of_computed_size(rows, wanted):
    """Its type says `?`; the op that makes it says how many rows there are."""
    t = "pto.memref<?x64xf32, strided<[64, 1], offset: ?>>"
    view = f"%v = pto.memref.subview %a[%i, 0] [%n, 64] [1, 1] : {M} to {t}"
    load = f"%t = pto.tile.load %v[0, 0] : {t}, tile<{rows}x64xf32>"
    lines = ("%n = pto.constant 16 : index", "scf.for %i = 0 to 64 step 16 {", view, load, "}")
    assert codes(module(f"%a: {M}", *lines)) == wanted


def test_a_window_of_a_tile():
    """In a loop, as for a memref."""
    to = "tile<16x16xf16, #pto.tile_info<loc=Left>>"
    line = f"%l = pto.tile.extract %m[%i, 0] : tile<64x64xf16, #pto.tile_info<loc=Mat>> -> {to}"
    for upper, wanted in ((64, []), (65, ["OutOfBounds"])):
        loop = f"scf.for %i = 0 to {upper} step 16 {{"
        assert codes(module("%m: tile<64x64xf16, #pto.tile_info<loc=Mat>>", loop, line, "}")) == wanted


@pytest.mark.parametrize("t, n, wanted", [("i8", 44, []), ("i8", 45, ["OutOfBounds"]), ("i32", 44, ["OutOfBounds"])])
def test_a_narrow_index_wraps(t, n, wanted):
    """As it does in a run: 256 + n is n in i8."""
    lines = (
        f"%x = pto.constant 100 : {t}",
        f"%y = pto.constant {n - 44 + 100} : {t}",
        f"%s = pto.addi %x, %x : {t}",
        f"%w = pto.addi %s, %y : {t}",
        f"%r = pto.index_cast %w : {t} to index",
        f"%u = pto.tile.load %a[%r, 0] : {M}, tile<20x8xf32>",
    )
    program, found = check(module(f"%a: {M}, %c: i1", *lines))
    assert [d.code for d in found] == wanted
    assert program is not None and (wanted or not leaves(program))


@pytest.mark.parametrize("seed", range(40))
def test_generated_kernels_are_accepted(seed):
    program = generate.generate(Seeded(seed), size=25, faults=bool(seed % 2))
    written = "".join(text.write(program, Diagnostics(), Options()))
    assert "OutOfBounds" not in codes(written)


@pytest.mark.parametrize(("end", "wanted"), [(8192, []), (8575, ["InvalidValid"])])
def test_a_valid_extent_that_becomes_negative_in_a_loop_is_reported(end, wanted):
    lines = (
        f"scf.for %k = 0 to {end} step 384 {{",
        "%n = pto.constant 8192 : index",
        "%s = pto.constant 384 : index",
        "%l = pto.subi %n, %k : index",
        "%v = pto.minsi %l, %s : index",
        "%t = pto.tile.load %a[0, %k] {valid = [8, %v]} : pto.memref<8x8192xf32>, tile<8x384xf32>",
        "}",
    )
    assert codes(module("%a: pto.memref<8x8192xf32>", *lines)) == wanted


@pytest.mark.parametrize("step", [1, 7, -3])
@pytest.mark.parametrize("first", [0, 12, 60])
def test_a_carried_number_is_followed(first, step):
    """What grows by a constant is known in every iteration, and behind the loop."""
    for trips in (1, 2, 5, 12):
        inside, behind = ([first + k * step for k in range(trips)], first + trips * step)
        for where, starts in (("inside", inside), ("behind", [behind])):
            load = "%t = pto.tile.load %a[{}, 0] : " + f"{M}, tile<8x8xf32>"
            lines = [
                f"%f = pto.constant {first} : index",
                f"%d = pto.constant {step} : index",
                f"%r = scf.for %i = 0 to {trips} step 1 iter_args(%c = %f) -> (index) {{",
                *([load.format("%c")] if where == "inside" else []),
                "%n = pto.addi %c, %d : index",
                "scf.yield %n : index",
                "}",
                *([load.format("%r")] if where == "behind" else []),
            ]
            wanted = ["OutOfBounds"] if any(not 0 <= n <= 64 - 8 for n in starts) else []
            assert codes(module(f"%a: {M}", *lines)) == wanted, (where, trips)


def test_a_carried_number_that_leaves_its_type_is_not_known():
    """It wraps: whether the window is in its memref is for the run to say."""
    for step, trips, wanted in ((2**40, 2**10, ["OutOfBounds"]), (2**40, 2**30, []), (-(2**40), 2**30, [])):
        lines = (
            "%f = pto.constant 0 : index",
            f"%d = pto.constant {step} : index",
            f"%r = scf.for %i = 0 to {trips} step 1 iter_args(%c = %f) -> (index) {{",
            "%n = pto.addi %c, %d : index",
            "scf.yield %n : index",
            "}",
            f"%t = pto.tile.load %a[%r, 0] : {M}, tile<8x8xf32>",
        )
        assert codes(module(f"%a: {M}", *lines)) == wanted, (step, trips)


def test_a_driver_loop_that_overshoots():
    """The last iteration begins behind the memory: on the chip such a kernel never ends (PTOAS, issue 544)."""
    m, t = "pto.memref<16x8192xf32>", "tile<16x384xf32>"
    lines = [
        "%end = pto.constant 8575 : index",
        "%whole = pto.constant 8192 : index",
        "%step = pto.constant 384 : index",
        "scf.for %n = %c0 to %end step %step {",
        "  %left = pto.subi %whole, %n : index",
        "  %v = pto.minsi %left, %step : index",
        f"  %t = pto.tile.load %x[0, %n] {{valid = [16, %v]}} : {m}, {t}",
        f"  pto.tile.store %t, %o[0, %n] {{valid = [16, %v]}} : {m}, {t}",
        "}",
    ]
    source = module(f"%x: {m}, %o: {m}", *lines)
    found = check(source)[1]
    assert [d.message for d in found] == ["valid[1] is -256, must be in 1..384, where %n is 8448"] * 2
    assert codes(source.replace("constant 8575", "constant 8192")) == []
