"""Events that are inserted into loops: what the first iteration waits for, and what meets iterations long before."""

import numpy as np
import pytest

from ptir_tools.core.choices import Seeded
from ptir_tools.core.diagnostics import Diagnostics, Rejected
from ptir_tools.dialects.pto import generate
from ptir_tools.dialects.pto.order.dependences import redundant_waits
from ptir_tools.engines.inputs import random_inputs
from ptir_tools.engines.options import ORDERS
from ptir_tools.passes import PassContext, run_pipeline
from tests.pto import replay
from tests.pto.harm import spots, without
from tests.pto.programs import check, good, module, printed, run
from tests.pto.test_order import WAYS

M, T = "pto.memref<1x2048xf32>", "tile<1x32xf32>"
EVENT = "!pto.event<producer = #pto.op<TLOAD>>"


def with_events(source, pipeline="pto-insert-events"):
    """The program after the passes, without a hazard."""
    program = good(source)
    context = PassContext(diagnostics=Diagnostics(program.source))
    run_pipeline(program, pipeline, context)
    assert not context.diagnostics.errors
    good(text := printed(program))
    return text


def agree(source, text, *trips):
    """Both give the same bits, in every order."""
    a = np.random.default_rng(3).standard_normal((1, 2048)).astype(np.float32)
    for n in trips:
        given = {"a": a, "out": np.zeros_like(a), "n": np.int64(n)}
        want = run(source, given)
        for order in ORDERS:
            made = run(text, given, order=order, seed=n)
            assert all(made[name].tobytes() == want[name].tobytes() for name in ("a", "out"))


def carrying(*lines):
    """A loop that carries `%t`, first a load before it, then `%u`, a load in it."""
    return module(
        f"%a: {M}, %out: {M}, %n: index",
        "%c1 = pto.constant 1 : index",
        "%c32 = pto.constant 32 : index",
        f"%x = pto.tile.load %a[0, 992] : {M}, {T}",
        f"%r = scf.for %i = %c0 to %n step %c1 iter_args(%t = %x) -> ({T}) {{",
        "  %at = pto.muli %i, %c32 : index",
        *[f"  {line}" for line in lines],
        f"  scf.yield %u : {T}",
        "}",
        f"pto.tile.store %r, %out[0, 960] : {M}, {T}",
    )


LOAD = f"%u = pto.tile.load %a[0, %at] : {M}, {T}"
CARRYING = {
    "a later op of the loop waits for the load": [
        f"%v = pto.tile.exp %t : {T}",
        LOAD,
        f"%w = pto.tile.add %v, %u : {T}",
        f"pto.tile.store %w, %out[0, %at] : {M}, {T}",
    ],
    "a barrier waits for it": [
        f"%v = pto.tile.exp %t : {T}",
        f"pto.tile.store %v, %out[0, %at] : {M}, {T}",
        LOAD,
        "pto.sync.op #pto.op<ALL>",
    ],
    "a branch uses it": [
        "%p = pto.cmpi slt, %i, %c1 : index",
        "scf.if %p {",
        f"  %v = pto.tile.exp %t : {T}",
        f"  pto.tile.store %v, %out[0, %at] : {M}, {T}",
        "}",
        LOAD,
        f"%w = pto.tile.exp %u : {T}",
        f"pto.tile.store %w, %out[0, %at] : {M}, {T}",
    ],
    "an inner loop uses it": [
        "scf.for %j = %c0 to %i step %c1 {",
        f"  %v = pto.tile.exp %t : {T}",
        f"  pto.tile.store %v, %out[0, %at] : {M}, {T}",
        "}",
        f"%v = pto.tile.exp %t : {T}",
        f"pto.tile.store %v, %out[0, %at] : {M}, {T}",
        LOAD,
        "pto.sync.op #pto.op<TLOAD>",
    ],
}


@pytest.mark.parametrize("lines", CARRYING.values(), ids=CARRYING)
def test_the_first_iteration_waits_for_what_is_complete_in_the_others(lines):
    source = carrying(*lines)
    text = with_events(source)
    head = text[text.index("scf.for") :].partition("{")[0]
    assert EVENT in text and ", %e" in head  # the event is carried
    agree(source, text, 0, 1, 2, 5)


def test_two_slots_with_a_barrier_after_each_use():
    use, barrier = "pto.tile.exp", "pto.sync.op #pto.op<ALL>"
    source = module(
        f"%a: {M}, %out: {M}, %n: index",
        "%c1 = pto.constant 1 : index",
        "%c32 = pto.constant 32 : index",
        f"%x = pto.tile.load %a[0, 0] : {M}, {T}",
        f"%y = pto.tile.load %a[0, 32] : {M}, {T}",
        f"%r, %s = scf.for %i = %c0 to %n step %c1 iter_args(%t = %x, %u = %y) -> ({T}, {T}) {{",
        "  %at = pto.muli %i, %c32 : index",
        f"  %v = {use} %t : {T}",
        f"  pto.tile.store %v, %out[0, %at] : {M}, {T}",
        f"  {barrier}",
        f"  %t2 = pto.tile.load %a[0, %at] : {M}, {T}",
        f"  %w = {use} %u : {T}",
        f"  pto.tile.store %w, %out[0, %at] : {M}, {T}",
        f"  {barrier}",
        f"  %u2 = pto.tile.load %a[0, %at] : {M}, {T}",
        f"  scf.yield %t2, %u2 : {T}, {T}",
        "}",
        f"pto.tile.store %r, %out[0, 960] : {M}, {T}",
        f"pto.tile.store %s, %out[0, 992] : {M}, {T}",
    )
    agree(source, with_events(source), 0, 1, 2, 5)


def apart(distance, step, forward):
    """A loop whose loads are `distance` elements before its stores, or behind them."""
    first, last = ("%far", "%at") if forward else ("%at", "%far")
    return module(
        f"%a: {M}, %out: {M}, %n: index",
        "%c1 = pto.constant 1 : index",
        f"%step = pto.constant {step} : index",
        f"%d = pto.constant {distance} : index",
        "scf.for %i = %c0 to %n step %c1 {",
        "  %at = pto.muli %i, %step : index",
        "  %far = pto.addi %at, %d : index",
        f"  %x = pto.tile.load %a[0, {last}] : {M}, {T}",
        f"  %y = pto.tile.exp %x : {T}",
        f"  pto.tile.store %y, %a[0, {first}] : {M}, {T}",
        "}",
    )


@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize("distance, step", [(32, 32), (64, 32), (96, 32), (160, 32), (65, 16), (70, 8), (512, 32)])
def test_accesses_that_meet_several_iterations_later(distance, step, forward):
    source = apart(distance, step, forward)
    agree(source, with_events(source), 0, 2, 7, 15)


@pytest.mark.parametrize("name", CARRYING)
def test_a_loop_from_a_number_that_is_given(name):
    """It may have no iteration, so what is behind it waits for what is before it."""
    source = carrying(*CARRYING[name]).replace("%i = %c0 to %n step", "%i = %n to %c4 step")
    source = source.replace("%c1 = pto.constant 1 : index", "%c1 = pto.constant 1 : index\n    %c4 = pto.constant 4 : index")
    agree(source, with_events(source), 0, 3, 4, 9)


BOUNDS = [("0", "0"), ("2", "2"), ("3", "1"), ("0", "1"), ("0", "3"), ("1", "%n"), ("%n", "2"), ("%n", "%n")]


@pytest.mark.parametrize("low, high", BOUNDS, ids=map(" to ".join, BOUNDS))
@pytest.mark.parametrize("name", CARRYING)
def test_what_is_loaded_before_a_loop_is_waited_for_after_it_whether_the_loop_runs_or_not(name, low, high):
    """Without an iteration, the event that the loop carries says nothing about a later load before the loop."""
    ends = {x: f"%e{k}" if x.isdecimal() else x for k, x in enumerate((low, high))}
    numbers = [f"    {ends[x]} = pto.constant {x} : index\n" for x in ends if x.isdecimal()]
    before = f"    %y = pto.tile.load %a[0, 1024] : {M}, {T}\n"
    after = f"    pto.tile.store %y, %out[0, 1024] : {M}, {T}\n"
    text, store = carrying(*CARRYING[name]), f"    pto.tile.store %r, %out[0, 960] : {M}, {T}\n"
    loop = "    %r = scf.for %i = %c0 to %n step"
    assert loop in text and store in text
    text = text.replace(loop, "".join(numbers) + before + loop.replace("%c0", ends[low]).replace("%n", ends[high]))
    source = text.replace(store, after + store)
    agree(source, with_events(source), 0, 1, 3)


def test_what_no_iteration_meets_needs_no_wait():
    """Loads in place, and loads before those of earlier stores."""
    for source in (apart(0, 32, True), apart(0, 40, False), apart(40, 40, False)):
        inside = with_events(source).partition("scf.for")[2].partition("    }")[0]
        assert "pto.sync" not in inside
        agree(source, with_events(source), 3, 9)


def test_an_inner_loop_meets_other_iterations_of_itself_in_the_next_one_around_it():
    """Never in the same iteration of the inner loop."""
    source = module(
        f"%a: {M}, %out: {M}, %n: index",
        "%c1 = pto.constant 1 : index",
        "%c32 = pto.constant 32 : index",
        "%c128 = pto.constant 128 : index",
        "scf.for %i = %c0 to %n step %c1 {",
        "  %row = pto.muli %i, %c32 : index",
        "  scf.for %j = %c0 to %n step %c1 {",
        "    %column = pto.muli %j, %c32 : index",
        "    %at = pto.addi %row, %column : index",
        f"    %x = pto.tile.load %a[0, %at] : {M}, {T}",
        f"    %y = pto.tile.exp %x : {T}",
        f"    pto.tile.store %y, %a[0, %at] : {M}, {T}",
        "  }",
        "}",
    )
    agree(source, with_events(source), 0, 1, 2, 5)


PIPELINES = (
    "pto-insert-events",
    "pto-bufferize,pto-insert-events",
    "pto-software-pipeline,pto-insert-events",
    "pto-software-pipeline{depth=3},pto-bufferize,pto-insert-events",
    "pto-insert-events,pto-bufferize",
    "pto{target=a3}",
)


BEFORE = ("", "pto-bufferize,", "pto-software-pipeline,pto-bufferize,", "pto-software-pipeline{depth=3},")


def needed(seed, counted=True):
    """Without any one of the waits that are inserted into a kernel, the judge sees a race; with all, none. How many they are."""
    drawn = printed(generate.loops(Seeded(seed), size=6, events=False, counted=counted))
    source = "\n".join(line for line in drawn.split("\n") if "pto.sync.op" not in line)  # its barriers are not inserted ones
    program = good(source)
    try:
        run_pipeline(program, f"{BEFORE[seed % len(BEFORE)]}pto-insert-events", PassContext(diagnostics=Diagnostics()))
    except Rejected as refusal:
        assert {d.code for d in refusal.diagnostics} <= {"TileMoved", "CapacityExceeded", "IllegalOnTarget"}, seed
        return 0
    text = printed(program)
    assert not replay.faults(good(text), WAYS, returns=True), seed
    used = {x for op in program.main.ops() for x in op.operands}
    for op in (op for op in program.main.ops() if op.defn.short == "scf.for"):
        carried = [names for names in zip(op.regions[0].params[1:], op.results, strict=True) if "event" in str(names[0].type)]
        assert not any(used.isdisjoint(names) for names in carried), seed
    count = len(spots(program))
    proved = counted or not any(d.code == "Unproved" for d in check(text)[1])
    for k in range(count if proved else 0):
        harmed = good(text)
        without(*spots(harmed)[k])
        assert replay.faults(harmed, WAYS, returns=True), (seed, k)
    return count


def test_every_inserted_wait_is_needed():
    assert sum(needed(seed) for seed in range(30)) > 100
    assert sum(needed(seed, counted=False) for seed in range(6)) > 10


def test_without_loops_and_branches_no_wait_is_to_spare():
    """None is tried there. The check could do without none."""
    count = 0
    for seed in range(60):
        lines = printed(generate.loops(Seeded(seed), size=12, events=False, counted=True)).split("\n")
        start = next((k for k, line in enumerate(lines) if "scf." in line), len(lines) - 3)
        program = good("\n".join([*(x for x in lines[:start] if "sync.op" not in x), "return", "}", "}", ""]))
        run_pipeline(program, f"{('', 'pto-bufferize,')[seed % 2]}pto-insert-events", PassContext(diagnostics=Diagnostics()))
        waits = [(op, k) for _, op, k in spots(program)]
        assert not list(redundant_waits(program, program.main, waits)), seed
        count += len(waits)
    assert count > 60


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.parametrize("share", range(20))
def test_every_inserted_wait_is_needed_at_length(share):
    for seed in range(1000 + 50 * share, 1050 + 50 * share):
        needed(seed)
        needed(seed, counted=False)


def judge(seed):
    """Verified after every pass, and run in every order. Programs that have events of their own are to be right already."""
    source = good(printed(generate.loops(Seeded(seed), size=6)))
    arrays = random_inputs(source, seed)
    few = {"n": (0, 1, 2 + seed % 3), "m": (3, 2, 0), "p": (seed % 2, 0, 1), "q": (0, seed % 3, 1)}
    inputs = [{k: arrays[k].dtype.type(few[k][i]) if k in few else arrays[k] for k in arrays} for i in range(3)]
    wanted = [run(source, given) for given in inputs]
    for pipeline in ("", *PIPELINES):
        program = good(printed(source))
        try:
            run_pipeline(program, pipeline, PassContext(diagnostics=Diagnostics(program.source)))
        except Rejected as refusal:  # what is carried crosswise outside of Vec, or finds no room
            assert {d.code for d in refusal.diagnostics} <= {"TileMoved", "CapacityExceeded", "IllegalOnTarget"}, seed
            continue
        for given, want in zip(inputs, wanted, strict=True):
            for order in ("adversarial", "random"):
                made = run(program, given, order=order, seed=seed)
                assert all(made[name].tobytes() == want[name].tobytes() for name in want), (seed, pipeline, order)


def test_random_loops_with_events_give_the_same_bits():
    for seed in range(20):
        judge(seed)


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.parametrize("share", range(20))
def test_random_loops_with_events_give_the_same_bits_at_length(share):
    for seed in range(1000 + 50 * share, 1050 + 50 * share):
        judge(seed)


@pytest.mark.parametrize("way", ["for", "while"])
def test_bytes_that_a_loop_carries_are_not_written_over_before_they_are_read(way):
    """Only what makes a tile says where it lies, not the names under which it is carried."""
    head = {
        "for": f"%r = scf.for %i = %c0 to %n step %c1 iter_args(%x = %t) -> ({T}) {{",
        "while": f"%r, %k = scf.while (%x = %t, %i = %c0) : ({T}, index) -> ({T}, index) {{",
    }[way]
    store = f"pto.tile.store %x, %out[0, 32] : {M}, {T}"
    again = f"%y = pto.tile.relu %x : {T} -> {T}"
    bind = "pto.tile.assign %{}, %c0 : tile<1x32xf32>, index"
    body = {
        "for": [store, again, bind.format("y"), f"scf.yield %y : {T}", "}"],
        "while": [
            store,
            "%p = pto.cmpi slt, %i, %n : index",
            f"scf.condition(%p) %x, %i : {T}, index",
            "} do {",
            f"^bb0(%z: {T}, %j: index):",
            f"%y = pto.tile.relu %z : {T} -> {T}",
            bind.format("y"),
            "%j1 = pto.addi %j, %c1 : index",
            f"scf.yield %y, %j1 : {T}, index",
            "}",
        ],
    }[way]
    source = module(
        f"%a: {M}, %out: {M}, %n: index",
        "%c1 = pto.constant 1 : index",
        f"%t = pto.tile.load %a[0, 0] : {M}, {T}",
        bind.format("t"),
        head,
        *body,
        f"%u = pto.tile.min %r, %r : {T}",
        bind.format("u"),
        f"pto.tile.store %u, %out[0, 64] : {M}, {T}",
    )
    agree(source, with_events(source), 0, 1, 3)


def test_a_tile_that_a_loop_carries_twice_is_waited_for_after_it(ptir):
    """Before the loop a vector op and a load make the two; in it one load makes both."""
    memref, tile = "pto.memref<32x16xf32>", "tile<16x16xf32>"
    source = module(
        f"%a: {memref}, %b: {memref}",
        "%c1 = pto.constant 1 : index",
        "%c2 = pto.constant 2 : index",
        f"%x = pto.tile.load %a[0, 0] : {memref}, {tile}",
        f"%y = pto.tile.relu %x : {tile}",
        f"%z = pto.tile.load %a[16, 0] : {memref}, {tile}",
        f"%s, %t = scf.for %i = %c0 to %c2 step %c1 iter_args(%p = %y, %q = %z) -> ({tile}, {tile}) {{",
        f"  %w = pto.tile.load %a[%i, 0] : {memref}, {tile}",
        f"  scf.yield %w, %w : {tile}, {tile}",
        "}",
        f"pto.tile.store %s, %b[16, 0] : {memref}, {tile}",
    )
    made = ptir("opt", stdin=source.encode())
    assert made.status == 0, made.err
    assert ptir("verify", stdin=made.out).status == 0
