"""Where the time of a run goes: steps as they are executed, their sum, rates, traces; and the measurements of `ptir bench`."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import ptir_tools
from ptir_tools.cli import bench as commands_bench
from ptir_tools.cli import tables
from ptir_tools.engines import RunOptions
from ptir_tools.engines.compiled import Compiled
from ptir_tools.tools import bench
from ptir_tools.tools.profile import COLUMNS, Profile, Roof, Step, percentile
from ptir_tools.tools.profile import roof as measured_roof
from tests.conftest import run_ptir

MLP = """func @f(%x: tensor<f32, 512x512>, %w: tensor<f32, 512x512>) -> tensor<f32, 512x512> {
  %a = dot_general(%x, %w) contract_lhs[1] contract_rhs[0] -> tensor<f32, 512x512>
  %t = tanh(%a) -> tensor<f32, 512x512>
  %e = exp(%t) -> tensor<f32, 512x512>
  %y = mul(%e, %x) -> tensor<f32, 512x512>
  return %y
}
"""
LOOP = """program @main (spec_version = ptir.v0.4) {
  func @main(%c: tensor<f32, 64x64>, %x: tensor<f32, 10x64x64>) -> tensor<f32, 64x64> {
    %r = scan(%c, %x) body_region[^r0] carry_count[1] scan_output_count[0] -> tensor<f32, 64x64>
    return %r
  }
  region ^r0(%c: tensor<f32, 64x64>, %e: tensor<f32, 64x64>) -> tensor<f32, 64x64> {
    %s = dot_general(%c, %e) contract_lhs[1] contract_rhs[0] -> tensor<f32, 64x64>
    return %s
  }
}
"""


@pytest.fixture
def mlp(tmp_path: Path) -> Path:
    path = tmp_path / "mlp.ptir"
    path.write_text(MLP)
    return path


@pytest.mark.parametrize("engine", ["reference", "numpy", "native"])
def test_steps_add_up_to_the_runs(engine: str, mlp: Path, tmp_path: Path) -> None:
    out = tmp_path / "timing.json"
    ran = run_ptir("run", mlp, "--random", "1", "--engine", engine, "--repeat", "5", "--timing-to", out, "-o", tmp_path / "o.npz")
    assert ran.status == 0, ran.err
    found = json.loads(out.read_text())
    spent = sum(step["seconds"] for step in found["steps"])
    assert found["runs"] == 5 and found["warm_up_s"] > 0
    assert spent + found["other_s"] == pytest.approx(found["wall_s"], rel=1e-9)
    assert 0 < spent <= found["wall_s"] and found["other_s"] >= 0  # what share it is depends on what else the machine does
    product = next(step for step in found["steps"] if "dot_general" in step["ops"])
    assert product["calls"] == 5 and product["flops_per_call"] >= 2 * 512**3 and product["line"].startswith("line")


def test_fused_ops_are_one_step(mlp: Path, tmp_path: Path) -> None:
    out = tmp_path / "timing.json"
    run_ptir("run", mlp, "--random", "1", "--engine", "native", "--timing-to", out, "-o", tmp_path / "o.npz")
    steps = json.loads(out.read_text())["steps"]
    fused = [step for step in steps if len(step["ops"]) > 1]
    assert fused and not {"tanh", "exp"} & {op for step in steps if step not in fused for op in step["ops"]}
    (row,) = (step for step in fused if "tanh" in step["ops"] and "dot_general" not in step["ops"])
    assert row["bytes_per_call"] == 3 * 4 * 512**2  # reads the product and x, leaves y


def test_warm_up_and_nested_steps_are_apart() -> None:
    profile = Profile(ptir_tools.read(LOOP))
    with profile.run():
        profile.step(["a"], 1.0, 2.0)  # type: ignore[list-item]
        profile.step(["a"], 2.0, 3.0)  # type: ignore[list-item]
        profile.step(["loop"], 0.5, 4.0)  # type: ignore[list-item]
    profile.step(["a"], 9.0, 10.0)  # type: ignore[list-item]
    assert {step.ops: step.seconds for step in profile.steps()} == {("a",): [1.0, 1.0], ("loop",): [1.5]}


@pytest.mark.parametrize("engine", ["reference", "numpy", "native"])
def test_a_loop_has_the_time_that_its_body_does_not(engine: str) -> None:
    program = ptir_tools.read(LOOP)
    profile = Profile(program)
    ready = Compiled(program, RunOptions(engine=engine, timer=profile.step))
    inputs = {"c": np.eye(64, dtype=np.float32), "x": np.ones((10, 64, 64), np.float32)}
    profile.warmed(lambda: ready(inputs))
    with profile.run():
        ready(inputs)
    calls = {step.ops[-1].defn.short: len(step.seconds) for step in profile.steps()}
    assert calls["dot_general"] == 10 and calls["scan"] == 1
    assert sum(sum(step.seconds) for step in profile.steps()) <= profile.runs[0]


def test_the_table_and_the_trace(mlp: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    ran = run_ptir("run", mlp, "--random", "1", "--timing", "--trace", trace, "-o", tmp_path / "o.npz")
    assert ran.status == 0 and "GFLOP/s" in ran.err and "warm-up" in ran.err and "(between steps)" in ran.err
    events = json.loads(trace.read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"X"} and all(event["dur"] >= 0 and event["ts"] >= 0 for event in events)


def test_the_share_of_the_roof_is_of_what_bounds_a_step() -> None:
    program = ptir_tools.read(MLP)
    product, tanh, *_ = program.main.body
    roof = Roof(flops=1e9, near=1e9, far=1e8)
    assert roof.share(Step((product,), [1.0])) == pytest.approx(2 * 512**3 / 1e9)
    assert roof.share(Step((tanh,), [0.5, 0.5])) == pytest.approx(2 * 2 * 4 * 512**2 / 1e9)
    assert roof.share(Step((tanh,), [])) is None
    found = measured_roof()
    assert min(found.flops, found.near, found.far) > 1e7


def test_a_flame_graph_has_the_steps_of_a_loop_under_it(tmp_path: Path) -> None:
    path, out = tmp_path / "loop.ptir", tmp_path / "flame.svg"
    path.write_text(LOOP)
    ran = run_ptir("run", path, "--random", "1", "--engine", "numpy", "--timing-to", out, "-o", tmp_path / "o.npz")
    assert ran.status == 0, ran.err
    drawn = ElementTree.fromstring(out.read_text())
    frames = {}
    for group in drawn.findall(".//{*}g"):
        title, box = group[0].text or "", group[1]
        frames[title.split(":")[0].split()[0]] = float(box.get("y", 0)), float(box.get("width", 0))
    assert frames["runs"][0] < frames["scan"][0] < frames["dot_general"][0]
    assert frames["runs"][1] == 1200 >= frames["scan"][1] >= frames["dot_general"][1] > 0


def test_times_are_written_as_what_the_suffix_says(mlp: Path, tmp_path: Path) -> None:
    ran = run_ptir("run", mlp, "--random", "1", "--timing-to", tmp_path / "times.html")
    assert ran.status == 2 and "times are written to .json and .svg files" in ran.err and not list(tmp_path.glob("times*"))


def test_a_flame_graph_names_the_kinds_of_a_long_program() -> None:
    """400 steps of two kinds: each is too narrow for its name, their kinds are not; the slower kind is first."""
    lines = [f"  %v{k} = {'tanh' if k % 4 else 'exp'}(%{f'v{k - 1}' if k else 'x'}) -> tensor<f32, 4>\n" for k in range(400)]
    program = ptir_tools.read(f"func @f(%x: tensor<f32, 4>) -> tensor<f32, 4> {{\n{''.join(lines)}  return %v399\n}}")
    profile = Profile(program)
    with profile.run():
        for k, op in enumerate(program.main.body):
            profile.step([op], k * 1e-3, (k + 1) * 1e-3)
    profile.runs = [0.4]
    drawn = ElementTree.fromstring("".join(profile.flame_graph())).findall(".//{*}g")
    assert len(drawn) == 1 + 2 + 400
    labels = [(group[2].text, float(group[1].get("x", -1)), float(group[1].get("width", 0))) for group in drawn if group[2].text]
    assert labels == [("runs", 0, 1200), ("tanh", 0, 900), ("exp", 900, 300)]


def test_percentiles_are_nearest_ranks() -> None:
    values = [float(n) for n in range(1, 101)]
    assert [percentile(values, p) for p in (50, 90, 99, 100)] == [50.0, 90.0, 99.0, 100.0]
    assert percentile([7.0], 99) == 7.0 and percentile([1.0, 2.0], 50) == 1.0


def test_bench_measures_single_runs() -> None:
    program = ptir_tools.read(MLP)
    inputs = {name: np.ones((512, 512), np.float32) for name in ("x", "w")}
    start = time.perf_counter()
    found = bench.measure("mlp", program, inputs, runs=4)
    spent = time.perf_counter() - start
    assert len(found.seconds) == 4 and found.seconds == sorted(found.seconds) and found.seconds[0] > 0
    assert sum(found.seconds) + found.warm_up <= spent and found.flops >= 2 * 512**3
    assert found.percentile(50) <= found.percentile(99)


def test_bench_writes_what_google_benchmark_writes(mlp: Path) -> None:
    ran = run_ptir("bench", "--json", "--runs", "3", mlp)
    assert ran.status == 0, ran.err
    found = json.loads(ran.text)
    assert {"date", "num_cpus", "executable"} <= set(found["context"])
    (row,) = found["benchmarks"]
    assert row["name"] == str(mlp) and row["iterations"] == 3 and row["time_unit"] == "us" and row["run_type"] == "iteration"
    assert row["p50"] <= row["p90"] <= row["p99"] and row["real_time"] == row["p50"]


def test_what_google_benchmark_says_of_each_program() -> None:
    """Microseconds of one run, processor time too; operations of one run in its median."""
    found = bench.Measured("a", [0.001, 0.002, 0.004, 0.008], cpu=0.006, warm_up=0.5, flops=100)
    first, second = commands_bench._google([found, bench.Measured("b", [0.5], 0.25, 0.0, 0)])["benchmarks"]  # type: ignore[misc,index]
    assert [first[f"p{p}"] for p in (50, 90, 99)] == pytest.approx([2000, 8000, 8000])
    assert (first["real_time"], first["cpu_time"], first["warm_up"]) == pytest.approx((2000, 1500, 500_000))
    assert first["iterations"] == 4 and first["FLOP/s"] == pytest.approx(100 / 0.002) and first["family_index"] == 0
    assert (second["real_time"], second["cpu_time"]) == pytest.approx((500_000, 250_000))
    assert second["name"] == second["run_name"] == "b" and second["family_index"] == 1 and "FLOP/s" not in second


def test_bench_measures_against_another_engine(mlp: Path) -> None:
    ran = run_ptir("bench", "--json", "--runs", "2", "--engine", "numpy", "--against", "reference", mlp)
    assert ran.status == 0, ran.err
    ours, other = json.loads(ran.text)["benchmarks"]
    assert (ours["name"], other["name"]) == (f"{mlp} on numpy", f"{mlp} on reference")
    ran = run_ptir("bench", "--runs", "2", "--against", "reference", mlp)
    assert f"{mlp} on reference: " in ran.err and " times as long" in ran.err
    assert run_ptir("bench", "--engine", "numpy", "--against", "numpy", mlp).status == 2


def test_bench_measures_against_onnx_runtime(mlp: Path) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    ran = run_ptir("bench", "--runs", "2", "--against", "onnxruntime", mlp)
    assert ran.status == 0 and f"{mlp} on onnxruntime: " in ran.err, ran.err


def test_bench_refuses_a_program_with_errors_and_goes_on(mlp: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.ptir").write_text(MLP.replace("tanh", "thanh"))
    ran = run_ptir("bench", "--runs", "1", tmp_path / "bad.ptir", mlp)
    assert ran.status == 1 and "UnknownOp" in ran.err and str(mlp) in ran.text and "bad.ptir" not in ran.text
    (tmp_path / "free.ptir").write_text("func @f(%x: tensor<f32, ?N>) -> tensor<f32, ?N> {\n  return %x\n}\n")
    ran = run_ptir("bench", "--runs", "1", tmp_path / "free.ptir", mlp)
    assert ran.status == 1 and "error[UnboundSymbol]" in ran.err and str(mlp) in ran.text
    assert run_ptir("bench", "--runs", "1", "--bind", "N=4", tmp_path / "free.ptir").status == 0


def test_the_table_takes_one_line_a_step_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    fused = ("24172.0", "91.5%", "11", "0.01", "0.02", "0%", "mul+select+reduce_max+6 more", "%v56", "lines 57-70")
    between = ("1.0", "0.1%", "", "", "", "", "(between steps)", "", "")
    stream = io.StringIO()
    tables.draw(stream, [tables.Table(COLUMNS, [fused, between], "74.4 us per run", one_line=True)], color=False)
    lines = stream.getvalue().rstrip().splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines[-2:]] == ["24172.0", "1.0"]
    assert "lines 57-70" in lines[-2] and "mul+select" in lines[-2] and "…" in lines[-2]
