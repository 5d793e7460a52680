"""PTO passes: what they leave, and that every order of completion gives the same numbers as before."""

import numpy as np
import pytest

from ptir_tools.core.declare import OPS
from ptir_tools.core.diagnostics import Diagnostics, Rejected
from ptir_tools.core.dtypes import I1
from ptir_tools.dialects.pto import DIALECT
from ptir_tools.dialects.pto.types import scalar
from ptir_tools.engines.options import ORDERS
from ptir_tools.passes import PassContext, run_pipeline
from ptir_tools.rewrite.pattern_set import PatternSet
from ptir_tools.rewrite.rules import rules
from tests.pto.programs import SAMPLES, check, codes, good, module, pattern, printed, run

INDEX = {"01_vector_add_subview": {"bi": 2, "bj": 3}, "09_dynamic_valid": {"vr": 5, "vc": 7}}
LEGAL = sorted(p.stem for p in SAMPLES.glob("*.pto") if "_bad_" not in p.name and "a3_bf16" not in p.name)
M, T = "pto.memref<32x32xf32>", "tile<32x32xf32>"


def optimized(source, pipeline=DIALECT.pipeline):
    program = good(source)
    run_pipeline(program, pipeline)
    return printed(program)


@pytest.mark.parametrize("name", [n for n in LEGAL if n != "40_control_flow"])
def test_the_pipeline_keeps_the_numbers(name):
    source = (SAMPLES / f"{name}.pto").read_text()
    before = good(source)
    inputs = pattern(before, INDEX.get(name))
    want = run(before, inputs)
    after = optimized(source)
    for order in ORDERS:
        got = run(after, inputs, order=order, seed=5)
        assert all(got[n].tobytes() == want[n].tobytes() for n in want)


@pytest.mark.parametrize("name", LEGAL)
def test_the_pipeline_is_idempotent_and_its_text_is_clean(name):
    once = optimized((SAMPLES / f"{name}.pto").read_text())
    assert optimized(once) == once
    _, found = check(once)
    assert {d.code for d in found} <= ({"RedundantWait"} if name == "08_async_pipeline" else set())  # its waits are by hand


def test_canonicalize():
    text = optimized((SAMPLES / "13_canonicalize_me.pto").read_text(), "pto-canonicalize,pto-canonicalize-views")
    lines = [line.strip() for line in text.splitlines()]
    assert not any("muli" in line or "dead" in line for line in lines)
    assert sum("subview" in line for line in lines) == 1 and sum("tile.load" in line for line in lines) == 1
    assert "strided<[128, 1], offset: 5156>" in text


def canonical(*lines):
    source = module(f"%a: {M}, %out: {M}, %n: index, %p: i1, %e: !pto.event<producer = #pto.op<TLOAD>>", *lines)
    text = optimized(source, "pto-canonicalize")
    return [line.strip() for line in text.splitlines()[2:-3]]


LOAD = "%{0} = pto.tile.load %a[%c0, %c0] : " + f"{M}, {T}"
STORE = "pto.tile.store %{0}, %{1}[%c0, %c0] : " + f"{M}, {T}"


def test_index_arithmetic_is_folded():
    lines = (
        "%x = pto.addi %n, %c0 : index",
        "%c3 = pto.constant 3 : index",
        "%y = pto.muli %c3, %c3 : index",
        "%w = pto.muli %n, %c0 : index",
        "%z = pto.divsi %y, %w : index",  # stays: it fails when it runs
        f"%t = pto.tile.load %a[%x, %y] {{valid = [1, 1]}} : {M}, {T}",
        f"%u = pto.tile.load %a[%x, %z] {{valid = [1, 1]}} : {M}, {T}",
        STORE.format("t", "out"),
        STORE.format("u", "out"),
    )
    got = canonical(*lines)
    assert "%y = pto.constant 9 : index" in got and "%z = pto.divsi %y, %c0 : index" in got
    assert any("%a[%n, %y]" in line for line in got)


def test_loads_are_merged_until_something_is_written():
    lines = (
        LOAD.format("x"),
        LOAD.format("y"),
        f"%s = pto.tile.add %x, %y : {T}",
        STORE.format("s", "a"),
        LOAD.format("z"),
        STORE.format("z", "out"),
    )
    got = canonical(*lines)
    assert sum("tile.load" in line for line in got) == 2 and any("tile.add %x, %x" in line for line in got)


def test_a_store_leaves_the_loads_of_other_arguments_alone():
    again = LOAD.format("y"), f"%s = pto.tile.add %x, %y : {T}", STORE.format("s", "out")
    view = f"%v = pto.memref.subview %a[0, 0] [32, 32] [1, 1] : {M} to {M}"
    either = f"%v = scf.if %p -> ({M}) {{", f"  scf.yield %a : {M}", "} else {", f"  scf.yield %out : {M}", "}"
    stored = STORE.format("x", "v")
    for lines, loads in (((STORE.format("x", "out"),), 1), ((view, stored), 2), ((*either, stored), 2)):
        got = canonical(LOAD.format("x"), *lines, *again)
        assert sum("tile.load" in line for line in got) == loads, lines


def test_branches_that_are_decided_are_put_in_line():
    lines = (
        LOAD.format("x"),
        "%c1 = pto.constant 1 : index",
        "%yes = arith.cmpi slt, %c0, %c1 : index",
        f"%r = scf.if %yes -> ({T}) {{",
        f"  %t = pto.tile.exp %x : {T}",
        f"  scf.yield %t : {T}",
        "} else {",
        f"  scf.yield %x : {T}",
        "}",
        f"%q = scf.for %i = %c1 to %c0 step %c1 iter_args(%k = %r) -> ({T}) {{",
        f"  %t = pto.tile.log %k : {T}",
        f"  scf.yield %t : {T}",
        "}",
        f"%t = pto.tile.abs %q : {T}",
        STORE.format("t", "out"),
    )
    got = canonical(*lines)
    assert [line for line in got if line.startswith("%")][-2:] == [
        f"%t_1 = pto.tile.exp %x : {T}",
        f"%t = pto.tile.abs %t_1 : {T} -> {T}",
    ]
    assert not any("scf" in line or "log" in line for line in got)


@pytest.mark.parametrize(
    "first, last, step, once", [(0, 8, 8, True), (0, 1, 8, True), (0, 9, 8, False), (16, 24, 8, True), (0, 16, 8, False)]
)
def test_a_loop_of_one_round_is_put_in_line(first, last, step, once):
    lines = (
        LOAD.format("x"),
        f"%q = scf.for %i = {first} to {last} step {step} iter_args(%k = %x) -> ({T}) {{",
        f"  %u = pto.tile.load %a[%i, 0] {{valid = [8, 32]}} : {M}, {T}",
        f"  %t = pto.tile.add %k, %u : {T}",
        f"  scf.yield %t : {T}",
        "}",
        STORE.format("q", "out"),
    )
    got = canonical(*lines)
    assert any("scf" in line for line in got) is not once
    if once:
        start = next((line.split()[0] for line in got if f"constant {first} : index" in line), str(first))
        assert any(f"tile.load %a[{start}, 0]" in line for line in got)
        assert any("add %x, %u" in line for line in got) and any("store %t," in line for line in got)


@pytest.mark.parametrize("pipeline", ["pto-software-pipeline", "pto{target=a3}"])
def test_a_fault_that_a_pass_makes_known_is_the_programs(pipeline):
    """A window that leaves its memory in the first round of a loop that may not run, which the text does not say."""
    body = f"  %u = pto.tile.load %a[%i, 0] : {M}, {T}", "  " + STORE.format("u", "out")
    made = good(module(f"%a: {M}, %out: {M}, %p: i1", "scf.if %p {", "scf.for %i = 16 to 80 step 8 {", *body, "}", "}"))
    with pytest.raises(Rejected) as rejected:
        run_pipeline(made, pipeline, PassContext(diagnostics=Diagnostics()))
    assert {d.code for d in rejected.value.diagnostics} == {"OutOfBounds"}


# Per rule: an op on %n, %p and constants, and what an index of the store is then.
RULES = {
    "add-zero": ("addi %c0, %n", "%n"),
    "sub-zero": ("subi %n, %c0", "%n"),
    "mul-one": ("muli %c1, %n", "%n"),
    "mul-zero": ("muli %n, %c0", "%c0"),
    "div-one": ("divsi %n, %c1", "%n"),
    "and-zero": ("andi %c0, %n", "%c0"),
    "or-zero": ("ori %n, %c0", "%n"),
    "xor-zero": ("xori %c0, %n", "%n"),
    "shift-by-zero": ("shli %n, %c0", "%n"),
}


@pytest.mark.parametrize("name", RULES)
def test_each_rule_of_index_arithmetic(name):
    text, left = RULES[name]
    lines = (LOAD.format("x"), "%c1 = pto.constant 1 : index", f"%i = arith.{text} : index")
    program = good(module(f"%a: {M}, %out: {M}, %n: index", *lines, f"pto.tile.store %x, %out[%i, %c0] : {M}, {T}"))
    context = PassContext(expensive_checks=True)
    run_pipeline(program, "pto-canonicalize", context)
    assert context.statistics["pto-canonicalize"][name] == 1
    assert f"[{left}, %c0]" in printed(program)


@pytest.mark.parametrize(("op", "compute"), [("addi", int.__add__), ("subi", int.__sub__), ("muli", int.__mul__)])
def test_arithmetic_of_i1_wraps(op, compute):
    for a in (0, 1):
        for b in (0, 1):
            d = OPS[f"pto.{op}"]
            made = d.body(np.bool_(a), np.bool_(b), out=scalar(I1))
            assert made.dtype == np.bool_ and int(made) == compute(a, b) % 2


def test_what_a_block_computes_is_not_known_outside():
    both = ("  %{0} = pto.tile.exp %x : {1}", "  pto.tile.store %{0}, %out[%c0, %c0] : {2}, {1}")
    lines = (
        LOAD.format("x"),
        "scf.if %p {",
        *(line.format("y", T, M) for line in both),
        *(line.format("w", T, M) for line in both),
        "}",
        *(line.strip().format("z", T, M) for line in both),
    )
    got = canonical(*lines)
    assert sum("tile.exp" in line for line in got) == 2


def test_what_orders_others_stays():
    asynchronous = f"%t, %f = pto.tile.load %a[%c0, %c0] : {M}, {T}, !pto.event<producer = #pto.op<TLOAD>>"
    lines = asynchronous, LOAD.format("u"), STORE.format("t", "out"), "pto.sync wait(%f)"
    assert sum("tile.load" in line for line in canonical(*lines)) == 2
    lines = f"%u = pto.tile.load %a[%c0, %c0] wait(%e) : {M}, {T}", LOAD.format("t"), STORE.format("t", "out")
    assert sum("tile.load" in line for line in canonical(*lines)) == 2


def test_dead_loops_go():
    lines = "%c1 = pto.constant 1 : index", "scf.for %i = %c0 to %n step %c1 {", "  " + LOAD.format("t"), "}"
    assert canonical(*lines) == ["return"] or canonical(*lines) == []


@pytest.mark.parametrize("step", [-2, 0, 1, 2, 3])
@pytest.mark.parametrize(("lower", "upper"), [(0, 0), (0, 1), (0, 2), (0, 3), (2, 1), (-1, 2), (3, 0)])
def test_loops_that_run_never_or_once_are_in_line_unless_their_step_is_wrong(lower, upper, step):
    """A step that is not positive is left to the run, which reports it."""
    bounds = {"l": lower, "u": upper, "first": step, "end": step + 1, "c1": 1}
    lines = [f"%{name} = pto.constant {n} : index" for name, n in bounds.items()]
    lines += ["scf.for %s = %first to %end step %c1 {"]  # runs once, which the verifier does not know
    lines += ["scf.for %i = %l to %u step %s {", "  " + LOAD.format("t"), "  " + STORE.format("t", "out"), "}", "}"]
    found = canonical(*lines)
    times = len(range(lower, upper, step)) if step > 0 else 2
    assert sum(line.startswith("scf.for") for line in found) == (2 if step <= 0 else times > 1), found
    assert any("tile.store" in line for line in found) == (times > 0), found


@pytest.mark.parametrize(
    "lines",
    [
        ("%s = pto.select %yes, %zero, %n : index",),
        ("%s = pto.andi %n, %zero : index",),
        ("%s = pto.ori %zero, %zero : index",),
        ("%x = pto.shli %n, %one : index", "%y = pto.shli %n, %one : index", "%s = pto.subi %x, %y : index"),
        ("%x = pto.xori %n, %zero : index", "%s = pto.subi %x, %n : index"),
        ("%s = scf.if %yes -> (index) {", "scf.yield %less : index", "} else {", "scf.yield %n : index", "}"),
        ("%s = scf.for %k = %one to %zero step %one iter_args(%c = %less) -> (index) {", "scf.yield %n : index", "}"),
        (
            "%s = scf.for %k = %zero to %one step %one iter_args(%c = %one) -> (index) {",
            "%d = pto.subi %k, %c : index",
            "scf.yield %d : index",
            "}",
        ),
    ],
    ids=["select", "and", "or", "merged", "xor", "branch", "no round", "one round"],
)
def test_no_step_becomes_known_to_be_wrong(lines):
    """What a step is computed by stays as it is, where the program would not verify any more."""
    names = {"zero": 0, "one": 1, "less": -1}
    constants = [f"%{name} = pto.constant {n} : index" for name, n in names.items()] + ["%yes = pto.constant true : i1"]
    found = canonical(*constants, *lines, "scf.for %i = %zero to %n step %s {", LOAD.format("t"), STORE.format("t", "out"), "}")
    assert any(line.startswith("scf.for %i") for line in found), found


def test_rules_of_others_keep_steps_right_too():
    """No rule has to ask: the rewriter asks the dialect."""
    same = rules("max-same: maxsi(x, x) => x\nmin-same: minsi(x, x) => x", DIALECT, {}, lambda *_: [])
    loop = ("scf.for %i = %c0 to %n step %s {", LOAD.format("t"), STORE.format("t", "out"), "}")
    lines = ("%x = pto.maxsi %n, %n : index", "%s = pto.subi %x, %n : index", "%y = pto.minsi %n, %n : index", *loop)
    program = good(module(f"%a: {M}, %out: {M}, %n: index, %k: index", *lines, "%z = pto.addi %y, %k : index"))
    context = PassContext(diagnostics=Diagnostics())
    for rw in context.rewriters(program):
        context.drive(rw, PatternSet(same).freeze(), context.greedy())
        rw.finish()
    text = printed(program)
    assert "maxsi" in text and "minsi" not in text
    assert not check(text)[1].errors


def test_views_compose_with_steps_and_unknown_offsets():
    outer = "pto.memref<20x20xf32, strided<[128, 3], offset: ?>>"
    inner = "pto.memref<4x4xf32, strided<[384, 3], offset: ?>>"
    source = module(
        "%a: pto.memref<64x64xf32>, %out: pto.memref<4x4xf32>, %n: index",
        f"%v = pto.memref.subview %a[%n, 3] [20, 20] [2, 3] : pto.memref<64x64xf32> to {outer}",
        f"%w = pto.memref.subview %v[2, %n] [4, 4] [3, 1] : {outer} to {inner}",
        f"%t = pto.tile.load %w[0, 0] : {inner}, tile<4x4xf32>",
        "pto.tile.store %t, %out[0, 0] : pto.memref<4x4xf32>, tile<4x4xf32>",
    )
    text = optimized(source, "pto-canonicalize-views")
    assert text.count("subview") == 1 and "[4, 4] [6, 3]" in text
    a = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    for program in (source, text):
        got = run(program, {"a": a, "out": np.zeros((4, 4), np.float32), "n": np.int64(5)})["out"]
        assert (got == a[5:, 3:][::2, ::3][2::3, 5:][:4, :4]).all()


def test_tile_info_is_written_out():
    plain = "tile<16x16xf16>"
    source = module(
        "%a: pto.memref<16x16xf16>, %c: pto.memref<16x16xf32>",
        f"%m = pto.tile.load %a[0, 0] {{valid = [8, 16]}} : pto.memref<16x16xf16>, {plain}",
        f"%l = pto.tile.mov.m2l %m : {plain} -> {plain}",
        f"%r = pto.tile.mov.m2r %m : {plain} -> {plain}",
        f"%s = pto.tile.load %a[0, 0] : pto.memref<16x16xf16>, {plain}",
        f"%x = pto.tile.exp %s : {plain}",
        f"pto.tile.store %x, %a[0, 0] : pto.memref<16x16xf16>, {plain}",
        target="a3",
    )
    text = optimized(source, "pto-infer-tile-info")
    for expected in (
        "%l = pto.tile.mov.m2l %m : tile<16x16xf16, #pto.tile_info<loc=Mat, layout=Nz, valid=[8, 16]>> -> ",
        "#pto.tile_info<loc=Left, layout=Zz, valid=[8, 16]>>",
        "#pto.tile_info<loc=Right, layout=Zn, valid=[8, 16]>>",
        "%x = pto.tile.exp %s : tile<16x16xf16, #pto.tile_info<loc=Vec, layout=ND>>",
    ):
        assert expected in text
    assert "layout=Nz, valid" in optimized(source.replace("<a3>", "<a5>"), "pto-infer-tile-info").partition("-> ")[2]


def test_events_are_inserted_where_they_are_needed():
    source = module(
        f"%a: {M}, %out: {M}",
        LOAD.format("x"),
        f"%y = pto.tile.exp %x : {T}",
        f"%z = pto.tile.add %y, %x : {T}",
        STORE.format("z", "out"),
        f"%w = pto.tile.load %out[%c0, %c0] : {M}, {T}",
        STORE.format("w", "a"),
    )
    text = optimized(source, "pto-insert-events")
    assert "%y = pto.tile.exp %x wait(%e0) :" in text  # no one on another pipe needs it: no event
    assert "%w, %e3 = pto.tile.load %out[%c0, %c0] wait(%e2)" in text
    a = np.ones((32, 32), np.float32)
    want = run(source, {"a": a, "out": a})
    for order in ORDERS:
        got = run(text, {"a": a, "out": a}, order=order)
        assert all((got[n] == want[n]).all() for n in want)


def test_functions_with_events_of_their_own_are_left_alone():
    text = (SAMPLES / "08_async_pipeline.pto").read_text()
    assert optimized(text, "pto-insert-events") == printed(good(text))


# One tile, one location


HM, HT = "pto.memref<16x16xf16>", "tile<16x16xf16>"
TWICE = [
    f"%t = pto.tile.load %m[0, 0] : {HM}, {HT}",
    f"%l = pto.tile.mov.m2l %t : {HT} -> {HT}",
]


@pytest.mark.parametrize(
    "lines",
    [
        (*TWICE, f"%v = pto.tile.mov.v2v %t : {HT} -> {HT}"),
        (*TWICE, f"%r = pto.tile.mov.m2r %l : {HT} -> {HT}"),
        (
            f"%t = pto.tile.load %m[0, 0] : {HM}, {HT}",
            f"%n = pto.tile.neg %t : {HT} -> {HT}",
            f"%c = scf.if %p -> ({HT}) {{",
            f"  scf.yield %n : {HT}",
            "} else {",
            f"  scf.yield %t : {HT}",
            "}",
            f"%l = pto.tile.mov.m2l %c : {HT} -> {HT}",
        ),
        (
            f"%t = pto.tile.load %m[0, 0] : {HM}, {HT}",
            f"%n = pto.tile.neg %t : {HT} -> {HT}",
            f"%e = pto.tile.store %n, %m[0, 0] : {HM}, {HT}, !pto.event<producer = #pto.op<TSTORE_MAT>>",
        ),
    ],
)
def test_a_tile_that_is_wanted_in_two_locations_is_refused(lines):
    assert codes(module(f"%m: {HM}, %p: i1", *lines))[:1] == ["InvalidLocation"]


def test_a_tile_is_where_the_loop_that_carries_it_needs_it():
    loop = [
        f"%t = pto.tile.load %m[0, 0] : {HM}, {HT}",
        f"%c = scf.for %i = %c0 to %n step %c1 iter_args(%a = %t) -> ({HT}) {{",
        f"  %l = pto.tile.mov.m2l %a : {HT} -> {HT}",
        f"  %u = pto.tile.load %m[0, 0] : {HM}, {HT}",
        f"  scf.yield %u : {HT}",
        "}",
    ]
    program = good(module(f"%m: {HM}, %n: index", "%c1 = pto.constant 1 : index", *loop))
    run_pipeline(program, "pto-infer-tile-info", PassContext(diagnostics=Diagnostics(program.source)))
    loads = [op.result.type.loc for op in program.main.ops() if op.defn.short == "tile.load"]
    assert loads == ["Mat", "Mat"]
    assert good(printed(program))


def test_an_operand_in_another_location_than_the_result_is_written_out():
    f32 = "tile<16x16xf32>"
    lines = [f"%c = pto.tile.matmul %l, %r : {HT}, {HT} -> {f32}", f"%s = pto.tile.subs %c, %k : {f32}, f32"]
    program = good(module(f"%l: {HT}, %r: {HT}, %k: f32", *lines))
    run_pipeline(program, "pto-infer-tile-info", PassContext(diagnostics=Diagnostics(program.source)))
    again = good(printed(program))
    assert [op.result.type.loc for op in again.main.body if op.results and op.defn.short.startswith("tile.")] == ["Acc", "Vec"]


EDGE = (
    "%c1 = pto.constant 1 : index",
    "%t = pto.tile.load %a[0, 0] : M, T",
    "%u = pto.tile.exp %t : T",
    "pto.tile.store %u, %b[0, 0] : M, T",
    "scf.for %i = %c0 to %n step %c1 {",
    "  %x = pto.tile.load INSIDE[0, 0] : M, T",
    "  %y = pto.tile.neg %x : T",
    "  pto.tile.store %y, %w[0, 0] : M, T",
    "}",
    "%v = pto.tile.load %b[0, 0] : M, T",
    "%z = pto.tile.add %v, %u : T",
    "pto.tile.store %z, %w[0, 0] : M, T",
)


@pytest.mark.parametrize("inside, syncs", [("%c", 0), ("%b", 1)])
@pytest.mark.parametrize("n", [0, 2])
def test_what_meets_nothing_in_a_loop_goes_on_meanwhile(inside, syncs, n):
    """The store before the loop is awaited by who loads what it stored: behind the loop, or in it, and then before it."""
    lines = [line.replace("M, T", f"{M}, {T}").replace(" : T", f" : {T}").replace("INSIDE", inside) for line in EDGE]
    source = module(f"%a: {M}, %b: {M}, %c: {M}, %w: {M}, %n: index", *lines)
    text = optimized(source, "pto-insert-events")
    before, _, behind = text.partition("scf.for")
    assert before.count("pto.sync") == syncs and not check(text)[1].errors
    assert syncs or "%b[0, 0] wait(" in behind
    inputs = pattern(good(source), {"n": n})
    want = run(source, inputs)
    for order in ORDERS:
        got = run(text, inputs, order=order, seed=3)
        assert all(got[k].tobytes() == want[k].tobytes() for k in want)


def test_a_pipeline_refuses_what_its_target_has_not():
    vector = "pto.tile.exp %t : tile<16x16xf32, #pto.tile_info<loc=Mat>>"
    source = module(
        "%x: pto.memref<16x16xf32>", "%t = pto.tile.load %x[0, 0] : pto.memref<16x16xf32>, tile<16x16xf32>", f"%y = {vector}"
    )
    with pytest.raises(Rejected) as refused:
        run_pipeline(good(source), "pto{target=a3}", PassContext())
    assert [d.code for d in refused.value.diagnostics] == ["InvalidLocation"]
