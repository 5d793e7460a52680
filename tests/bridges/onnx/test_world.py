"""Trained models out of small packages of the registry: right in every way of the suite `world`. Skipped without the registry."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from tests.suites import world


@pytest.mark.slow
def test_trained_models_are_right(tmp_path: Path) -> None:
    try:
        folder = world.unpacked(tmp_path)
    except world.Unreachable as package:
        pytest.skip(f"the registry does not give {package}")
    report = world.run(folder=str(folder))
    assert len(report.right) == 5 * 12, report.lines(verbose=True)
    assert not (report.wrong or report.refused or report.errors)
