"""Tiles at addresses: what the pass writes, and the order that shared memory asks for."""

import re

import numpy as np
import pytest
from pto_programs import SAMPLES, check, codes, event, good, module, pattern, printed, run

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.passes import PassContext, run_pipeline

M, T = "pto.memref<64x32xf32>", "tile<32x32xf32>"
LOAD, EXP, STORE = event("TLOAD"), event("TEXP"), event("TSTORE_VEC")
PIPELINE = "pto-bufferize,pto-canonicalize,pto-insert-events"


def bufferized(source, pipeline="pto-bufferize"):
    """The program after the passes, and what they say."""
    program = good(source)
    context = PassContext(diagnostics=Diagnostics(program.source))
    run_pipeline(program, pipeline, context)
    return program, context.diagnostics


def addresses(program):
    text = printed(program)
    constants = dict(re.findall(r"%(\w+) = pto\.constant (\d+) : index", text))
    return {name: int(constants[at]) for name, at in re.findall(r"pto\.tile\.assign %(\w+), %(\w+) ", text)}


def test_tiles_lie_where_the_plan_puts_them():
    program, found = bufferized((SAMPLES / "16_ub_exact_fit_a3.pto").read_text())
    assert not found.items
    assert addresses(program) == {"x": 0, "y": 65536, "z": 131072, "s": 0, "w": 0}
    assert codes(printed(program)) == []
    again, _ = bufferized(printed(program))
    assert printed(again) == printed(program)


@pytest.mark.parametrize("name", ["01_vector_add_subview", "04_matmul_bias_a3", "12_elementwise_chain", "16_ub_exact_fit_a3"])
def test_events_behind_it_keep_tiles_apart(name):
    source = (SAMPLES / f"{name}.pto").read_text()
    program, found = bufferized(source, PIPELINE)
    assert not found.items
    text = printed(program)
    assert "assign" in text and "!pto.event" in text
    assert not check(text)[1].items
    inputs = pattern(program, {"bi": 2, "bj": 3})
    want = run(good(source), inputs)
    for order in ("sequential", "adversarial", "random"):
        for key, value in run(program, inputs, order=order).items():
            np.testing.assert_array_equal(value, want[key])


TWICE = (
    f"%t, %e = pto.tile.load %a[0, 0] : {M}, {T}, {LOAD}",
    f"%u, %f = pto.tile.exp %t wait(%e) : {T}, {EXP}",
    f"%g = pto.tile.store %u, %out[0, 0] wait(%f) : {M}, {T}, {STORE}",
    f"%v, %h = pto.tile.load %a[32, 0] : {M}, {T}, {LOAD}",
    f"%w = pto.tile.exp %v wait(%h) : {T}",
    f"pto.tile.store %w, %out[32, 0] wait(%g) : {M}, {T}",
)
ARGUMENTS = f"%a: {M}, %out: {M}"


def test_asynchronous_ops_do_not_meet_in_memory():
    program, found = bufferized(module(ARGUMENTS, *TWICE))
    assert {d.code for d in found} == {"MemoryHazard"} and "assign" not in printed(program)
    ordered = [line.replace("%a[32, 0]", "%a[32, 0] wait(%g)") for line in TWICE]
    program, found = bufferized(module(ARGUMENTS, *ordered))
    assert not found.errors and set(addresses(program).values()) == {0}


@pytest.mark.parametrize("second, kinds", [(0, ["WAR"]), (4092, ["WAR"]), (4096, [])])
def test_verify_knows_the_addresses_written_by_hand(second, kinds):
    lines = (
        *TWICE[:2],
        "%k = pto.constant 0 : index",
        f"pto.tile.assign %t, %k : {T}, index",
        f"%v, %h = pto.tile.load %a[32, 0] : {M}, {T}, {LOAD}",
        f"%l = pto.constant {second} : index",
        f"pto.tile.assign %v, %l : {T}, index",
        f"pto.sync wait(%f, %h) : {EXP}, {LOAD}",
    )
    _, found = check(module(ARGUMENTS, *lines))
    told = [d.message.partition(":")[0] for d in found if d.code == "MemoryHazard"]
    assert told == kinds  # the two loads are in order, in one pipe


LOOP = (
    "%c1 = pto.constant 1 : index",
    f"%t = pto.tile.load %a[0, 0] : {M}, {T}",
    f"%s = pto.tile.load %a[32, 0] : {M}, {T}",
)


def loop(*body, gives):
    return module(
        f"{ARGUMENTS}, %n: index",
        *LOOP,
        f"%r, %q = scf.for %i = %c0 to %n step %c1 iter_args(%x = %t, %y = %s) -> ({T}, {T}) {{",
        *body,
        f"  scf.yield {gives} : {T}, {T}",
        "}",
        f"%o = pto.tile.add %r, %q : {T}",
        f"pto.tile.store %o, %out[0, 0] : {M}, {T}",
    )


def test_what_a_loop_carries_lies_in_one_place():
    program, found = bufferized(loop(f"  %z = pto.tile.add %x, %y : {T}", gives="%z, %y"))
    assert not found.items
    at = addresses(program)
    assert at["t"] == at["x"] == at["z"] == at["r"] and at["s"] == at["y"] == at["q"] != at["t"]
    program, found = bufferized(loop(gives="%y, %x"))
    assert {d.code for d in found} == {"TileMoved"} and not addresses(program)


def test_a_loop_loads_ahead_with_a_copy():
    """What is loaded for the next step lies elsewhere than what this step still needs; a copy brings it there."""
    ahead = f"  %z = pto.tile.load %a[32, 0] : {M}, {T}"
    use = f"  pto.tile.store %x, %out[32, 0] : {M}, {T}"
    _, found = bufferized(loop(ahead, use, gives="%z, %y"))
    assert [d.message.partition(" lies")[0] for d in found] == ["%z"]
    source = loop(ahead, use, f"  %c = pto.tile.mov.v2v %z : {T} -> {T}", gives="%c, %y")
    program, found = bufferized(source, PIPELINE)
    assert not found.items
    inputs = pattern(program, {"n": 3})
    for order in ("sequential", "adversarial"):
        assert np.array_equal(run(program, inputs, order=order)["out"], run(source, inputs)["out"])


def test_tiles_that_do_not_fit_are_told():
    source = (SAMPLES / "25_bad_ub_overflow_a3.pto").read_text()
    program, _ = check(source)
    context = PassContext(diagnostics=Diagnostics(program.source), verify_each=False)
    run_pipeline(program, "pto-bufferize", context)
    assert [d.code for d in context.diagnostics] == ["CapacityExceeded"] and not addresses(program)
