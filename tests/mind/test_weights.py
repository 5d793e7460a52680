"""Constants of MIND in files next to the text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.conftest import run_ptir

MODULE = """%0 = Input {name=x} : tensor<f32[2, 4]>
%1 = ConstTensor {dtype=f32, shape=(4, 6), value="@w.npz:w"} : tensor<f32[4, 6]>
%2 = MatMul (%0, %1) : tensor<f32[2, 6]>
outputs: %2
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.savez(tmp_path / "w.npz", w=np.arange(24, dtype=np.float32).reshape(4, 6))
    (tmp_path / "a.mind.ir").write_text(MODULE)
    np.save(tmp_path / "x.npy", np.ones((2, 4), np.float32))
    return tmp_path


def test_a_constant_is_read_from_a_file_and_stays_there(folder: Path) -> None:
    name = str(folder / "a.mind.ir")
    found = run_ptir("run", name, "--input", f"x=@{folder / 'x.npy'}")
    assert found.status == 0 and b"[36. 40. 44. 48. 52. 56.]" in found.out, found.err
    for command in (("opt", name), ("fmt", name)):
        made = run_ptir(*command, "-o", str(folder / "b.mind.ir"))
        assert made.status == 0, made.err
        assert (folder / "b.mind.ir").read_text() == MODULE


def test_constants_move_to_a_file_and_to_other_irs(folder: Path) -> None:
    name = str(folder / "a.mind.ir")
    made = run_ptir("opt", name, "--weights-to", str(folder / "v.safetensors"), "-o", str(folder / "c.mind.ir"))
    assert made.status == 0, made.err
    assert 'value="@v.safetensors:1"' in (folder / "c.mind.ir").read_text()
    same = run_ptir("diff", "--run", name, str(folder / "c.mind.ir"))
    assert same.status == 0, same.out + same.err
    moved = run_ptir("translate", name, "--to", "ptir", "-o", str(folder / "a.ptir"))
    assert moved.status == 0 and "dense<@w.npz:w>" in (folder / "a.ptir").read_text()
    back = run_ptir("translate", str(folder / "a.ptir"), "--to", "mind", "-o", str(folder / "d.mind.ir"))
    assert back.status == 0 and 'value="@w.npz:w"' in (folder / "d.mind.ir").read_text()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("(4, 6), value", "(4, 5), value", "`w` has shape [4, 6], [4, 5] is wanted"),
        ("@w.npz:w", "@w.npz:q", "there is no array `q`"),
        ("@w.npz:w", "@../w.npz:w", "outside of the program's folder"),
        ("dtype=f32", "dtype=i64", "has dtype float32"),
        ("@w.npz:w", "@w.npz", "names no array"),
    ],
)
def test_a_wrong_reference_is_e4005(folder: Path, old: str, new: str, said: str) -> None:
    (folder / "a.mind.ir").write_text(MODULE.replace(old, new))
    found = run_ptir("verify", str(folder / "a.mind.ir"))
    assert found.status == 1 and "E4005" in found.err and said in found.err
