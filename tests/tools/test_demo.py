"""`ptir demo`: its programs are valid and laid out, and its commands run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ptir_tools.tools import demo
from tests.conftest import run_ptir


def test_the_commands_of_the_demo_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = run_ptir("demo")
    assert shown.status == 0 and len(shown.text.splitlines()) == len(demo.TRY)
    assert {p.name for p in (tmp_path / "ptir-demo").iterdir()} == {*demo.FILES}
    for name in demo.FILES:
        assert run_ptir("verify", f"ptir-demo/{name}", "--strict").status == 0, name
        assert run_ptir("fmt", "--check", f"ptir-demo/{name}").status == 0 or name.endswith(".json")
    script = f'ptir() {{ {sys.executable} -m ptir_tools "$@"; }}\n{shown.text}'
    ran = subprocess.run(["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True, env=os.environ)
    assert ran.returncode == 0, ran.stderr
    assert "fused_softmax" in ran.stdout and "contract_lhs[1]" in ran.stdout and (tmp_path / "softmax.html").exists()


def test_the_demo_overwrites_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "layer.mind").write_text("mine")
    assert run_ptir("demo", "mine").status == 2
    assert (tmp_path / "mine" / "layer.mind").read_text() == "mine" and not (tmp_path / "mine" / "softmax.ptir").exists()
