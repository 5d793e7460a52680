"""`ptir run --dump-dir`: the layout of gpt.rs's trace, read again by the tool itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ptir_tools.engines.choose import PIPELINE
from tests.conftest import run_ptir

META = [
    "trace_id", "graph_id", "backend", "plan_hash", "plan_graph_hash", "plan_specialization_hash", "cache", "targets", "outputs",
    "exports", "timestamp", "kind",
]  # fmt: skip
PASSES = [step.partition("{")[0] for step in PIPELINE.split(",")]


def dumped(tmp: Path, *args: str | Path, status: int = 0) -> tuple[list[Path], list[dict[str, Any]]]:
    """(folders of the runs, lines of executions.jsonl)."""
    ran = run_ptir("run", *args, "--dump-dir", tmp / "trace")
    assert ran.status == status, ran.err
    lines = (tmp / "trace" / "executions.jsonl").read_text().splitlines()
    return sorted((tmp / "trace").glob("*_materialize*")), [json.loads(line) for line in lines]


def test_layout(tmp_path: Path) -> None:
    (folder,), (execution,) = dumped(tmp_path, "testdata/opt/default.ptir", "--random", "0")
    meta, stats = (json.loads((folder / name).read_text()) for name in ("meta.json", "stats.json"))
    assert execution == {"context": meta, "stats": stats, "dumped": True}
    (result,) = meta["targets"]
    assert list(meta) == META and meta["outputs"] == [result]
    assert folder.name == f"{len(PASSES):05}_materialize_%{result}"
    assert meta["kind"] == {"kind": "Materialize", "payload": {"values": [result]}}
    assert stats["status"] == {"status": "Success"} and stats["output_count"] == 1


def test_passes(tmp_path: Path) -> None:
    (folder,), _ = dumped(tmp_path, "testdata/opt/default.ptir", "--random", "0")
    files = sorted((tmp_path / "trace" / "passes").iterdir())
    assert [f.name for f in files] == [f"{i:05}_run_0000_f_{name}.ptir" for i, name in enumerate(PASSES)]
    assert files[-1].read_text() == (folder / "program.ptir").read_text()
    events = [json.loads(line)["kind"] for line in (tmp_path / "trace" / "passes.jsonl").read_text().splitlines()]
    assert [(e["event"], e["data"]["pass"]) for e in events] == [
        (kind, name) for name in PASSES for kind in ("OptimizerPassStats", "OptimizerPassIr")
    ]
    stats = events[2 * PASSES.index("canonicalize")]["data"]["stats"]
    assert stats["changed"] and stats["rewrites_applied"] > 0
    assert [e["data"]["program_ptir"] for e in events[1::2]] == [f.read_text() for f in files]


@pytest.mark.parametrize("engine", ["numpy", "native"])
@pytest.mark.parametrize("watching", ["--timing", "--trace"])
def test_timing_changes_nothing_of_the_layout(engine: str, watching: str, tmp_path: Path) -> None:
    def files(*more: str | Path) -> dict[str, int]:
        """How many lines of each file, by path."""
        folder = tmp_path / f"{len(more)}"
        folder.mkdir()
        dumped(folder, "testdata/opt/default.ptir", "--random", "0", "--engine", engine, *more)
        found = (p for p in folder.rglob("*") if p.is_file() and p.name != "chrome.json")
        return {str(p.relative_to(folder)): p.read_text().count("\n") for p in found}

    asked = [watching] if watching == "--timing" else [watching, tmp_path / "chrome.json"]
    plain = files()
    assert plain["trace/passes.jsonl"] == 2 * len(PASSES) and files(*asked) == plain


def test_what_ran_is_read_again_and_gives_the_same(tmp_path: Path) -> None:
    program = "testdata/ptir/dump/d07_scan_cumsum.json"
    (folder,), (execution,) = dumped(tmp_path, program, "--random", "3")
    assert run_ptir("verify", folder).status == 0
    assert run_ptir("hash", folder).text == f"{execution['context']['plan_hash']:016x}\n"
    first, again = (
        run_ptir("run", p, "--random", "3", "-o", tmp_path / f"{name}.npz") for name, p in (("a", program), ("b", folder))
    )
    assert (first.status, again.status) == (0, 0)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_a_run_that_fails_is_traced(tmp_path: Path) -> None:
    (folder,), (execution,) = dumped(tmp_path, "testdata/run/div_zero.ptir", "--input", "x=7", "--input", "y=0", status=1)
    assert json.loads((folder / "stats.json").read_text())["status"] == execution["stats"]["status"]
    assert execution["stats"]["status"]["status"] == "Failure"
    assert "zero" in execution["stats"]["status"]["details"]["message"]


def test_runs_are_numbered_with_the_passes(tmp_path: Path) -> None:
    folders, executions = dumped(tmp_path, "testdata/plan/softmax.ptir", "--random", "0", "--repeat", "2")
    assert [int(f.name[:5]) for f in folders] == [len(PASSES), 2 * len(PASSES) + 1]
    assert [e["context"]["trace_id"] for e in executions] == [0, 1]


def test_a_program_that_runs_as_written_has_no_passes(tmp_path: Path) -> None:
    (folder,), _ = dumped(tmp_path, "testdata/mind/02_mlp_relu.mind.ir", "--random", "0", "--engine", "reference")
    assert folder.name.startswith("00000_") and not list((tmp_path / "trace" / "passes").iterdir())
    assert run_ptir("verify", folder).status == 0


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    ran = run_ptir("run", "testdata/plan/softmax.ptir", "--random", "0", "--dump-dir", tmp_path)
    assert ran.status == 2 and "not an empty folder" in ran.err
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]
