"""Low thresholds: small programs reach what large ones do."""

from __future__ import annotations

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.core.records import fields
from ptir_tools.engines import RunOptions, native, run, thresholds
from ptir_tools.engines.native import threads
from ptir_tools.engines.thresholds import Thresholds, at, lowered

NAMES = [f.name for f in fields(Thresholds)]


def test_every_size_is_lowered_and_comes_back():
    before = {name: getattr(at, name) for name in NAMES}
    with lowered(work=7):
        inside = {name: getattr(at, name) for name in NAMES}
    assert {name: getattr(at, name) for name in NAMES} == before
    assert inside["work"] == 7
    assert [name for name in NAMES if name != "share_of_cache" and inside[name] >= before[name]] == []
    assert thresholds._LOW.keys() == {*NAMES}


@pytest.mark.skipif(not native.available(), reason="no C compiler at installation (with one, .ci/run fails)")
@pytest.mark.parametrize("low", [False, True])
def test_few_elements_are_divided_among_threads(low, monkeypatch):
    g = ptir.Graph()
    x = g.input("x", "f32", (16, 24))
    program = g.returns((x.tanh() @ g.constant(np.ones((24, 24), np.float32))).named("y"))
    divided = []
    together = threads.together
    monkeypatch.setattr(threads, "together", lambda parts, n: divided.append(n > 1 < len(parts)) or together(parts, n))
    options = RunOptions(engine="native", threads=2)
    inputs = [np.ones((16, 24), np.float32)]
    if low:
        with lowered():
            found = run(program, inputs, options)
    else:
        found = run(program, inputs, options)
    np.testing.assert_allclose(found["y"], 24 * np.tanh(1), rtol=1e-6)
    assert any(divided) == low
