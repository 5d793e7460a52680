"""Kernels as an engineer writes them, right and broken in the known ways: NumPy's numbers, breaks seen by verify or a run."""

import re

import pytest

from ptir_tools import engines
from ptir_tools.core.diagnostics import Diagnostics, Rejected, Severity
from ptir_tools.core.dialect import Options
from ptir_tools.core.violations import Violation
from ptir_tools.engines.options import ORDERS, RunOptions
from ptir_tools.passes import PassContext, run_pipeline
from tests.pto.by_hand import CASES, agree, source
from tests.pto.programs import check, good, printed, run


@pytest.mark.parametrize("target", ["a3", "a5"])
@pytest.mark.parametrize("name", CASES)
def test_numbers_in_every_order_before_and_after_the_whole_pipeline(name, target):
    case, program = CASES[name](), good(source(name, target))
    optimized = good(source(name, target))
    run_pipeline(optimized, f"pto{{target={target}}}", PassContext(diagnostics=Diagnostics()))
    for made in (program, good(printed(optimized))):
        for order in ORDERS:
            agree(case, run(made, case.inputs, order=order, seed=3))


def errors(text):
    return [d.code for d in check(text)[1] if d.severity is Severity.ERROR]


def raced(text, case):
    """What a run reports, if only the check of hazards refuses the program; the same in every order."""
    made = good(text, Options(hazards=False))
    seen = set()
    for order in ORDERS:
        found = Diagnostics(made.source)
        try:
            engines.run(made, {k: v.copy() for k, v in case.inputs.items()}, RunOptions(order=order, seed=1), found)
        except Rejected:
            assert found.errors
        seen.add(bool(found.errors))
    (answer,) = seen
    return answer


def without_waits(text):
    """The program without one of its waits, and whether that wait is noted as one that orders nothing."""
    notes = [d for d in check(text)[1] if d.code == "RedundantWait"]
    redundant = {(text.count("\n", 0, d.span.start), d.message.partition(")")[0]) for d in notes}
    for clause in re.finditer(r"(?<!sync )wait\(([^)]*)\) ?", text):
        events = list(re.finditer(r"%\w+", clause[1]))
        line = text.count("\n", 0, clause.start())
        for event in events:
            rest = [e[0] for e in events if e is not event]
            new = f"wait({', '.join(rest)}) " if rest else ""
            yield text[: clause.start()] + new + text[clause.end() :], (line, f"wait({event[0]}") in redundant


# The first load of `softmax_long` waits for an op that it shares nothing with, so the wait orders something, to no end.
HARMLESS = {"softmax_long": 1}


@pytest.mark.parametrize("name", CASES)
def test_a_wait_that_is_gone_is_seen_by_verify_and_by_a_run(name):
    """Where a wait is noted as redundant, its removal does no harm; each other removal does."""
    case, text, harmless = CASES[name](), source(name), 0
    for broken, redundant in without_waits(text):
        wrong = bool(errors(broken))
        assert raced(broken, case) is wrong, broken
        assert not (wrong and redundant), broken
        harmless += not wrong and not redundant
    assert harmless == HARMLESS.get(name, 0)


BREAKS = [  # kernel, what is replaced, by what, and what verify says
    ("mm_ring", "%asz = pto.constant 2048", "%asz = pto.constant 2016", "MemoryHazard"),
    ("mm_ring", "%boff = pto.constant 4096", "%boff = pto.constant 4064", "MemoryHazard"),
    ("mm_ring", "%c2 = pto.constant 2 ", "%c2 = pto.constant 1 ", "MemoryHazard"),
    ("mm_ring", "%el1, %er1, %em1 :", "%el1, %er1, %em2 :", "MemoryHazard"),
    ("mm_ring", "-> tile<32x32xf16, #pto.tile_info<loc=Left>>", "-> tile<32x32xf16, #pto.tile_info<loc=Mat>>", "InvalidLocation"),
    ("mm_ring", "f16", "f8e4m3fn", "IllegalOnTarget"),
    ("ring3", "%c3 = pto.constant 3 ", "%c3 = pto.constant 2 ", "MemoryHazard"),
    ("ring3", "%es, %s1, %s2 :", "%es, %s1, %s3 :", "MemoryHazard"),
    ("ring3", "%s2addr = pto.constant 20512", "%s2addr = pto.constant 20481", "Misaligned"),
    ("ring3", "%taddr = pto.constant 24576", "%taddr = pto.constant 16384", "TileOverwritten"),
    ("ring3", "f32", "bf16", "IllegalOnTarget"),
    ("flash", "%l0, %i2 = pto.tile.expands %zero", "%l0, %i2 = pto.tile.expands %zero wait(%est)", "UndefinedValue"),
    ("softmax_long", "%na = pto.constant 131200", "%na = pto.constant 131136", "TileOverwritten"),
    ("softmax_long", "%oa = pto.constant 65536", "%oa = pto.constant 65504", "MemoryHazard"),
    ("softmax_long", "%oa = pto.constant 65536", "%oa = pto.constant 163840", "OutOfBounds"),
    ("gather", "tile<16x32xf32>, tile<8x32xi32> ->", "tile<8x32xi32>, tile<16x32xf32> ->", "TypeMismatch"),
    ("nested", "wait(%u1, %u2)", "wait(%es)", "UndefinedValue"),
    ("branches", "producer = #pto.op<TLOAD>", "producer = #pto.op<TLOAD>, eid = 0", "EventIdReused"),
    ("eids", "eid = 1", "eid = 0", "EventIdReused"),
    ("eids", "%o1 = pto.constant 1024", "%o1 = pto.constant 992", "MemoryHazard"),
    ("eids", "#pto.op<TMULS>", "#pto.op<TADDS>", "EventProducerMismatch"),
    ("calls", "pto.sync wait(%s) : !pto.event<producer = #pto.op<TSTORE_VEC>>", "", "MemoryHazard"),
    ("quant", "tile<32x64xi32, #pto.tile_info<loc=Acc>>", "tile<32x64xf32, #pto.tile_info<loc=Acc>>", "TypeMismatch"),
]  # fmt: skip


@pytest.mark.parametrize("name, old, new, code", BREAKS)
def test_a_break_is_seen_by_verify(name, old, new, code):
    text = source(name)
    assert old in text and not errors(text)
    assert code in errors(text.replace(old, new))


AT_RUN = [  # as above; what a run says, which knows where windows end and how often loops repeat
    ("ring3", "%n = pto.constant 12", "%n = pto.constant 13", "OutOfBounds"),
    ("flash", "%last = pto.constant 96", "%last = pto.constant 97", "OutOfBounds"),
    ("softmax_long", "%c4 = pto.constant 4 ", "%c4 = pto.constant 5 ", "InvalidValid"),
    ("mixed_valid", "{valid = [%vr, 20]}", "{valid = [%vr, 21]}", "OutOfBounds"),
    ("gather", "%w = pto.constant 32 ", "%w = pto.constant 64 ", "OutOfBounds"),
]


@pytest.mark.parametrize("name, old, new, code", AT_RUN)
@pytest.mark.parametrize("order", ORDERS)
def test_a_break_is_seen_by_verify_or_by_a_run(name, old, new, code, order):
    text = source(name)
    assert old in text
    made, found = check(text.replace(old, new))
    if not found.errors:
        with pytest.raises(Violation, match=code):
            run(made, CASES[name]().inputs, order=order)
    else:
        assert code in [d.code for d in found]
