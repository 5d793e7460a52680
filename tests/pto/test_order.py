"""The static check of order against a judge that knows only the specification (`pto_order_oracle`)."""

import random
from collections import Counter
from contextlib import suppress
from operator import eq, ge, gt, le, lt, ne

import numpy as np
import pytest

from ptir_tools import engines
from ptir_tools.core.choices import Seeded
from ptir_tools.core.diagnostics import Diagnostics, Rejected, Severity
from ptir_tools.core.dialect import Options
from ptir_tools.core.verify import verify
from ptir_tools.dialects.pto import generate
from ptir_tools.engines.inputs import random_inputs
from ptir_tools.engines.options import ORDERS, RunOptions
from tests.pto import order_oracle as oracle
from tests.pto import replay
from tests.pto.harm import harm
from tests.pto.programs import SAMPLES, check, event, good, printed


def reported(source, where):
    """The errors of a program as the judge says them, and whether something is said to be unproved."""
    _, found = check(source)

    def op(span):
        return where[source.count("\n", 0, span.start) + 1]

    errors = [d for d in found if d.severity is Severity.ERROR]
    got = {(d.code, "" if d.code == "TileOverwritten" else op(d.labels[0].span), op(d.span)) for d in errors}
    return got, any(d.code == "Unproved" for d in found)


def programs(seeds, unknown=False):
    """Random programs, and each again without one of its waits, syncs or barriers."""
    for seed in seeds:
        whole = oracle.draw(seed, unknown)
        yield seed, whole
        harmed = oracle.broken(whole, random.Random(seed))
        if harmed is not None:
            yield seed, harmed


def judge(seeds):
    """Both agree on every pair of ops; the judge finds harm in some programs and none in others."""
    harmful = count = 0
    for seed, program in programs(seeds):
        source, where = oracle.text(program)
        wanted = oracle.faults(program)
        assert reported(source, where) == (wanted, False), (seed, source)
        count += 1
        harmful += bool(wanted)
    assert count / 10 < harmful < count * 9 / 10


def test_static_programs_have_no_fault_too_many_and_none_too_few():
    judge(range(250))


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.parametrize("share", range(26))
def test_five_thousand_static_programs(share):
    judge(range(1000 + 100 * share, 1100 + 100 * share))


def test_of_unknown_trip_counts_what_is_not_proved_is_said():
    for seed, program in programs(range(200), unknown=True):
        source, where = oracle.text(program)
        wanted = oracle.faults(program)
        got, unproved = reported(source, where)
        if got != wanted:
            wanted |= oracle.faults(program, oracle.MANY)
        assert got <= wanted, (seed, source)
        assert unproved or got == wanted, (seed, source)


def removals(seed):
    """A right program and the same without one of its waits: verify and a run of it report what the judge says, and nothing else.

    Gives whether the removal was harmful; None where there is nothing to take away, or the program was wrong already.
    """
    whole = oracle.draw(seed)
    harmed = oracle.broken(whole, random.Random(seed))
    if harmed is None or oracle.faults(whole):
        return None
    rng = random.Random(seed)
    choices = dict(oracle.conditions(harmed, oracle.FEW))
    for program in (whole, harmed):
        source, where = oracle.text(program)
        wanted = oracle.faults(program)
        assert reported(source, where) == (wanted, False), (seed, source)
        made = good(source, Options(hazards=False))
        for _ in range(2):
            choice = {name: rng.choice(ways) for name, ways in choices.items()}
            faults = oracle.Judge(program, choice).faults
            given = {name: np.int64(0) for name in "nm"} | {name: np.bool_(False) for name in "pqr"}
            given |= {k: np.bool_(v) if k in "pqr" else np.int64(v) for k, v in choice.items()}
            memory = {name: np.ones((256, 8), np.float32) for name in "ab"}
            order = rng.choice(ORDERS)
            found = Diagnostics(made.source)
            with suppress(Rejected):
                engines.run(made, memory | given, RunOptions(order=order, seed=seed, undef="zero"), found)
            assert bool(found.errors) == bool(faults), (seed, source, choice, order, faults, [d.message for d in found])
    return bool(oracle.faults(harmed))


def test_every_harmful_removal_is_reported_by_verify_and_by_run():
    assert Counter(map(removals, range(10_000, 10_160)))[True] > 5


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.parametrize("share", range(50))
def test_five_thousand_removals(share):
    for seed in range(20_000 + 400 * share, 20_400 + 400 * share):
        removals(seed)


WAYS = {"p": (0, 1), "q": (0, 1), "n": (0, 1, 2, 3, 5, 6), "m": (0, 1, 2, 4, 6)}


def generated(seed, counted=True):
    """A kernel of the generator, and the same without one of its waits; as they are read."""
    for harmed in (False, True):
        program = generate.loops(Seeded(seed), size=6, events=True, counted=counted)
        if not harmed or harm(program, Seeded(seed)) is not None:
            yield good(printed(program), Options(hazards=False))


def kernels(seeds):
    """The check, a run in some order and the judge agree on kernels of the generator; how many are harmful, and how many not."""
    outcomes = Counter()
    for seed in seeds:
        for k, program in enumerate(generated(seed)):
            wanted = replay.faults(program, WAYS)
            assert not wanted or k, (seed, wanted)  # the generator's own are free of races
            found = Diagnostics(program.source)
            verify(program, found)
            assert replay.said(program, found) == wanted, (seed, k)
            assert not any(d.code == "Unproved" for d in found) and not replay.said(program, found, "WARNING"), (seed, k)
            outcomes[bool(wanted)] += 1
            arrays = random_inputs(program, seed)
            scalars = {name: int(arrays[name]) for name in WAYS if name in arrays}
            here, reached = replay.faults(program, {name: (n,) for name, n in scalars.items()}), Diagnostics(program.source)
            with suppress(Rejected):
                engines.run(program, arrays, RunOptions(order=ORDERS[seed % 3], seed=seed, undef="zero"), reached)
            assert bool(reached.errors) == bool(here), (seed, k, here)
    return outcomes


def test_generated_kernels_have_no_fault_too_many_and_none_too_few():
    outcomes = kernels(range(60))
    assert outcomes[True] >= 5 and outcomes[False] >= 60


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.parametrize("share", range(25))
def test_five_thousand_generated_kernels(share):
    kernels(range(1000 + 100 * share, 1100 + 100 * share))


def test_what_is_said_of_generated_kernels_whose_trips_are_not_known():
    """Nothing is said of those that are right; what is not found in others is not proved. Nearly all is proved."""
    unproved = 0
    for seed in range(40):
        for k, program in enumerate(generated(seed, counted=False)):
            verify(program, found := Diagnostics(program.source))
            got, wanted = replay.said(program, found), replay.faults(program, WAYS)
            assert (not wanted and not got) or k, seed
            unproved += any(d.code == "Unproved" for d in found)
            assert got >= wanted or any(d.code == "Unproved" for d in found), seed
    assert unproved <= 8


@pytest.mark.parametrize("low", [0, 1])
@pytest.mark.parametrize("k", [2, 3, 4])
def test_an_address_that_is_computed_behind_the_op(k, low):
    """A ring of `k` slots, stored with a wait for the store of `k` rounds before, and of one round more."""
    signals = [event("TLOAD"), event("TRELU"), event("TSTORE_VEC")]

    def source(rounds):
        names = [f"%e{n}" for n in range(rounds)]
        return f"""func.func @f(%a: {M}, %b: pto.memref<256x8xf32>) {{
        %c0 = pto.constant 0 : index
        %c1 = pto.constant 1 : index
        %k = pto.constant {k} : index
        %low = pto.constant {low} : index
        %high = pto.constant 9 : index
        %c8 = pto.constant 8 : index
        %c256 = pto.constant 256 : index
        %far = pto.constant 32768 : index
        %t, %e = pto.tile.load %a[%c0, %c0] : {M}, {T}, {signals[0]}
        pto.tile.assign %t, %far : {T}, index
        pto.sync wait(%e) : {signals[0]}
        %r:{rounds} = scf.for %i = %low to %high step %c1 iter_args({", ".join(f"{n} = %e" for n in names)})
            -> ({", ".join(["!pto.event"] * rounds)}) {{
          %x, %f = pto.tile.relu %t wait({names[-1]}) : {T}, {signals[1]}
          %s = pto.remsi %i, %k : index
          %u = pto.muli %s, %c256 : index
          pto.tile.assign %x, %u : {T}, index
          %row = pto.muli %i, %c8 : index
          %g = pto.tile.store %x, %b[%row, %c0] wait(%f) : pto.memref<256x8xf32>, {T}, {signals[2]}
          scf.yield {", ".join(["%g", *names[:-1]])} : {", ".join(["!pto.event"] * rounds)}
        }}
        return
        }}"""

    assert not [d for d in check(source(k))[1] if d.severity is Severity.ERROR]
    assert [d.code for d in check(source(k + 1))[1] if d.severity is Severity.ERROR] == ["MemoryHazard"]


def test_the_judge_itself():
    load = oracle.Do("load", "t", memory="a", place=oracle.Place(0), event="e")
    store = oracle.Do("store", "s", ["t"], ["e"], memory="a", place=oracle.Place(0))
    assert oracle.faults([load, store]) == set()
    assert oracle.faults([load, oracle.replace(store, waits=[])]) == {("MissingWait", "t", "s")}


@pytest.mark.parametrize(
    "name, wanted",
    [
        ("fn_ring2", {"MemoryHazard"}),
        ("fn_ring3", {"MemoryHazard"}),
        ("fn_ring4", {"MemoryHazard"}),
        ("fp_trips", set()),
        ("ping_dynamic_addr", {"MemoryHazard"}),
        ("ping_far", {"MemoryHazard", "OutOfBounds"}),
        ("clobber", {"TileOverwritten"}),
        ("choices7", {"MemoryHazard"}),
        ("m7", {"EventIdReused"}),
        ("m8", {"EventIdReused"}),
        ("m3", {"MemoryHazard"}),
        ("redundant_wait_by_hand", set()),
    ],
)
def test_programs_by_hand(name, wanted):
    _, found = check((SAMPLES / "order" / f"{name}.pto").read_text())
    assert {d.code for d in found if d.severity is Severity.ERROR} == wanted
    assert name != "redundant_wait_by_hand" or [d.code for d in found] == ["RedundantWait"]


M, T, STORE = "pto.memref<8x8xf32>", "tile<8x8xf32>", event("TSTORE_VEC")


def branches(count):
    lines = []
    for i in range(count):
        body = (f"%e{i} = pto.tile.store %t, %w[0, 0] : {M}, {T}, {STORE}", f"%x{i} = pto.tile.exp %t : {T}")[i % 2]
        lines += [f"scf.if %p{i} {{", body, "} else {", "}"]
    parameters = ", ".join([f"%a: {M}", f"%w: {M}", *(f"%p{i}: i1" for i in range(count))])
    load = f"%t = pto.tile.load %a[0, 0] : {M}, {T}"
    return f"func.func @f({parameters}) {{\n" + "\n".join([load, *lines]) + "\n{last}\nreturn\n}\n"


def test_many_branches_are_merged():
    source = branches(60)
    assert not check(source.replace("{last}", ""))[1].errors
    _, found = check(source.replace("{last}", f"%u = pto.tile.load %w[0, 0] : {M}, {T}"))
    assert [d.code for d in found if d.severity is Severity.ERROR] == ["MemoryHazard"] * 30


@pytest.mark.parametrize("second, code", [("%p", None), ("%q", "MemoryHazard"), ("%n", "MemoryHazard")])
def test_one_condition_twice_is_one(second, code):
    """A store under `%p`; a sync under `%p`, under another condition, or where `%p` does not hold."""
    negated = "%one = pto.constant 1 : i1\n%n = pto.xori %p, %one : i1"
    source = f"""func.func @f(%a: {M}, %w: {M}, %p: i1, %q: i1) {{
    {negated}
    %t = pto.tile.load %a[0, 0] : {M}, {T}
    scf.if %p {{
      %e = pto.tile.store %t, %w[0, 0] : {M}, {T}, {STORE}
    }} else {{
    }}
    scf.if {second} {{
      pto.sync.op #pto.op<ALL>
    }} else {{
    }}
    %u = pto.tile.load %w[0, 0] : {M}, {T}
    return
    }}"""
    assert [d.code for d in check(source)[1] if d.severity is Severity.ERROR] == ([code] if code else [])


HOLDS = {"slt": lt, "sle": le, "sgt": gt, "sge": ge, "eq": eq, "ne": ne}


@pytest.mark.parametrize("second", HOLDS)
@pytest.mark.parametrize("first", HOLDS)
@pytest.mark.parametrize("bounds", [(5, 3), (3, 5), (4, 4), (4, 5), (5, 4)])
def test_a_condition_that_follows_from_another(first, second, bounds):
    """A store where `n` is in one relation, a sync where it is in another: a hazard if some `n` has the first alone."""
    source = f"""func.func @f(%a: {M}, %w: {M}, %n: index) {{
    %c = pto.constant {bounds[0]} : index
    %d = pto.constant {bounds[1]} : index
    %p = pto.cmpi {first}, %n, %c : index
    %q = pto.cmpi {second}, %n, %d : index
    %t = pto.tile.load %a[0, 0] : {M}, {T}
    scf.if %p {{
      %e = pto.tile.store %t, %w[0, 0] : {M}, {T}, {STORE}
    }} else {{
    }}
    scf.if %q {{
      pto.sync.op #pto.op<ALL>
    }} else {{
    }}
    %u = pto.tile.load %w[0, 0] : {M}, {T}
    return
    }}"""
    alone = any(HOLDS[first](n, bounds[0]) and not HOLDS[second](n, bounds[1]) for n in range(10))
    found = [d.code for d in check(source)[1] if d.severity is Severity.ERROR]
    assert found == (["MemoryHazard"] if alone else [])


RING = """func.func @f(%a: pto.memref<8x8xf32>, %w: pto.memref<256x8xf32>, %n: index) {{
  %c0 = pto.constant 0 : index
  %c1 = pto.constant 1 : index
  %k = pto.constant {k} : index
  %c8 = pto.constant 8 : index
  %t = pto.tile.load %a[0, 0] : pto.memref<8x8xf32>, tile<8x8xf32>
  %d, %e0 = pto.tile.load %a[0, 0] : pto.memref<8x8xf32>, tile<8x8xf32>, !pto.event<producer = #pto.op<TLOAD>>
  %r = scf.for %i = %c0 to {n} step %c1 iter_args(%x = %e0) -> (!pto.event) {{
    %j = pto.addi %i, %c1 : index
    %s = pto.remsi %i, %k : index
    %s1 = pto.remsi %j, %k : index
    %row = pto.muli %s, %c8 : index
    %next = pto.muli %s1, %c8 : index
    %f = pto.tile.store %t, %w[%row, %c0] wait(%x)
        : pto.memref<256x8xf32>, tile<8x8xf32>, !pto.event<producer = #pto.op<TSTORE_VEC>>
    %u, %e = pto.tile.load %w[%next, %c0] {wait}: pto.memref<256x8xf32>, tile<8x8xf32>, !pto.event<producer = #pto.op<TLOAD>>
    {sync}
    scf.yield %e : !pto.event
  }}
  return
}}
"""


@pytest.mark.parametrize("k", range(2, 17))
@pytest.mark.parametrize("n", ["%n", "%many"])
def test_rings_of_any_size(k, n):
    """Iteration i loads the slot that iteration i - k + 1 stored: a hazard once the ring has come round, whatever its size."""

    def errors(wait, sync, trips=n):
        text = RING.format(k=k, n=trips, wait=wait, sync=sync).replace("  %k =", "  %many = pto.constant 100000 : index\n  %k =")
        found = check(text)[1]
        assert not any(d.code == "Unproved" for d in found)
        return {d.code for d in found if d.severity is Severity.ERROR}

    assert errors("", "") == {"MemoryHazard"}
    assert errors("", "pto.sync.op #pto.op<ALL>") == set()
    for trips, wanted in ((k - 1, set()), (k, {"MemoryHazard"})):  # too short to come round, and just not
        counted = RING.format(k=k, n="%few", wait="", sync="").replace("  %k =", f"  %few = pto.constant {trips} : index\n  %k =")
        assert {d.code for d in check(counted)[1] if d.severity is Severity.ERROR} == wanted


AROUND = """func.func @f(%a: pto.memref<8x8xf32>, %w: pto.memref<256x8xf32>, %n: index, %p: i1) {{
  %c0 = pto.constant 0 : index
  %c1 = pto.constant 1 : index
  %k = pto.constant {k} : index
  %c8 = pto.constant 8 : index
  %some = pto.constant {some} : index
  %t = pto.tile.load %a[0, 0] : pto.memref<8x8xf32>, tile<8x8xf32>
  %d, %e0 = pto.tile.load %a[0, 0] : pto.memref<8x8xf32>, tile<8x8xf32>, !pto.event<producer = #pto.op<TLOAD>>
  %r, %last = scf.while (%i = %c0, %x = %e0) : (index, !pto.event) -> (index, !pto.event) {{
    %more = pto.cmpi slt, %i, {n} : index
    scf.condition({condition}) %i, %x : index, !pto.event
  }} do {{
  ^bb0(%h: index, %y: !pto.event):
    %j = pto.addi %h, %c1 : index
    %s = pto.remsi %h, %k : index
    %s1 = pto.remsi %j, %k : index
    %row = pto.muli %s, %c8 : index
    %next = pto.muli %s1, %c8 : index
    %f = pto.tile.store %t, %w[%row, %c0] wait(%y)
        : pto.memref<256x8xf32>, tile<8x8xf32>, !pto.event<producer = #pto.op<TSTORE_VEC>>
    %u, %e = pto.tile.load %w[%next, %c0] {wait}: pto.memref<256x8xf32>, tile<8x8xf32>, !pto.event<producer = #pto.op<TLOAD>>
    {sync}
    scf.yield %j, %e : index, !pto.event
  }}
  return
}}
"""


@pytest.mark.parametrize("k", [2, 3, 5, 8, 16])
@pytest.mark.parametrize("condition", ["%more", "%p"])
def test_rings_in_loops_that_end_when_a_condition_says_so(k, condition):
    """As a loop that counts: to an argument, as long as an i1 says, or to a number."""

    def errors(sync, n="%n", some=0):
        text = AROUND.format(k=k, n=n, some=some, condition=condition, wait="", sync=sync)
        found = check(text)[1]
        assert not any(d.code == "Unproved" for d in found), [d.message for d in found]
        return {d.code for d in found if d.severity is Severity.ERROR}

    assert errors("") == {"MemoryHazard"}
    assert errors("pto.sync.op #pto.op<ALL>") == set()
    if condition == "%more":
        assert errors("", "%some", k - 1) == set()
        assert errors("", "%some", k) == {"MemoryHazard"}
        assert errors("", "%some", 40 * k) == {"MemoryHazard"}


def slots(k, step="%c1", rounds=None, size=2048, shift=0):
    """A ring of `k` slots in Vec, from an argument on: loaded with a wait for the store of `rounds` rounds before."""
    load, store = event("TLOAD"), event("TSTORE_VEC")
    memory, t, names = "pto.memref<4096x32xf32>", "tile<16x32xf32>", [f"%q{n}" for n in range(rounds or k)]
    types = ", ".join(["!pto.event"] * len(names))
    return f"""module attributes {{ pto.target = #pto.target<a3> }} {{
    func.func @f(%a: {memory}, %b: {memory}, %low: index, %high: index, %step: index) {{
      %c0 = pto.constant 0 : index
      %c1 = pto.constant 1 : index
      %c16 = pto.constant 16 : index
      %k = pto.constant {k} : index
      %size = pto.constant {size} : index
      %shift = pto.constant {shift} : index
      %far = pto.constant 131072 : index
      %t, %e = pto.tile.load %a[%c0, %c0] : {memory}, {t}, {load}
      pto.tile.assign %t, %far : {t}, index
      %r:{len(names)} = scf.for %i = %low to %high step {step} iter_args({", ".join(f"{n} = %e" for n in names)}) -> ({types}) {{
        %s = pto.remsi %i, %k : index
        %place = pto.muli %s, %size : index
        %address = pto.addi %place, %shift : index
        %row = pto.muli %i, %c16 : index
        %x, %f = pto.tile.load %a[%row, %c0] wait({names[-1]}) : {memory}, {t}, {load}
        pto.tile.assign %x, %address : {t}, index
        %g = pto.tile.store %x, %b[%row, %c0] wait(%f) : {memory}, {t}, {store}
        scf.yield {", ".join(["%g", *names[:-1]])} : {types}
      }}
      return
    }}
    }}"""


@pytest.mark.parametrize("k", [3, 4, 8, 16])
def test_slots_from_an_argument_on(k):
    def found(source):
        return {d.code for d in check(source)[1] if d.severity is not Severity.NOTE}

    assert found(slots(k)) == set()
    assert found(slots(k, rounds=k + 1)) == {"MemoryHazard"}
    assert found(slots(k, size=2016)) == {"MemoryHazard"}
    assert found(slots(k, shift=1)) == {"Misaligned"}
    assert found(slots(k, shift=196608 - 2048 * k + 32)) == {"OutOfBounds"}


@pytest.mark.parametrize("k, rounds, wanted", [(3, 1, set()), (3, 3, {"MemoryHazard"}), (4, 4, {"MemoryHazard"})])
def test_slots_that_an_argument_steps_over(k, rounds, wanted):
    """A step that divides the number of slots comes back to a slot sooner."""
    _, found = check(slots(k, "%step", rounds))
    assert {d.code for d in found if d.severity is not Severity.NOTE} == wanted
    kept = {"a": np.ones((4096, 32), np.float32), "b": np.ones((4096, 32), np.float32), "low": np.int64(5), "high": np.int64(60)}
    program, races = good(slots(k, "%step", rounds), Options(hazards=False)), 0
    for step in range(1, 6):
        reached = Diagnostics(program.source)
        engines.run(program, kept | {"step": np.int64(step)}, RunOptions(), reached)
        races += bool(reached.errors)
    assert bool(races) == bool(wanted)


def below(k, place, row, low="%low", begin=""):
    """A loop from an argument on. It stores row `place` of slot `i mod k`, and loads `row`."""
    memory = "pto.memref<512x8xf32>"
    return f"""func.func @f(%w: {memory}, %low: index, %high: index) {{
      %c0 = pto.constant 0 : index
      %c1 = pto.constant 1 : index
      %c8 = pto.constant 8 : index
      %k = pto.constant {k} : index
      %place = pto.constant {place} : index
      %row = pto.constant {row} : index
      {begin}
      %t = pto.tile.load %w[%c0, %c0] : {memory}, {T}
      scf.for %i = {low} to %high step %c1 {{
        %slot = pto.remsi %i, %k : index
        %s = pto.muli %slot, %c8 : index
        %at = pto.addi %s, %place : index
        %e = pto.tile.store %t, %w[%at, %c0] : {memory}, {T}, {STORE}
        %u, %f = pto.tile.load %w[%row, %c0] : {memory}, {T}, {event("TLOAD")}
      }}
      pto.sync.op #pto.op<ALL>
      return
    }}"""


@pytest.mark.parametrize("k", [2, 3, 4])
def test_a_loop_that_an_argument_lets_begin_below_0(k):
    """Slots are then counted from -k + 1 on. What is at a negative place ends the run, and meets nothing."""

    def found(*given):
        return {d.code for d in check(below(k, *given))[1] if d.severity is not Severity.NOTE}

    place = 64
    for n in range(-k - 1, k + 2):
        wanted = {"MemoryHazard"} if -k < n < k else set()
        source = below(k, place, place + 8 * n)
        assert found(place, place + 8 * n) == wanted, n
        program, races = good(source, Options(hazards=False)), 0
        for low in (-2 * k, -k, -1, 0, 1):
            given = {"w": np.ones((512, 8), np.float32), "low": np.int64(low), "high": np.int64(low + 2 * k + 1)}
            engines.run(program, given, RunOptions(), reached := Diagnostics(program.source))
            races += bool(reached.errors)
        assert bool(races) == bool(wanted)
        if n < 0:  # where it is known not to begin there
            assert found(place, place + 8 * n, "%first", "%first = pto.constant 3 : index") == set()
    assert found(0, 256) == set()


def test_what_is_not_followed_below_0_is_said():
    stepping = below(3, 64, 0).replace("step %c1", "step %step").replace("%high: index", "%high: index, %step: index")
    _, found = check(stepping)
    assert [d.code for d in found] == ["Unproved"] and "below 0" in found.items[0].message


def test_what_is_computed_twice_of_the_same_is_the_same():
    """A loop to `n mod 7`; what a round loads is of the round before, unless it is the first one."""
    source = f"""func.func @f(%a: {M}, %w: pto.memref<256x8xf32>, %n: index) {{
    %c0 = pto.constant 0 : index
    %c1 = pto.constant 1 : index
    %c7 = pto.constant 7 : index
    %t = pto.tile.load %a[0, 0] : {M}, {T}
    %end = pto.remsi %n, %c7 : index
    %last = pto.subi %end, %c1 : index
    scf.for %i = %c0 to %end step %c1 {{
      %again = pto.remsi %n, %c7 : index
      %j = pto.addi %i, %c1 : index
      %inside = pto.cmpi slt, %j, %again : index
      %e = pto.tile.store %t, %w[0, 0] : pto.memref<256x8xf32>, {T}, {STORE}
      scf.if %inside {{
        pto.sync wait(%e) : {STORE}
      }} else {{
        pto.sync.op #pto.op<ALL>
      }}
      %u = pto.tile.load %w[0, 0] : pto.memref<256x8xf32>, {T}
      %v = pto.cmpi slt, %again, %j : index
      scf.if %v {{
        %f = pto.tile.store %t, %w[8, 0] : pto.memref<256x8xf32>, {T}, {STORE}
        %x = pto.tile.load %w[8, 0] : pto.memref<256x8xf32>, {T}
      }} else {{
      }}
    }}
    return
    }}"""
    assert not [d.code for d in check(source)[1] if d.severity is Severity.ERROR]


@pytest.mark.parametrize("k, most", [(4, 3), (4, 4), (9, 8), (9, 9), (3, 80)])
def test_a_loop_ends_where_the_remainder_of_an_argument_does(k, most):
    """Rows that move at different paces keep the order open, if the loop may be long; it has at most `most` iterations."""
    text = RING.format(k=k, n="%few", wait="", sync="").replace(
        "  %k =", f"  %most = pto.constant {most + 1} : index\n  %few = pto.remsi %n, %most : index\n  %k ="
    )
    moving = text.replace("%next = pto.muli %s1, %c8", "%next = pto.muli %s, %c8").replace("[%row, %c0]", "[%place, %c0]")
    moving = moving.replace("    %row =", "    %place = pto.muli %j, %c8 : index\n    %row =")
    found = check(text)[1]
    assert {d.code for d in found if d.severity is Severity.ERROR} == ({"MemoryHazard"} if most >= k else set())
    assert not any(d.code == "Unproved" for d in (*found, *check(moving)[1]))


@pytest.mark.parametrize("space, rows, wanted", [("vec", 49152, {"CapacityExceeded"}), ("vec", 8, set()), ("gm", 49152, set())])
def test_memory_outside_gm_has_to_fit_by_itself(space, rows, wanted):
    t = f"pto.memref<{rows}x8xf32, {{space = #pto.space<{space}>}}>"
    _, found = check(
        f"module attributes {{ pto.target = #pto.target<a3> }} {{\n  func.func @f(%a: {t}) {{\n    return\n  }}\n}}\n"
    )
    assert {d.code for d in found if d.severity is Severity.ERROR} == wanted
