"""Software pipelines: the same numbers in every order and for every number of iterations, order that is legal, loads ahead."""

import numpy as np
import pytest

from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.dialects.pto.run.timeline import Timeline
from ptir_tools.engines.options import ORDERS
from ptir_tools.passes import PassContext, run_pipeline
from tests.pto.programs import check, good, module, printed, run

M, T, COLUMN = "pto.memref<512x32xf32>", "tile<32x32xf32>", "tile<32x1xf32>"
PARAMETERS = f"%a: {M}, %b: {M}, %out: {M}, %n: index"
WHOLE = "pto-infer-tile-info,pto-software-pipeline{{depth={}}},pto-canonicalize,pto-bufferize,pto-canonicalize,pto-insert-events"


def added(upper, lower="%c0"):
    """`out = a + b`, 32 rows in each iteration."""
    return module(
        PARAMETERS,
        "%c32 = pto.constant 32 : index",
        f"%u = pto.constant {upper} : index" if upper != "%n" else "%u = pto.addi %n, %c0 : index",
        f"%l = pto.constant {lower} : index" if lower != "%c0" else "%l = pto.constant 0 : index",
        "scf.for %i = %l to %u step %c32 {",
        f"  %x = pto.tile.load %a[%i, 0] : {M}, {T}",
        f"  %y = pto.tile.load %b[%i, 0] : {M}, {T}",
        f"  %z = pto.tile.add %x, %y : {T}",
        f"  pto.tile.store %z, %out[%i, 0] : {M}, {T}",
        "}",
        target="a3",
    )


def summed():
    """The sums of rows of `a`, block by block added up in what the loop carries; a branch in the loop."""
    return module(
        f"{PARAMETERS}, %p: i1",
        "%c1 = pto.constant 1 : index",
        "%c32 = pto.constant 32 : index",
        "%k = pto.constant 0.5 : f32",
        f"%s0 = pto.tile.load %b[0, 0] : {M}, {T}",
        f"%s = scf.for %i = %c0 to %n step %c1 iter_args(%t = %s0) -> ({T}) {{",
        "  %at = pto.muli %i, %c32 : index",
        f"  %v = pto.memref.subview %a[%at, %c0] [32, 32] [1, 1] : {M} to pto.memref<32x32xf32, strided<[32, 1], offset: ?>>",
        f"  %x = pto.tile.load %v[0, 0] : pto.memref<32x32xf32, strided<[32, 1], offset: ?>>, {T}",
        f"  %h = scf.if %p -> ({T}) {{",
        f"    %d = pto.tile.muls %x, %k : {T}, f32",
        f"    scf.yield %d : {T}",
        "  } else {",
        f"    %e = pto.tile.neg %x : {T}",
        f"    scf.yield %e : {T}",
        "  }",
        f"  %w = pto.tile.add %t, %h : {T}",
        f"  scf.yield %w : {T}",
        "}",
        f"pto.tile.store %s, %out[0, 0] : {M}, {T}",
        target="a3",
    )


def piped(source, depth, pipeline=WHOLE):
    program = good(source)
    context = PassContext(diagnostics=Diagnostics(program.source))
    run_pipeline(program, pipeline.format(depth), context)
    assert not [d for d in context.diagnostics if d.code != "UnwaitedEvent"]
    return program, context


def inputs(**more):
    rng = np.random.default_rng(7)
    a, b = (rng.integers(-9, 9, (512, 32)).astype(np.float32) for _ in range(2))
    return {"a": a, "b": b, "out": np.zeros((512, 32), np.float32)} | more


def agree(source, program, given):
    want = run(source, given)["out"]
    text = printed(program)
    good(text)
    for order in ORDERS:
        assert run(text, given, order=order, seed=3)["out"].tobytes() == want.tobytes()


@pytest.mark.parametrize("depth", [2, 3, 5])
@pytest.mark.parametrize("trips", [0, 1, 2, 3, 4, 5, 7, 12])
def test_a_known_number_of_iterations(trips, depth):
    source = added(32 * trips)
    agree(source, piped(source, depth)[0], inputs(n=np.int64(0)))


@pytest.mark.parametrize("depth", [2, 4])
def test_a_number_of_iterations_that_is_not_known(depth):
    source = added("%n")
    program, _ = piped(source, depth)
    for n in (-5, 0, 1, 32, 33, 64, 96, 200, 512):
        agree(source, program, inputs(n=np.int64(n)))


def test_a_loop_that_does_not_begin_at_0():
    source = added(320, lower="64")
    agree(source, piped(source, 2)[0], inputs(n=np.int64(0)))


@pytest.mark.parametrize("depth", [2, 3])
def test_what_the_loop_carries_goes_through_all_parts(depth):
    program, _ = piped(summed(), depth)
    for n, p in ((0, True), (1, False), (2, True), (3, False), (6, True), (7, False)):
        agree(summed(), program, inputs(n=np.int64(n), p=np.bool_(p)))


def loop_of(program):
    """The steady state: the loop that carries events."""
    loops = [op for op in program.main.ops() if op.defn.short == "scf.for"]
    (found,) = [op for op in loops if any("event" in str(v.type) for v in op.results)]
    return found


@pytest.mark.parametrize("upper", ["%n", "4"])
@pytest.mark.parametrize("infer", ["", "pto-infer-tile-info,"])
def test_tiles_that_change_places_keep_the_type_that_the_loop_gives_them(upper, infer):
    """Three tiles with other valid regions go around: each round has another one in each place."""
    loads = [f"%x{k} = pto.tile.load %a[0, 0] {{valid = [%v{k}, %c32]}} : {M}, {T}" for k in (8, 16, 24)]
    source = module(
        PARAMETERS,
        *(f"%v{k} = pto.constant {k} : index" for k in (8, 16, 24)),
        "%c1 = pto.constant 1 : index",
        "%c32 = pto.constant 32 : index",
        f"%u = pto.constant {upper} : index" if upper != "%n" else "%u = pto.addi %n, %c0 : index",
        *loads,
        f"%s, %t, %r = scf.for %i = %c0 to %u step %c1 iter_args(%p = %x8, %q = %x16, %o = %x24) -> ({T}, {T}, {T}) {{",
        "  %at = pto.muli %i, %c32 : index",
        f"  %y = pto.tile.load %b[%at, 0] : {M}, {T}",
        f"  %z = pto.tile.add %y, %y : {T}",
        f"  pto.tile.store %z, %out[%at, 0] : {M}, {T}",
        f"  scf.yield %q, %o, %p : {T}, {T}, {T}",
        "}",
        f"pto.tile.store %s, %out[480, 0] : {M}, {T}",
        target="a3",
    )
    program, _ = piped(source, 2, f"{infer}pto-software-pipeline{{{{depth={{}}}}}}")
    assert sum(op.defn.short == "scf.for" for op in program.main.ops()) == 2
    agree(source, program, inputs(n=np.int64(5)))


def test_the_loads_of_the_next_iterations_are_under_way():
    loop = loop_of(piped(added("%n"), 2)[0])
    body = loop.regions[0]
    loads = [op for op in body.body if op.defn.short == "tile.load"]
    assert len(loads) == 4 and len(loop.results) == 4 + 2  # of two loads of one pipe, the event of the second says it of both
    assert {op.results[-1] for op in loads[1::2]} <= set(body.results)
    events = {op.results[-1] for op in loads}
    syncs = [op for op in body.body if op.defn.short == "sync"]
    assert not any(events & set(op.operands) for op in syncs)
    adds = [op for op in body.body if op.defn.short == "tile.add"]
    assert all(set(op.operands) & set(body.params) for op in adds) and not any(events & set(op.operands) for op in adds)


def test_every_wait_of_the_steady_state_is_needed():
    loop = loop_of(piped(added(512), 2)[0])
    lines = [op for op in loop.regions[0].body if any("event" in str(x.type) for x in op.operands)]
    program, _ = piped(added(512), 2)
    text = printed(program).split("\n")
    start = next(k for k, line in enumerate(text) if "iter_args" in line)
    broken = 0
    for k in range(start, len(text)):
        if "yield" in text[k]:
            break
        if " wait(" in text[k] and "pto.sync" not in text[k]:
            head, _, rest = text[k].partition(" wait(")
            again = [*text[:k], head + rest[rest.index(")") + 1 :], *text[k + 1 :]]
            with pytest.raises(AssertionError):
                good("\n".join(again))
            broken += 1
    assert broken >= 6 and lines


@pytest.mark.parametrize(
    "line",
    [
        f"pto.tile.store %x, %a[%i, 0] : {M}, {T}",  # what is loaded is written
        "%u = pto.constant 1 : index",  # nothing else is computed
        "func.call @g() : () -> ()",
    ],
)
def test_loops_that_stay(line):
    source = module(
        f"{PARAMETERS}, %p: i1",
        "%c32 = pto.constant 32 : index",
        "scf.for %i = %c0 to %n step %c32 {",
        f"  %x = pto.tile.load %a[%i, 0] : {M}, {T}",
        f"  {line}",
        "}",
    )
    if "@g" in line:
        source = source.rstrip().removesuffix("}") + "func.func @g() {\n return\n }\n}\n"
    before = printed(good(source))
    assert printed(piped(source, 2, "pto-software-pipeline{{depth={}}}")[0]) == before


BARRIERS = ("pto.sync.op #pto.op<ALL>", "pto.sync.op #pto.op<TLOAD>", "scf.if %p {\n  pto.sync.op #pto.op<TSTORE_VEC>\n  }")


def with_barrier(barrier):
    """`out = exp(a)` by rows, with a barrier in the loop."""
    return module(
        f"{PARAMETERS}, %p: i1",
        "%c32 = pto.constant 32 : index",
        "scf.for %i = %c0 to %n step %c32 {",
        f"  {barrier}",
        f"  %x = pto.tile.load %a[%i, 0] : {M}, {T}",
        f"  %z = pto.tile.exp %x : {T}",
        f"  pto.tile.store %z, %out[%i, 0] : {M}, {T}",
        "}",
    )


def with_events(back, eid=""):
    """As `with_barrier`, with events of its own: a load waits for the store of `back` iterations before."""
    load, ready, store = (f"!pto.event<producer = #pto.op<{name}>>" for name in ("TLOAD", "TEXP", "TSTORE_VEC"))
    loaded = load.replace(">>", f">{eid}>")
    queue = [f"%q{k}" for k in range(back)]
    starts = ", ".join(f"{q} = %e" for q in queue)
    return module(
        PARAMETERS,
        "%c32 = pto.constant 32 : index",
        f"%t = pto.tile.load %b[0, 0] : {M}, {T}",
        f"%e = pto.tile.store %t, %out[480, 0] : {M}, {T}, {store}",
        f"{', '.join(f'%r{k}' for k in range(back))} = scf.for %i = %c0 to %n step %c32 iter_args({starts})"
        f" -> ({', '.join([store] * back)}) {{",
        f"  %x, %l = pto.tile.load %a[%i, 0] wait({queue[-1]}) : {M}, {T}, {loaded}",
        f"  %z, %f = pto.tile.exp %x wait(%l) : {T}, {ready}",
        f"  %s = pto.tile.store %z, %out[%i, 0] wait(%f) : {M}, {T}, {store}",
        f"  scf.yield {', '.join(['%s', *queue[:-1]])} : {', '.join([store] * back)}",
        "}",
        f"pto.sync wait(%r0) : {store}",
    )


ORDERED = {
    **{f"barrier {k}": with_barrier(barrier) for k, barrier in enumerate(BARRIERS)},
    **{f"events {back}": with_events(back) for back in (1, 2, 3)},
    "ids": with_events(2, ", eid = 1"),
}


@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize("name", ORDERED)
def test_loops_with_barriers_or_events_load_ahead(name, depth):
    """Whatever they wait for, of however many iterations back. Runs find no race, for any number of iterations."""
    source = ORDERED[name]
    text = printed(piped(source, depth, "pto-software-pipeline{{depth={}}}")[0])
    assert text.count("pto.tile.load %a") == 1 + 2 * depth
    assert not {d.code for d in check(text)[1]} - {"RedundantWait"}
    counts = (0, 1, 32 * depth - 32, 32 * depth, 32 * depth + 1, 320)
    a = np.random.default_rng(1).standard_normal((512, 32)).astype(np.float32)
    for n in counts[:: 2 if depth == 3 else 1]:
        given = {"a": a, "b": a, "out": np.zeros_like(a), "n": np.int64(n), "p": np.bool_(n % 3)}
        want = run(source, given)["out"]
        for order in ORDERS:
            np.testing.assert_array_equal(run(text, given, order=order, seed=n)["out"], want)


def test_a_load_that_needs_the_store_it_waits_for_stays():
    """It reads what the iteration before stored."""
    source = with_events(1).replace("pto.tile.load %a[%i, 0]", "pto.tile.load %out[%i, 0]")
    before = printed(good(source))
    assert printed(piped(source, 2, "pto-software-pipeline{{depth={}}}")[0]) == before


def test_loads_stay_behind_a_barrier_that_waits_for_a_store_of_the_caller():
    row, memory = "tile<16x8xf32>", "pto.memref<64x8xf32>"
    source = f"""module {{
  func.func @main(%a: {memory}, %out: {memory}, %n: index) {{
    %t = pto.tile.load %out[0, 0] : {memory}, {row}
    %u = pto.tile.exp %t : {row}
    %e = pto.tile.store %u, %a[0, 0] : {memory}, {row}, !pto.event<producer = #pto.op<TSTORE_VEC>>
    func.call @g(%a, %out) : ({memory}, {memory}) -> ()
    return
  }}
  func.func @g(%a: {memory}, %out: {memory}) {{
    %c0 = pto.constant 0 : index
    %c16 = pto.constant 16 : index
    %c64 = pto.constant 64 : index
    scf.for %i = %c0 to %c64 step %c16 {{
      pto.sync.op #pto.op<ALL>
      %x = pto.tile.load %a[%i, %c0] : {memory}, {row}
      %y = pto.tile.neg %x : {row}
      pto.tile.store %y, %out[%i, %c0] : {memory}, {row}
    }}
    return
  }}
}}
"""
    before = printed(good(source))
    assert printed(piped(source, 2, "pto-software-pipeline{{depth={}}}")[0]) == before


def test_slots_that_do_not_fit_leave_the_loop_as_it_is():
    wide = "tile<160x128xf32>"
    m = "pto.memref<1280x128xf32>"
    source = module(
        f"%a: {m}, %out: {m}, %n: index",
        "%c128 = pto.constant 160 : index",
        "scf.for %i = %c0 to %n step %c128 {",
        f"  %x = pto.tile.load %a[%i, 0] : {m}, {wide}",
        f"  %y = pto.tile.exp %x : {wide}",
        f"  %z = pto.tile.recip %y : {wide}",
        f"  pto.tile.store %z, %out[%i, 0] : {m}, {wide}",
        "}",
        target="a3",
    )
    before = printed(good(source))
    assert printed(piped(source, 2, "pto-software-pipeline{{depth={}}}")[0]) == before


@pytest.mark.parametrize("depth", [0, 1, 9])
def test_a_depth_that_there_is_not(depth):
    with pytest.raises(UsageError):
        piped(added(64), depth)


WIDE, BLOCK, LINE = "pto.memref<256x768xf32>", "tile<16x768xf32>", "tile<16x1xf32>"


def normalized(passes):
    """Rows of `a` less their mean, `passes` times, block by block: the result takes the bytes of what was loaded."""
    body, x = [], "%x"
    for k in range(passes):
        body += [
            f"  %s{k} = pto.tile.rowsum {x} : {BLOCK} -> {LINE}",
            f"  %m{k} = pto.tile.muls %s{k}, %part : {LINE}, f32",
            f"  %d{k} = pto.tile.rowexpandsub {x}, %m{k} : {BLOCK}, {LINE} -> {BLOCK}",
        ]
        x = f"%d{k}"
    return module(
        f"%a: {WIDE}, %out: {WIDE}",
        "%c256 = pto.constant 256 : index",
        "%c16 = pto.constant 16 : index",
        "%part = pto.constant 0.001953125 : f32",
        "scf.for %i = %c0 to %c256 step %c16 {",
        f"  %x = pto.tile.load %a[%i, 0] : {WIDE}, {BLOCK}",
        *body,
        f"  pto.tile.store {x}, %out[%i, 0] : {WIDE}, {BLOCK}",
        "}",
        target="a3",
    )


@pytest.mark.parametrize("passes, ratio", [(1, 1.25), (4, 1.15)])
def test_stores_go_on_into_the_next_iteration(passes, ratio):
    """Whether loads and stores or the vector unit take longest: the busiest pipe is idle at the beginning and the end alone."""
    text = printed(piped(normalized(passes), 3)[0])
    a = np.random.default_rng(1).integers(-8, 8, (256, 768)).astype(np.float32)
    want = a.copy()
    for _ in range(passes):
        want -= np.float32(0.001953125) * want.sum(1, keepdims=True, dtype=np.float32)
    line = Timeline()
    made = run(text, {"a": a, "out": np.zeros_like(a)}, order="adversarial", timeline=line)
    np.testing.assert_allclose(made["out"], want, rtol=1e-3, atol=1e-3)
    makespan, busiest = line.makespan, max(line.busy().values())
    assert makespan <= ratio * busiest
    body = text.partition("scf.for")[2].partition("scf.yield")[0]
    assert "pto.sync wait" not in body


def test_what_nothing_meets_is_not_waited_for_at_the_end_of_a_loop():
    """Stores to rows of their own: no iteration waits for the one before, and what follows waits for the pipe once."""
    source = module(
        f"%a: {M}, %out: {M}, %n: index",
        "%c32 = pto.constant 32 : index",
        f"%x = pto.tile.load %a[0, 0] : {M}, {T}",
        "scf.for %i = %c0 to %n step %c32 {",
        f"  pto.tile.store %x, %out[%i, 0] : {M}, {T}",
        "}",
        f"%y = pto.tile.load %out[0, 0] : {M}, {T}",
        f"pto.tile.store %y, %out[32, 0] : {M}, {T}",
    )
    text = printed(piped(source, 2, "pto-insert-events")[0])
    loop, _, behind = text.partition("scf.for")[2].partition("}")
    assert "pto.sync" not in loop and behind.count("pto.sync.op #pto.op<TSTORE_VEC>") == 1
    a = np.arange(512 * 32, dtype=np.float32).reshape(512, 32)
    for trips in (0, 3):
        for order in ORDERS:
            inputs = {"a": a, "out": -a, "n": np.int64(32 * trips)}
            assert run(text, inputs, order=order)["out"].tobytes() == run(source, inputs)["out"].tobytes()


@pytest.mark.parametrize("rotated", [1, 2, 3])
def test_what_a_loop_hands_on_for_several_iterations_is_waited_for(rotated):
    names = [f"%t{k}" for k in range(rotated)]
    given, types = ", ".join(f"{n} = %x" for n in names), ", ".join([T] * rotated)
    source = module(
        f"%a: {M}, %out: {M}, %n: index",
        "%c1 = pto.constant 1 : index",
        "%c32 = pto.constant 32 : index",
        f"%x = pto.tile.load %a[0, 0] : {M}, {T}",
        f"{', '.join(f'%r{k}' for k in range(rotated))} = scf.for %i = %c0 to %n step %c1 iter_args({given}) -> ({types}) {{",
        "  %at = pto.muli %i, %c32 : index",
        f"  pto.tile.store {names[0]}, %out[%at, 0] : {M}, {T}",
        f"  %u = pto.tile.add %x, {names[-1]} : {T}",
        f"  scf.yield {', '.join([*names[1:], '%u'])} : {types}",
        "}",
        f"pto.tile.store %r0, %out[480, 0] : {M}, {T}",
    )
    for pipeline in ("pto-insert-events", "pto-bufferize,pto-insert-events"):
        text = printed(piped(source, 2, pipeline)[0])
        a = np.arange(512 * 32, dtype=np.float32).reshape(512, 32)
        for trips in (0, 5):
            inputs = {"a": a, "out": -a, "n": np.int64(trips)}
            want = run(source, inputs)["out"].tobytes()
            assert all(run(text, inputs, order=order)["out"].tobytes() == want for order in ORDERS)


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 8, 16])
def test_tiles_at_computed_addresses_are_waited_for(slots):
    """Slots by `i mod k`, bound by hand: the events that are inserted know that an iteration may meet the one before."""
    source = module(
        f"%a: {M}, %out: {M}, %n: index",
        "%c1 = pto.constant 1 : index",
        "%c32 = pto.constant 32 : index",
        "%size = pto.constant 4096 : index",
        "%high = pto.constant 65536 : index",
        f"%k = pto.constant {slots} : index",
        "scf.for %i = %c0 to %n step %c1 {",
        "  %slot = pto.remsi %i, %k : index",
        "  %low = pto.muli %slot, %size : index",
        "  %row = pto.muli %i, %c32 : index",
        f"  %x = pto.tile.load %a[%row, 0] : {M}, {T}",
        f"  pto.tile.assign %x, %low : {T}, index",
        f"  %y = pto.tile.exp %x : {T}",
        "  %at = pto.addi %low, %high : index",
        f"  pto.tile.assign %y, %at : {T}, index",
        f"  pto.tile.store %y, %out[%row, 0] : {M}, {T}",
        "}",
        target="a3",
    )
    program, _ = piped(source, 2, "pto-insert-events")
    a = np.random.default_rng(2).standard_normal((512, 32)).astype(np.float32)
    for trips in (0, 1, 7, 16):
        inputs = {"a": a, "out": np.zeros_like(a), "n": np.int64(trips)}
        want = run(source, inputs)["out"].tobytes()
        assert all(run(program, inputs, order=order)["out"].tobytes() == want for order in ORDERS)
    text = printed(program)
    good(text)
    inside = text[text.index("scf.for") :].split("\n")
    for line in [x for x in inside[: inside.index("    }")] if "pto.sync.op" in x]:
        with pytest.raises(AssertionError):
            good(text.replace(f"{line}\n", "", 1))
