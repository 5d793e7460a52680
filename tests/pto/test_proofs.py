"""Kernels as people write them, on both targets, each broken in the known ways: every break is caught by verify or by a run."""

import re

import numpy as np
import pytest

from ptir_tools import engines
from ptir_tools.core.diagnostics import Diagnostics, Rejected, Severity
from ptir_tools.core.dialect import Options
from ptir_tools.dialects.pto.targets import TARGETS
from ptir_tools.engines.options import ORDERS, RunOptions
from ptir_tools.passes import PassContext, run_pipeline
from ptir_tools.tools.inputs import Inputs
from tests.pto.programs import KERNELS, check, good, module, printed

ROW, COLUMN, SIZE = "tile<32x64xf32>", "tile<32x1xf32>", "pto.memref<64x64xf32>"
LOOP = ("%c1 = pto.constant 1 : index", "%c2 = pto.constant 2 : index", "%c32 = pto.constant 32 : index")


def rows(parameters, *body, start=()):
    """A loop over blocks of 32 rows, of which `%x` is loaded."""
    return (
        parameters,
        *LOOP,
        *start,
        "scf.for %i = %c0 to %c2 step %c1 {",
        "  %r = pto.muli %i, %c32 : index",
        f"  %x = pto.tile.load %a[%r, 0] : {SIZE}, {ROW}",
        *body,
        f"  pto.tile.store %y, %out[%r, 0] : {SIZE}, {ROW}",
        "}",
    )


BOTH = f"%a: {SIZE}, %out: {SIZE}"
SOFTMAX = rows(
    BOTH,
    f"  %m = pto.tile.rowmax %x : {ROW} -> {COLUMN}",
    f"  %d = pto.tile.rowexpandsub %x, %m : {ROW}, {COLUMN} -> {ROW}",
    f"  %e = pto.tile.exp %d : {ROW}",
    f"  %s = pto.tile.rowsum %e : {ROW} -> {COLUMN}",
    f"  %y = pto.tile.rowexpanddiv %e, %s : {ROW}, {COLUMN} -> {ROW}",
)
NORM = rows(
    f"{BOTH}, %g: pto.memref<1x64xf32>",
    f"  %s = pto.tile.rowsum %x : {ROW} -> {COLUMN}",
    f"  %mean = pto.tile.muls %s, %part : {COLUMN}, f32",
    f"  %d = pto.tile.rowexpandsub %x, %mean : {ROW}, {COLUMN} -> {ROW}",
    f"  %q = pto.tile.mul %d, %d : {ROW}",
    f"  %v = pto.tile.rowsum %q : {ROW} -> {COLUMN}",
    f"  %w = pto.tile.muls %v, %part : {COLUMN}, f32",
    f"  %k = pto.tile.adds %w, %eps : {COLUMN}, f32",
    f"  %z = pto.tile.rsqrt %k : {COLUMN}",
    f"  %n = pto.tile.rowexpandmul %d, %z : {ROW}, {COLUMN} -> {ROW}",
    "  %h = pto.tile.load %g[0, 0] : pto.memref<1x64xf32>, tile<1x64xf32>",
    f"  %y = pto.tile.colexpandmul %n, %h : {ROW}, tile<1x64xf32> -> {ROW}",
    start=("%part = pto.constant 0.015625 : f32", "%eps = pto.constant 0.001 : f32"),
)
GATHER = rows(
    f"{BOTH}, %at: pto.memref<64x64xi32>",
    "  %k = pto.tile.load %at[%r, 0] : pto.memref<64x64xi32>, tile<32x64xi32>",
    f"  %y = pto.tile.gather %x, %k : {ROW}, tile<32x64xi32> -> {ROW}",
)
MIXED = (
    f"{BOTH}, %n: index",
    "%two = pto.constant 2.0 : f32",
    f"%t = pto.tile.load %a[0, 0] {{valid = [%n, 48]}} : {SIZE}, {ROW}",
    f"%u = pto.tile.load %a[32, 0] {{valid = [32, 64]}} : {SIZE}, {ROW}",
    f"%p = pto.tile.partadd %t, %u : {ROW} -> {ROW}",
    f"%v = pto.tile.add %t, %u : {ROW}",
    f"%w = pto.tile.muls %v, %two : {ROW}, f32",
    f"pto.tile.store %p, %out[32, 0] : {SIZE}, {ROW}",
    f"pto.tile.store %w, %out[0, 0] {{valid = [%n, 48]}} : {SIZE}, {ROW}",
)
HAND = {"softmax": SOFTMAX, "layer norm": NORM, "gather": GATHER, "mixed valid regions": MIXED}
CASES = [(name, target) for name in HAND for target in TARGETS] + [
    ("dbmm_a3", "a3"),
    ("dbmm_a5", "a5"),
    ("flash_a3", "a3"),
    ("flash_a3", "a5"),
]


def kernel(name, target):
    """The text of a kernel with addresses, events and ids."""
    source = module(*HAND[name], target=target) if name in HAND else (KERNELS / f"{name}.pto").read_text()
    program = good(source)
    run_pipeline(program, f"pto{{target={target}}}", PassContext(diagnostics=Diagnostics()))
    return printed(program)


def given(program):
    scalars = (("n", "20"),) if any(p.name == "n" for p in program.main.params) else ()
    arrays = Inputs(scalars, (), 3).arrays(program)
    if "at" in arrays:
        arrays["at"] = np.random.default_rng(3).integers(0, 2048, arrays["at"].shape).astype(np.int32)
    return arrays


def caught(text, before=frozenset()):
    """What verify says of a text beyond `before`, else what runs under all orders say: `verify …` or `run …`, or None."""
    found = check(text)[1]
    said = {d.code for d in found if d.severity in (Severity.ERROR, Severity.WARNING)} - before
    if said:
        return f"verify {'+'.join(sorted(said))}"
    made = good(text, Options(hazards=False))
    for order in ORDERS:
        diagnostics = Diagnostics(made.source)
        try:
            engines.run(made, given(made), RunOptions(order=order), diagnostics)
        except Rejected:
            pass
        if diagnostics.errors:
            return f"run {diagnostics.items[0].code}"
    return None


@pytest.mark.parametrize("name, target", CASES)
def test_the_kernels_are_right(name, target):
    text = kernel(name, target)
    assert caught(text, {"UnwaitedEvent"}) is None
    program = good(text)
    arrays = given(program)
    made = engines.run(program, arrays, RunOptions(order="adversarial"))
    x = arrays.get("a")
    if name == "softmax":
        e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
        np.testing.assert_allclose(made["out"], e / e.sum(1, keepdims=True), rtol=1e-5)
    if name == "layer norm":
        d = x.astype(np.float64) - x.mean(1, keepdims=True, dtype=np.float64)
        want = d / np.sqrt((d * d).mean(1, keepdims=True) + 0.001) * arrays["g"]
        np.testing.assert_allclose(made["out"], want, rtol=1e-4, atol=1e-5)
    if name == "gather":
        want = [x[32 * k : 32 * k + 32].ravel()[arrays["at"][32 * k : 32 * k + 32]] for k in (0, 1)]
        np.testing.assert_array_equal(made["out"], np.concatenate(want))
    if name == "mixed valid regions":
        want = x[32:].copy()
        want[:20, :48] += x[:20, :48]
        np.testing.assert_array_equal(made["out"][32:], want)
        np.testing.assert_array_equal(made["out"][:20, :48], 2 * (x[:20, :48] + x[32:52, :48]))
        np.testing.assert_array_equal(made["out"][20:32], arrays["out"][20:32])


def without_a_wait(text):
    for m in re.finditer(r"wait\(([^)]*)\)", text):
        events = m[1].split(", ")
        for k in range(len(events)):
            rest = ", ".join(events[:k] + events[k + 1 :])
            line = text[text.rindex("\n", 0, m.start()) : text.index("\n", m.end())]
            if rest and "pto.sync" in line:
                head, types = line.split(" : ")
                kept = [t for i, t in enumerate(types.split(", !")) if i != k]
                yield (
                    events[k],
                    text.replace(line, f"{head.split('wait(')[0]}wait({rest}) : !{', !'.join(kept).removeprefix('!')}"),
                )
            elif "pto.sync" in line:
                yield events[k], text.replace(line, "", 1)
            else:
                yield events[k], text[: m.start()] + (f"wait({rest})" if rest else "") + text[m.end() :]


@pytest.mark.parametrize("name, target", CASES)
def test_every_wait_that_is_gone_is_seen(name, target):
    text = kernel(name, target)
    _, found = check(text)
    before = {d.code for d in found}
    idle = {m for d in found if d.code == "RedundantWait" for m in re.findall(r"wait\((%[\w.$-]+)\)", d.message)}
    ways = []
    for event, broken in without_a_wait(text):
        how = caught(broken, before)
        ways.append(how)
        assert how is not None or event in idle or implied(text, event), (event, broken)
    assert len(ways) >= 3 and sum(w is not None for w in ways) > len(ways) / 2


def implied(text, event):
    """Whether several ops wait for the event, so that one of them is not needed."""
    return len(re.findall(rf"wait\([^)]*{re.escape(event)}\b", text)) > 1


LOCATIONS = ("Vec", "Mat", "Left", "Right", "Acc")


@pytest.mark.parametrize("name, target", CASES)
def test_a_wrong_location_is_seen(name, target):
    """The location of a tile is another one in the one place where it is made."""
    text, seen = kernel(name, target), 0
    for m in list(re.finditer(r"-> tile<[^>]*#pto\.tile_info<loc=(\w+)", text))[:12]:
        other = LOCATIONS[(LOCATIONS.index(m[1]) + 1) % len(LOCATIONS)]
        broken = text[: m.start(1)] + other + text[m.end(1) :]
        how = caught(broken)
        assert how is not None and how.startswith("verify"), broken
        seen += 1
    assert seen or name == "gather" or name == "mixed valid regions"


@pytest.mark.parametrize("name, target", CASES)
def test_a_tile_that_leaves_its_space_is_seen(name, target):
    text, seen = kernel(name, target), 0
    for value in sorted(set(re.findall(r"tile\.assign %[\w.$-]+, (%[\w.$-]+) ", text)))[:6]:
        m = re.search(rf"{re.escape(value)} = pto\.constant (\d+) : index", text)
        if m is None:
            continue
        for bad in (1 << 20, int(m[1]) + 1):
            broken = text[: m.start(1)] + str(bad) + text[m.end(1) :]
            how = caught(broken)
            assert how is not None and how.startswith("verify"), (value, bad)
        seen += 1
    assert seen or name in ("dbmm_a3", "dbmm_a5")


@pytest.mark.parametrize("name", HAND)
def test_an_element_of_another_kind_is_seen(name):
    """bf16 is not for the vector ops of a3, and a window does not leave its memory."""
    source = module(*HAND[name], target="a3")
    wrong = source.replace("xf32", "xbf16").replace(": f32", ": bf16").replace(", f32", ", bf16")
    assert caught(wrong).startswith("verify") and "IllegalOnTarget" in caught(wrong)
    over = source.replace("%out[32, 0]", "%out[33, 0]").replace("%c32 = pto.constant 32", "%c32 = pto.constant 33")
    assert over != source and caught(over, {"CapacityExceeded"}) is not None


EVENT = "!pto.event<producer = #pto.op<TLOAD>, eid = 0>"


@pytest.mark.parametrize("target", TARGETS)
def test_events_that_are_reused_or_out_of_scope_are_seen(target):
    lines = [
        f"%t, %e = pto.tile.load %a[0, 0] : {SIZE}, {ROW}, {EVENT}",
        f"%u, %f = pto.tile.load %a[32, 0] : {SIZE}, {ROW}, {EVENT}",
        f"%v = pto.tile.add %t, %u wait(%e, %f) : {ROW}",
        f"pto.tile.store %v, %out[0, 0] : {SIZE}, {ROW}",
    ]
    assert "EventIdReused" in caught(module(BOTH, *lines, target=target))
    right = [line.replace("eid = 0", f"eid = {k}") for k, line in enumerate(lines)]
    assert caught(module(BOTH, *right, target=target)) is None
    inside = [*LOOP, "scf.for %i = %c0 to %c2 step %c1 {", f"  {lines[0]}", "}", f"pto.sync wait(%e) : {EVENT}"]
    assert caught(module(BOTH, *inside, target=target)) == "verify UndefinedValue"
