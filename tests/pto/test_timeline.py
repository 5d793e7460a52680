"""The timeline of a run: start and end of ops, bytes, stalls and the critical path, held to numbers worked out by hand."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.source import Source
from ptir_tools.dialects.pto.run.timeline import EVENT, OVER, PIPE, SYNCHRONOUS, Timeline
from ptir_tools.dialects.pto.targets import A3, A5
from ptir_tools.dialects.pto.text import format as text
from ptir_tools.tools.inputs import Inputs
from tests.conftest import run_ptir
from tests.pto.programs import KERNELS, SAMPLES, event, module, pattern, printed, run

M, T = "pto.memref<64x32xf32>", "tile<32x32xf32>"
LOAD, STORE = 1 + 69, 1 + 37  # the start of MTE2 and MTE3, and 4 KiB at 100.9 and 188.46 GiB/s with 1.85 GHz
ADD = 10 + 2 * 4096 // 256


def timed(source, **options):
    timeline = Timeline()
    program = source if not isinstance(source, str) else text.read(Source("t.pto", source), Diagnostics(), Options())
    run(program, pattern(program), timeline=timeline, **options)
    return timeline


def loads(count, awaited):
    """Loads, each followed by an op of V that waits for it, or that is synchronous."""
    lines = []
    for k in range(count):
        name = f"%t{k}, %e{k}" if awaited else f"%t{k}"
        lines.append(f"{name} = pto.tile.load %a[{k}, 0] : {M}, {T}" + (f", {event('TLOAD')}" if awaited else ""))
    for k in range(count):
        wait = f" wait(%e{k})" if awaited else ""
        lines.append(f"%u{k}, %f{k} = pto.tile.add %t{k}, %t{k}{wait} : {T}, {event('TADD')}")
        lines.append(f"pto.tile.store %u{k}, %out[{k}, 0] wait(%f{k}) : {M}, {T}")
    return module(f"%a: {M}, %out: {M}", *lines, target="a3")


def test_asynchronous_ops_overlap_as_their_events_let_them():
    made = timed(loads(2, awaited=True))
    ends = [(s.name, s.start, s.end, s.why) for s in made.spans]
    assert ends == [
        ("load", 0, LOAD, ""),
        ("load", LOAD, 2 * LOAD, PIPE),
        ("add", LOAD, LOAD + ADD, EVENT),
        ("store", LOAD + ADD, LOAD + ADD + STORE, EVENT),
        ("add", LOAD + ADD + STORE, LOAD + 2 * ADD + STORE, SYNCHRONOUS),  # the store before has no event
        ("store", LOAD + 2 * ADD + STORE, LOAD + 2 * ADD + 2 * STORE, EVENT),
    ]
    assert made.makespan == LOAD + 2 * ADD + 2 * STORE


def test_synchronous_ops_follow_each_other():
    made = timed(loads(2, awaited=False))
    assert [s.start for s in made.spans[:2]] == [0, LOAD] and made.spans[2].start == 2 * LOAD


def test_a_wait_of_the_scalar_unit_and_a_barrier_hold_up_what_follows():
    first = f"%t, %e = pto.tile.load %a[0, 0] : {M}, {T}, {event('TLOAD')}"
    second = f"%u, %f = pto.tile.expands %one : f32, {T}, {event('TEXPANDS')}"
    for line in ("", f"pto.sync wait(%e) : {event('TLOAD')}", "pto.sync.op #pto.op<TLOAD>", "pto.sync.op #pto.op<TADD>"):
        made = timed(module(f"%a: {M}", "%one = pto.constant 1.0 : f32", first, line, second, target="a3"))
        assert made.spans[1].start == (LOAD if "TLOAD" in line else 0), line
        assert len(made.syncs) == (line.startswith("pto.sync wait"))


def test_bytes_are_those_of_valid_regions():
    lines = [
        f"%t = pto.tile.load %a[0, 0] {{valid = [3, 5]}} : {M}, {T}",
        f"%u = pto.tile.add %t, %t : {T}",
        f"pto.tile.store %u, %out[0, 0] {{valid = [2, 5]}} : {M}, {T}",
    ]
    made = timed(module(f"%a: {M}, %out: {M}", *lines)).moved
    assert (made["gm"].read, made["gm"].written) == (3 * 5 * 4, 2 * 5 * 4)
    assert (made["Vec"].read, made["Vec"].written) == ((2 * 15 + 10) * 4, 2 * 15 * 4)


def test_products_count_whole_boxes():
    made = timed((SAMPLES / "03_matmul_moves_a3.pto").read_text())
    (span,) = [s for s in made.spans if s.pipe == "M"]
    left, right = (v.type for v in span.op.operands[:2])
    (m, k), n = left.shape, right.shape[1]
    size = left.dtype.size
    work = -(-m // 16) * 16 * -(-n // 16) * 16 * -(-k * size // 32) * 32 // size
    assert span.end - span.start == A3.costs.start["M"] + -(-work // A3.costs.products[size])


KERNEL_FILES = sorted([*KERNELS.glob("flash*.pto"), *KERNELS.glob("dbmm*.pto"), SAMPLES / "08_async_pipeline.pto"])


@pytest.mark.parametrize("path", KERNEL_FILES, ids=lambda p: p.stem)
def test_the_sums_hold_on_kernels(path):
    program = text.read(Source(path.name, path.read_text()), Diagnostics(), Options())
    timeline = Timeline()
    run(program, Inputs((), (), 0).arrays(program), timeline=timeline)
    whole = timeline.makespan
    assert whole and timeline.target is (A5 if "a5" in path.stem else A3)
    for pipe, busy in timeline.busy().items():
        assert busy + sum(s.cycles for s in timeline.stalls() if s.pipe == pipe) == whole
    path_ = timeline.critical_path()
    assert path_[0].start == 0 and path_[-1].end == whole
    assert all(a.end == b.start and (a is b.cause) for a, b in pairwise(path_))
    assert any(s.cause == OVER for s in timeline.stalls())
    last: dict[str, int] = {}
    ends: dict[int, int] = {}
    for s in timeline.spans:  # an op starts as soon as it may, and no sooner
        ready = max([last.get(s.pipe, 0), *(ends[id(w)] for w in s.waits)], default=0)
        assert s.start >= ready and (s.why == SYNCHRONOUS or s.start == ready)
        last[s.pipe] = ends[id(s)] = s.end


@pytest.mark.parametrize("order", ["sequential", "adversarial", "random"])
def test_the_order_of_completion_changes_no_time(order):
    source = (SAMPLES / "08_async_pipeline.pto").read_text()
    assert timed(source, order=order).makespan == timed(source).makespan


def test_a_timeline_begins_anew_with_every_run():
    timeline = Timeline()
    program = text.read(Source("t.pto", loads(1, awaited=True)), Diagnostics(), Options())
    for _ in range(2):
        run(program, pattern(program), timeline=timeline)
    assert len(timeline.spans) == 3 and timeline.moved["gm"].read == 4096


def test_every_event_that_is_waited_for_is_an_arrow_between_lanes(tmp_path):
    made = tmp_path / "t.json"
    ran = run_ptir(
        "run", str(SAMPLES / "08_async_pipeline.pto"), "--random", "0", "--trace", str(made), "-o", str(tmp_path / "o.npz")
    )
    assert ran.status == 0
    events = json.loads(made.read_text())["traceEvents"]
    lanes = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    spans = [e for e in events if e["ph"] == "X"]
    assert set(lanes.values()) == {"S", "V", "MTE2", "MTE3"} and len(spans) == 9
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    arrows = sorted((lanes[starts[k]["tid"]], lanes[ends[k]["tid"]]) for k in starts)
    assert starts.keys() == ends.keys()
    assert arrows == [("MTE2", "V")] * 4 + [("MTE3", "MTE2")] * 2 + [("MTE3", "S")] + [("V", "MTE3")] * 2
    for end in (*starts.values(), *ends.values()):  # each end lies within a span of its lane, else no viewer draws it
        assert any(s["tid"] == end["tid"] and s["ts"] <= end["ts"] < s["ts"] + s["dur"] for s in spans)


def test_other_programs_have_no_pipes():
    ran = run_ptir("run", "testdata/run/add.ptir", "--random", "0", "--report")
    assert ran.status == 2 and "--report is for programs with pipes" in ran.err


def test_the_graph_shows_tiles_pipes_and_waits():
    program = text.read(Source("t.pto", loads(1, awaited=True)), Diagnostics(), Options())
    drawn = run_ptir("graph", "-", stdin=printed(program).encode()).text
    assert "tile.load [MTE2]" in drawn and "%t0: tile<32x32xf32>" in drawn and "tile.add [V]" in drawn
    assert drawn.count("style=dashed") == 2 and 'label="%e0"' in drawn
