"""Poison: a step that reads dead memory, or writes what is only read, is caught; a right program gives the same bits."""

from __future__ import annotations

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.core.evaluate import Context
from ptir_tools.core.records import replace
from ptir_tools.engines import RunOptions, run
from ptir_tools.engines import numpy as numpy_engine
from ptir_tools.engines.numpy.frame import Frame
from ptir_tools.engines.numpy.poison import PATTERN, Poison, Seals
from tests.conftest import TESTDATA, run_ptir

ON = RunOptions(engine="numpy", poison=True)


def chain():
    """Values that die one after the other, and take each other's memory."""
    g = ptir.Graph()
    x = g.input("x", "f32", (8, 16))
    a = x.reduce_sum([1], keepdims=True).broadcast_like(x) * x
    b = a.transpose([1, 0]).exp().reduce_max([0])
    return g.returns(b.tanh().named("y")), a


X = np.random.default_rng(0).standard_normal((8, 16), np.float32)


def faulty(change):
    """An executable of the chain, with the builder of `tanh` changed: it gets the frame as its fourth argument."""
    program, a = chain()
    value = a.operand

    def builder(op):
        own = numpy_engine.builder(op)
        if op.defn.short != "tanh":
            return own
        return lambda op, ins, outs, shop: [*own(op, ins, outs, shop), *change(ins, outs, shop, value)]

    def made(options):
        target = replace(numpy_engine.TARGET, builder=builder)
        return numpy_engine.Executable(program, program.main, options, target)

    return made


def dead(ins, outs, shop, value):
    """Read a value that the plan does not keep so long."""
    return [(np.add, (outs[0], shop.data(value).reshape(-1)[: outs[0].size], outs[0]))]


def test_reading_a_dead_value_shows():
    made = faulty(dead)
    plain = made(replace(ON, poison=False))([X], Context())[0].copy()
    poisoned = made(ON)([X], Context())[0]
    assert np.isfinite(plain).all() and not np.isfinite(poisoned).all()


def test_scratch_is_poisoned_from_the_start_and_after_each_step():
    seen = []

    def peek(ins, outs, shop, value):
        room = shop.scratch_like(outs[0])
        return [(lambda: seen.append(room.copy()), ()), (np.copyto, (room, outs[0]))]

    bound = faulty(peek)(ON).bind([X])
    for _ in range(2):
        bound(Context())
    assert len(seen) == 2
    for room in seen:
        assert (room.view(np.uint16) == PATTERN).all()


@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_results_of_a_call_are_not_those_of_the_call_before(engine):
    """They are poisoned before the next call."""
    program, _ = chain()
    session = ptir.compile(program, engine=engine, reuse=True, poison=True)
    first = session([X])["y"]
    want = first.copy()
    np.testing.assert_array_equal(session([X])["y"], want)
    np.testing.assert_array_equal(run(program, [X], RunOptions(engine=engine, poison=False))["y"], want)


def test_writing_an_input_is_caught():
    made = faulty(lambda ins, outs, shop, value: [(np.copyto, (shop.parameters[0], np.float32(1)))])
    with pytest.raises(AssertionError, match="a step wrote to input 0"):
        made(ON)([X.copy()], Context())


def test_writing_a_constant_is_caught():
    kept = np.ones(3, np.float32)
    seals = Seals([("a constant", kept)])
    seals.check()
    kept[1] = -0.0
    with pytest.raises(AssertionError, match="wrote to a constant"):
        seals.check()


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_the_pattern_is_no_number(dtype):
    assert np.isnan(Poison().fill(np.empty(64, np.uint8)).view(dtype)).all()


def test_the_command_compares_with_a_run_without_poison(tmp_path, monkeypatch):
    path = tmp_path / "x.ptir"
    path.write_text(ptir.write(chain()[0]))
    line = ("run", path, "--random", "0", "--check-memory", "--engine")
    assert run_ptir(*line, "numpy").status == 0
    refused = run_ptir(*line, "reference")
    assert refused.status == 2
    assert "numpy and native" in refused.err
    refused = run_ptir("run", TESTDATA / "pto" / "01_vector_add_subview.pto", "--random", "0", "--check-memory")
    assert refused.status == 2
    assert "pto runs on neither" in refused.err
    monkeypatch.setattr(Frame, "dying", lambda frame, at: [frame.arena])  # as if all were dead
    found = run_ptir(*line, "numpy")
    assert found.status == 70
    assert "depend on dead memory" in found.err
