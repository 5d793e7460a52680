"""Trace sinks of the Python API, and that the folder they write is that of `ptir run --dump-dir`."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.engines.choose import PIPELINE
from tests.conftest import run_ptir

PASSES = [step.partition("{")[0] for step in PIPELINE.split(",")]
X = np.arange(3, dtype=np.float32)


class Log(ptir.TraceSink):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []
        self.executions: list[object] = []

    def before(self, execution):
        self.told.append(("before", execution.engine, len(execution.program.main.body)))
        assert execution.outputs is None and execution.error is None and np.array_equal(execution.inputs[0], X)

    def passed(self, execution, event):
        self.told.append((event.name, event.changed, len(event.program.main.body)))
        assert execution.program is event.program

    def after(self, execution):
        self.told.append(("after", execution.error))
        self.executions.append(execution)


def doubled_twice() -> ptir.Program:
    """Two equal sums, of which `cse` drops one."""
    g = ptir.Graph()
    x = g.input("x", "f32", (3,))
    return g.returns(((x + x) * (x + x)).named("y"))


def test_one_call() -> None:
    log = Log()
    found = ptir.run(doubled_twice(), {"x": X}, engine="numpy", trace=log)
    assert [t[0] for t in log.told] == ["before", *PASSES, "after"]
    assert log.told[0] == ("before", "numpy", 3) and log.told[-1] == ("after", None)
    assert ("cse", True, 2) in log.told and ("dce", False, 2) in log.told
    (execution,) = log.executions
    assert execution.outputs["y"] is found["y"] and execution.nanoseconds > 0
    assert len(execution.program.main.body) == 2, "what ran is what the passes made"


def test_all_calls_until_the_block_ends() -> None:
    log, other = Log(), Log()
    with ptir.tracing(log):
        ptir.run(doubled_twice(), [X], engine="reference", trace=other)
        ptir.run(doubled_twice(), [X], engine="reference")
    ptir.run(doubled_twice(), [X], engine="reference")
    assert [t[0] for t in log.told] == ["before", "after"] * 2
    assert [t[0] for t in other.told] == ["before", "after"]


def test_all_calls_until_closed() -> None:
    log = Log()
    until = ptir.tracing(log)
    try:
        ptir.run(doubled_twice(), [X])
    finally:
        until.close()
    ptir.run(doubled_twice(), [X])
    assert len(log.executions) == 1


def test_calls_of_a_compiled_program() -> None:
    """Passes run once; what ran is the same program each time, whoever watched when it was made."""
    log, late = Log(), Log()
    call, quiet = (ptir.compile(doubled_twice(), engine="numpy", **given) for given in ({"trace": log}, {}))
    for each in (call, quiet, call):
        each([X])
    with ptir.tracing(late):
        quiet([X])
    assert [t[0] for t in log.told] == ["before", *PASSES, "after", "before", "after"]
    assert [t[0] for t in late.told] == ["before", "after"]
    assert [len(e.program.main.body) for e in (*log.executions, *late.executions)] == [2, 2, 2]


def test_a_run_that_fails_is_told() -> None:
    log = Log()
    g = ptir.Graph()
    rows = g.input("x", "f32", (3,)).take(g.input("i", "si32", (1,)))
    with pytest.raises(ptir.Rejected, match="outside") as info:
        ptir.run(g.returns(rows), [X, np.array([7], np.int32)], trace=log)
    assert log.told[-1] == ("after", info.value) and log.executions[0].outputs is None


def test_what_a_sink_raises_the_run_raises() -> None:
    class Angry(ptir.TraceSink):
        def before(self, execution):
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        ptir.run(doubled_twice(), [X], trace=Angry())


def lasting(path: Path) -> str:
    """A file of a trace without what the clock says."""
    text = path.read_text("utf-8")
    return re.sub(r'"(secs|nanos|secs_since_epoch|nanos_since_epoch)":\s*\d+', r'"\1": 0', text)


@pytest.mark.parametrize("engine", ["reference", "numpy"])
def test_the_folder_is_that_of_the_command_line(engine: str, tmp_path: Path) -> None:
    program = "testdata/ptir/dump/d07_scan_cumsum.json"
    inputs = tmp_path / "in.npz"
    assert run_ptir("run", program, "--random", "3", "--save-inputs", inputs).status == 0
    ran = run_ptir("run", program, "--inputs", inputs, "--engine", engine, "--repeat", "2", "--dump-dir", tmp_path / "cli")
    assert ran.status == 0, ran.err
    sink = ptir.TraceFolder(tmp_path / "api")
    for _ in range(2):
        ptir.run(ptir.read(program), dict(np.load(inputs)), engine=engine, trace=sink)
    files = [{p.relative_to(tmp_path / f): lasting(p) for p in (tmp_path / f).rglob("*") if p.is_file()} for f in ("cli", "api")]
    assert files[0] == files[1] and len(files[0]) == 2 * (4 + len(PASSES) * (engine == "numpy")) + 1 + (engine == "numpy")


def test_a_traced_run_is_read_as_a_program(tmp_path: Path) -> None:
    sink = ptir.TraceFolder(tmp_path / "trace")
    built = doubled_twice()
    (want,) = ptir.run(built, [X], trace=sink).values()
    (folder,) = (tmp_path / "trace").glob("*_materialize_*")
    for path in (folder, tmp_path / "trace"):
        (found,) = ptir.run(ptir.read(path), [X]).values()
        np.testing.assert_array_equal(found, want)
        assert run_ptir("verify", path).status == 0
    ptir.run(built, [X], trace=sink)  # the same program again: the trace is still of one
    np.testing.assert_array_equal(ptir.run(ptir.read(tmp_path / "trace"), [X])["2"], want)
    g = ptir.Graph()
    ptir.run(g.returns(g.input("x", "f32", (3,)) * 3), [X], trace=sink)
    with pytest.raises(ptir.UsageError, match="a trace of several programs; name one"):
        ptir.read(tmp_path / "trace")
    ran = run_ptir("verify", tmp_path / "trace")
    assert ran.status == 2 and "name one" in ran.err


@pytest.mark.parametrize("name", ["program.ptir", "program.json"])
def test_programs_are_the_same_byte_for_byte(name: str, tmp_path: Path) -> None:
    """Not those whose files only have the same size and time."""
    ptir.run(doubled_twice(), [X], trace=ptir.TraceFolder(tmp_path))
    (folder,) = tmp_path.glob("*_materialize_*")
    other = Path(shutil.copytree(folder, tmp_path / "other"))
    ptir.read(tmp_path)
    data = (other / name).read_bytes()
    assert b"2" in data
    (other / name).write_bytes(data.replace(b"2", b"3", 1))
    for file in (folder / name, other / name):
        os.utime(file, (1, 1))
    with pytest.raises(ptir.UsageError, match="a trace of several programs; name one"):
        ptir.read(tmp_path)


def test_what_is_not_ptir_is_traced_as_ptir(tmp_path: Path) -> None:
    sink = ptir.TraceFolder(tmp_path)
    module = ptir.read("testdata/mind/02_mlp_relu.mind.ir")
    arrays = {p.name: np.zeros(p.type.static_shape, np.float32) for p in module.main.params}
    ptir.run(module, list(arrays.values()), engine="reference", trace=sink)
    assert ptir.read(tmp_path).dialect.name == "ptir"


def test_what_cannot_be_traced_is_refused(tmp_path: Path) -> None:
    tiles = ptir.read("testdata/pto/01_vector_add_subview.pto")
    arrays = [np.zeros((1024, 1024), np.float32)] * 3 + [np.int64(0)] * 2
    with pytest.raises(ptir.UsageError, match="a trace is written in PTIR"):
        ptir.run(tiles, arrays, trace=ptir.TraceFolder(tmp_path / "t"))
    with pytest.raises(ptir.UsageError, match="not an empty folder"):
        ptir.TraceFolder("testdata")


def test_what_gpt_rs_cannot_say_is_refused_before_it_runs(tmp_path: Path) -> None:
    g = ptir.Graph()
    q = g.input("x", "f32", (3,)).quantize("si8", scales=[0.5])
    with pytest.raises(ptir.Rejected, match="no scale") as info:
        ptir.run(g.returns(q), [X], trace=ptir.TraceFolder(tmp_path / "t"))
    assert len(info.value.diagnostics) == 1
    assert [p.name for p in (tmp_path / "t").rglob("*")] == ["passes"]
