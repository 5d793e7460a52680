"""Order of asynchronous ops: what is refused, what may be, what is fine."""

import numpy as np
import pytest

from ptir_tools.core.dialect import Options
from ptir_tools.dialects.pto.order import decisions
from ptir_tools.engines import RunOptions, run
from tests.pto.programs import SAMPLES, check, codes, event, good, module

M, T = "pto.memref<64x32xf32>", "tile<32x32xf32>"
LOAD, STORE, ADD = event("TLOAD"), event("TSTORE_VEC"), event("TADD")


def load(name, memory="%a", at="%c0", wait="", signal=True):
    event_name, event_type = (f", %e_{name}", f", {LOAD}") if signal else ("", "")
    wait = f" wait({wait})" if wait else ""
    return f"%{name}{event_name} = pto.tile.load {memory}[{at}, %c0]{wait} : {M}, {T}{event_type}"


def store(name, tile, memory="%out", at="%c0", wait="", signal=True):
    head, event_type = (f"%{name} = ", f", {STORE}") if signal else ("", "")
    wait = f" wait({wait})" if wait else ""
    return f"{head}pto.tile.store {tile}, {memory}[{at}, %c0]{wait} : {M}, {T}{event_type}"


def add(name, a, b, wait="", signal=True):
    event_name, event_type = (f", %e_{name}", f", {ADD}") if signal else ("", "")
    wait = f" wait({wait})" if wait else ""
    return f"%{name}{event_name} = pto.tile.add {a}, {b}{wait} : {T}{event_type}"


def sync(*events):
    return f"pto.sync wait({', '.join(events)})"


def found(*lines, parameters=f"%a: {M}, %b: {M}, %out: {M}, %n: index, %k: index, %p: i1"):
    return codes(module(parameters, "%c32 = pto.constant 32 : index", "%c1 = pto.constant 1 : index", *lines))


def test_the_samples():
    assert set(codes((SAMPLES / "08_async_pipeline.pto").read_text())) <= {"RedundantWait"}  # loads are one pipe
    assert codes((SAMPLES / "26_bad_missing_wait.pto").read_text()) == ["UnwaitedEvent", "MissingWait"]
    assert codes((SAMPLES / "26_bad_missing_wait.pto").read_text(), Options(hazards=False)) == []


def test_every_use_of_an_asynchronous_result_needs_its_wait():
    assert found(load("t"), add("u", "%t", "%t", "%e_t"), sync("%e_u")) == []
    assert found(load("t"), add("u", "%t", "%t"), sync("%e_u", "%e_t")) == ["MissingWait"]


def test_synchronous_ops_need_the_wait_too():
    assert found(load("t"), add("u", "%t", "%t", signal=False), sync("%e_t")) == ["MissingWait"]
    assert found(load("t"), add("u", "%t", "%t", "%e_t", signal=False)) == []


def test_waits_are_transitive():
    lines = load("t"), add("u", "%t", "%t", "%e_t"), store("f", "%u", wait="%e_u"), load("v", "%b", wait="%f"), sync("%e_v")
    assert found(*lines) == []
    assert found(*lines[:-1], store("g", "%t", "%b", "%c32"), sync("%e_v", "%g")) == []


def test_one_pipe_is_in_order():
    assert found(load("t"), load("s"), add("u", "%t", "%s", "%e_s"), sync("%e_u")) == []
    assert found(load("t"), add("u", "%t", "%t", "%e_t"), add("v", "%u", "%u"), sync("%e_v")) == []


def test_a_synchronous_op_completes_its_pipe():
    assert found(load("t"), load("s", signal=False), add("u", "%t", "%s"), sync("%e_u", "%e_t")) == ["RedundantWait"]


def test_sync_completes_before_what_follows():
    assert found(load("t"), sync("%e_t"), add("u", "%t", "%t"), sync("%e_u")) == []
    assert found(load("t"), "pto.sync.op #pto.op<TLOAD>", add("u", "%t", "%t"), sync("%e_u", "%e_t")) == ["RedundantWait"]
    assert found(load("t"), "pto.sync.op #pto.op<TADD>", add("u", "%t", "%t"), sync("%e_u", "%e_t")) == ["MissingWait"]


READ = load("t", signal=False)


@pytest.mark.parametrize(
    "lines, code",
    [
        ((READ, store("f", "%t"), load("u", "%out", signal=False), sync("%f")), "MemoryHazard"),  # RAW
        ((load("u", "%out"), READ, store("f", "%t"), sync("%f", "%e_u")), None),  # ordered by the load between
        ((READ, load("u", "%out"), store("f", "%t"), sync("%f", "%e_u")), "MemoryHazard"),  # WAR
        ((READ, load("u", "%out"), store("f", "%t", wait="%e_u"), sync("%f")), None),
        ((READ, store("f", "%t"), load("u", "%out", wait="%f", signal=False)), None),
        ((READ, store("f", "%t"), load("u", "%out", "%c32", signal=False), sync("%f")), None),  # another half
        ((READ, store("f", "%t"), load("u", "%b", signal=False), sync("%f")), None),  # another argument
        ((READ, store("f", "%t"), store("g", "%t"), sync("%f", "%g")), None),  # one pipe
        ((READ, store("f", "%t", at="%n"), load("u", "%out", "%n", signal=False), sync("%f")), "MemoryHazard"),
        ((READ, store("f", "%t", at="%n"), load("u", "%out", "%k", signal=False), sync("%f")), "MemoryHazard"),
    ],
)
def test_memory(lines, code):
    assert [c for c in found(*lines) if c != "RedundantWait"] == ([code] if code else [])


def test_what_may_overlap_is_a_warning():
    source = module(
        f"%a: {M}, %out: {M}, %n: index, %k: index",
        READ,
        store("f", "%t", at="%n"),
        load("u", "%out", "%k", signal=False),
        sync("%f"),
    )
    _, diagnostics = check(source)
    assert [(d.severity, d.code) for d in diagnostics] == [("warning", "MemoryHazard")]


def test_writes_of_two_pipes_are_ordered_too():
    acc = "tile<32x32xf32, #pto.tile_info<loc=Acc>>"
    lines = (
        READ,
        store("f", "%t"),
        f"%g = pto.tile.store %c, %out[%c0, %c0] : {M}, {acc}, {event('TSTORE_ACC')}",
        sync("%f", "%g"),
    )
    assert found(*lines, parameters=f"%a: {M}, %out: {M}, %c: {acc}") == ["MemoryHazard"]


def test_views_go_back_to_their_memory():
    view = "pto.memref<32x32xf32, strided<[32, 1], offset: ?>>"
    views = [f"%v{i} = pto.memref.subview %out[%c{at}, %c0] [32, 32] [1, 1] : {M} to {view}" for i, at in enumerate((0, 32))]
    first = f"%f = pto.tile.store %t, %v0[%c0, %c0] : {view}, {T}, {STORE}"
    for target, code in (("%v0", ["MemoryHazard"]), ("%v1", [])):
        second = f"%u = pto.tile.load {target}[%c0, %c0] : {view}, {T}"
        assert found(READ, *views, first, second, sync("%f")) == code


def test_events_without_use():
    assert found(load("t")) == ["UnwaitedEvent"]
    assert found(load("t"), sync("%e_t"), sync("%e_t")) == ["RedundantWait"]


def pipeline(carried_wait):
    """A loop that loads the next tile while it works on the last one, carried with its event."""
    return (
        load("t"),
        f"%r, %e_r = scf.for %i = %c1 to %n step %c1 iter_args(%x = %t, %e = %e_t) -> ({T}, {LOAD}) {{",
        "  " + load("y", "%b"),
        "  " + add("u", "%x", "%x", carried_wait, signal=False),
        f"  scf.yield %y, %e_y : {T}, {LOAD}",
        "}",
        add("v", "%r", "%r", "%e_r", signal=False),
    )


def test_events_are_carried_with_their_tiles():
    assert found(*pipeline("%e")) == []
    assert "MissingWait" in found(*pipeline(""))


def test_what_follows_a_loop_may_run_without_it():
    lines = (
        load("t"),
        "scf.for %i = %c0 to %n step %c1 {",
        "  " + sync("%e_t"),
        "}",
        add("u", "%t", "%t", signal=False),
    )
    assert found(*lines) == ["MissingWait"]
    assert found(*(line.replace("%n", "%c1") for line in lines)) == []


def test_both_branches_must_wait():
    lines = (load("t"), "scf.if %p {", "  " + sync("%e_t"), "} else {", "}", add("u", "%t", "%t", signal=False))
    assert found(*lines) == ["MissingWait"]
    assert found(*lines[:4], "  " + sync("%e_t"), *lines[4:]) == []


def test_iterations_overlap_each_other():
    body = ("  " + load("t", "%out", at="{}", signal=False), "  " + store("f", "%t", at="%i"))
    for at, step, code in (("%i", "%c32", None), ("%c0", "%c32", "MemoryHazard")):
        lines = ("scf.for %i = %c0 to %n step " + step + " {", body[0].format(at), body[1], "}")
        got = found(*lines)
        assert ("MemoryHazard" in got) == (code is not None), (at, got)


def test_calls_are_followed():
    source = f"""
    func.func @work(%m: {M}, %t: {T}) -> {STORE} {{
      %c0 = pto.constant 0 : index
      {store("f", "%t", "%m")}
      return %f : {STORE}
    }}
    func.func @main(%a: {M}, %out: {M}) {{
      %c0 = pto.constant 0 : index
      {READ}
      %f = func.call @work(%out, %t) : ({M}, {T}) -> {STORE}
      {load("u", "%out", signal=False)}
      {sync("%f")}
      return
    }}"""
    assert codes(source) == ["MemoryHazard"]
    assert codes(source.replace("load %out[%c0, %c0]", "load %out[%c0, %c0] wait(%f)")) == ["RedundantWait"]


ACC = "tile<32x32xf32, #pto.tile_info<loc=Acc>>"


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ((READ, store("f", "%t"), load("u", "%out", signal=False), sync("%f")), "RAW"),
        ((READ, load("u", "%out"), store("f", "%t"), sync("%f", "%e_u")), "WAR"),
        ((READ, store("f", "%t"), f"%g = pto.tile.store %c, %out[%c0, %c0] : {M}, {ACC}, {event('TSTORE_ACC')}",
          sync("%f", "%g")), "WAW"),
    ],
)  # fmt: skip
def test_the_kind_of_a_hazard_is_told(lines, kind):
    parameters = f"%a: {M}, %b: {M}, %out: {M}, %n: index, %k: index, %p: i1, %c: {ACC}"
    said = check(module(parameters, "%c32 = pto.constant 32 : index", *lines))[1]
    (message,) = [d.message for d in said if d.code == "MemoryHazard"]
    assert [word for word in ("RAW", "WAR", "WAW") if word in message] == [kind]


def test_an_address_that_a_call_gives_is_not_known_before_the_call():
    """The run goes on: the call is done once, where it is."""
    source = f"""module {{
  func.func @at() -> index {{
    %c = pto.constant 4096 : index
    return %c : index
  }}
  func.func @main(%a: {M}) {{
    %c0 = pto.constant 0 : index
    {load("t", signal=False)}
    %n = func.call @at() : () -> index
    pto.tile.assign %t, %n : {T}, index
    pto.tile.store %t, %a[32, %c0] : {M}, {T}
    return
  }}
}}
"""
    program = good(source)
    x = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)
    (found,) = run(program, {"a": x}, RunOptions(engine="reference")).values()
    np.testing.assert_array_equal(found, np.tile(x[:32], (2, 1)))


@pytest.mark.parametrize(
    ("at", "wanted"),
    [
        (0, ""), (4096, ""), (192 * 1024 - 4096, ""), (4100, "Misaligned"), (4127, "Misaligned"), (-32, "OutOfBounds"),
        (192 * 1024 - 4064, "OutOfBounds"), (1 << 30, "OutOfBounds"),
    ],
)  # fmt: skip
def test_an_address_that_is_computed_is_one_of_the_space(at: int, wanted: str) -> None:
    """0 in the first step of a loop, and another one in the second."""
    constants = [f"%{name} = pto.constant {n} : index" for name, n in (("c1", 1), ("c2", 2), ("k", at))]
    inside = ["%at = pto.muli %i, %k : index", load("t", signal=False), f"pto.tile.assign %t, %at : {T}, index"]
    lines = [*constants, "scf.for %i = %c0 to %c2 step %c1 {", *inside, store("s", "%t", signal=False), "}"]
    assert codes(module(f"%a: {M}, %out: {M}", *lines), Options(target="a3")) == [wanted] * bool(wanted)


@pytest.mark.parametrize(("at", "wanted"), [(0, ["TileOverwritten"]), (2048, ["TileOverwritten"]), (4096, [])])
def test_an_argument_that_is_bound_has_its_bytes(at: int, wanted: list[str]) -> None:
    source = f"""module attributes {{ pto.target = #pto.target<a3> }} {{
  func.func @g(%t: {T}, %out: {M}) {{
    %c0 = pto.constant 0 : index
    %k = pto.constant {at} : index
    pto.tile.assign %t, %c0 : {T}, index
    %u = pto.tile.load %out[0, 0] : {M}, {T}
    pto.tile.assign %u, %k : {T}, index
    pto.tile.store %t, %out[32, 0] : {M}, {T}
    return
  }}
}}
"""
    assert codes(source) == wanted


def test_questions_about_pairs_of_diagrams_are_bounded(monkeypatch):
    """There may be as many as one diagram has nodes, times those of the other."""
    monkeypatch.setattr(decisions, "MAX_ANSWERS", 110)
    d = decisions.Decisions()
    flags = [d.fresh() for _ in range(24)]
    x, when = 0, decisions.NEVER
    for k, flag in enumerate(flags):
        x = d.either(flag, k + 1, x) if k % 2 else x
        when = when if k % 2 else d.either(flag, d.negated(when), when)
    assert d.least(x, when) == 0 < d.least(x, d.both(flags[-1], when))
    with pytest.raises(decisions.TooManyConditions):
        for flag in flags:
            d.least(x, d.both(flag, when))


def test_a_loop_that_may_not_run_waits_for_nobody():
    """A wait in a loop of no iterations orders nothing behind the loop (PTOAS, issue 533)."""
    m, t = "pto.memref<16x64xf32>", "tile<16x64xf32>"
    lines = [
        f"%t, %e = pto.tile.load %x[0, 0] : {m}, {t}, {event('TLOAD')}",
        "scf.for %i = %c0 to %n step 1 {",
        f"  %u, %g = pto.tile.add %t, %t wait(%e) : {t}, {event('TADD')}",
        f"  pto.sync wait(%g) : {event('TADD')}",
        "}",
        f"pto.tile.store %t, %o[0, 0] : {m}, {t}",
    ]
    source = module(f"%x: {m}, %o: {m}, %n: index", *lines)
    assert codes(source) == ["MissingWait"]
    assert codes(source.replace("to %n", "to 3")) == []
