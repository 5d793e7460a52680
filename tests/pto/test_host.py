"""`translate --to pto-cpp --check-with`: the kernels and their host program, built and run.

The commands build with the stub of the library; `PTO_CC` names another, for example the library's simulator.
"""

from __future__ import annotations

import os
import shlex
import subprocess

import numpy as np
import pytest

from tests.conftest import run_ptir
from tests.models import FOLDER
from tests.pto.test_cpp import COMPILER, STUB, compiled
from tests.pto.test_split_cores import PROGRAMS

STUBBED = f"{COMPILER} -std=c++20 -O0 -w -D__CPU_SIM -I{shlex.quote(str(STUB))} {{source}} -o {{binary}}"
BUILDS = os.environ.get("PTO_CC", STUBBED)
SUM = """func @main(%x: tensor<f32, 4x40>, %n: tensor<f32>) -> tensor<f32, 4x40> {
  %w = constant() value[dense<WEIGHTS>] -> tensor<f32, 40>
  %wb = broadcast_to(%w) result_shape[4, 40] -> tensor<f32, 4x40>
  %nb = broadcast_to(%n) result_shape[4, 40] -> tensor<f32, 4x40>
  %s = mul(%x, %nb) -> tensor<f32, 4x40>
  %y = add(%s, %wb) -> tensor<f32, 4x40>
  return %y
}
""".replace("WEIGHTS", str([float(n) for n in range(40)]))
ROWS = """func @main(%x: tensor<f32, ?Nx24>) -> tensor<f32, ?Nx24> {
  %e = exp(%x) -> tensor<f32, ?Nx24>
  return %e
}
"""


def translated(folder, text, *more, target="a3"):
    (folder / "m.ptir").write_text(text)
    return run_ptir("translate", folder / "m.ptir", "--to", "pto-cpp", "--target", target, *more)


@compiled
@pytest.mark.parametrize("name", ["mobilenet", pytest.param("llama", marks=pytest.mark.slow)])
def test_a_model_of_onnx_goes_the_whole_way(name, tmp_path):
    """A convnet and a transformer as files of ONNX: on the same inputs the kernels give what ONNX Runtime gives."""
    pytest.importorskip("onnxruntime")
    model, folder = tmp_path / f"{name}.onnx", tmp_path / "out"
    assert run_ptir("translate", FOLDER / f"{name}.ptir", "-o", model).status == 0
    found = run_ptir("translate", model, "--to", "pto-cpp", "--target", "a3", "-o", f"{folder}/", "--check-with", BUILDS)
    assert found.status == 0 and found.out == b"", found.err
    assert "compares with onnxruntime" in found.err and "PASS: " in found.err and "says nothing" not in found.err
    assert {"kernels.cpp", "main.cpp", "main", "data"} == {path.name for path in folder.iterdir()}


@compiled
@pytest.mark.parametrize("text, more", [(SUM, ()), (ROWS, ("--bind", "N=37"))])
@pytest.mark.parametrize("target", ["a3", "a5"])
def test_a_program_is_compared_with_the_reference(text, more, target, tmp_path):
    """Scalars, constants and open extents are read from files, too; the text goes to standard output."""
    found = translated(tmp_path, text, *more, "--check-with", BUILDS, target=target)
    assert found.status == 0 and "compares with the reference engine" in found.err and "PASS: " in found.err, found.err
    assert found.out == translated(tmp_path, text, *more, "-o", "-", target=target).out


@compiled
def test_a_launch_on_several_cores_runs_them_between_their_barriers(tmp_path):
    """Rows are split over three cores; then all meet, and columns are split."""
    found = translated(
        tmp_path, PROGRAMS["columns"], "--cores", "3", "-o", f"{tmp_path}/out/", "--check-with", f"{BUILDS} -pthread"
    )
    assert found.status == 0 and "PASS: " in found.err, found.err
    text = (tmp_path / "out" / "kernels.cpp").read_text()
    assert "get_block_idx()" in text and text.count("SYNCALL<SyncCoreType::AIVOnly>();") == 1
    assert "launched.emplace_back" in (tmp_path / "out" / "main.cpp").read_text()


@compiled
def test_a_folder_holds_what_a_run_needs_but_the_inputs(tmp_path):
    folder = tmp_path / "out"
    assert translated(tmp_path, SUM, "-o", f"{folder}/").status == 0
    assert translated(tmp_path, SUM).out == (folder / "kernels.cpp").read_bytes()
    assert [path.name for path in (folder / "data").iterdir()] == ["w.bin"]
    assert np.array_equal(np.fromfile(folder / "data" / "w.bin", np.float32), np.arange(40))
    build = [word.format(source=folder / "main.cpp", binary=folder / "main") for word in shlex.split(STUBBED)]
    assert subprocess.run(build, check=False).returncode == 0
    x = np.ones((4, 40), np.float32)
    for name, value in {"x": x, "n": np.float32(3), "y": x}.items():
        value.tofile(folder / "data" / f"{name}.bin")
    assert subprocess.run([folder / "main"], cwd=folder, check=False).returncode == 0
    assert np.array_equal(np.fromfile(folder / "data" / "y.out", np.float32).reshape(4, 40), 3 * x + np.arange(40))
    (folder / "data" / "x.bin").unlink()
    ran = subprocess.run([folder / "main"], cwd=folder, check=False, capture_output=True, text=True)
    assert ran.returncode == 1 and ran.stderr == "data/x.bin cannot be read\n"


@compiled
def test_kernels_that_compute_something_else_are_found(tmp_path):
    wrong = f"sh -c 'sed -i s/TMUL/TADD/ $(dirname {{source}})/kernels.cpp && {STUBBED}'"
    found = translated(tmp_path, SUM, "--check-with", wrong.replace("TMULS", "TADDS"))
    assert found.status == 1 and "CheckFailed" in found.err and "FAIL: " in found.err, found.err


@pytest.mark.parametrize(
    "command, status, said",
    [
        ("false {source}", 1, "`false` does not build"),
        ("sh -c 'echo some error >&2; exit 3' {source}", 1, "note: some error"),
        ("nothing_that_there_is {source} {binary}", 2, "nothing_that_there_is: no such file"),
        ("c++ -o {binary}", 2, "names no {source}"),
        ("c++ '{source}", 2, "no closing quotation"),
        ("sh -c 'ln -s /bin/false \"$1\"' sh {binary} {source}", 1, "the program that was built fails: exit status 1"),
        ("sh -c 'ln -s /bin/true \"$1\"' sh {binary} {source}", 1, "the program that was built leaves no x.out of 640 bytes"),
    ],
)
def test_commands_that_fail(command, status, said, tmp_path):
    found = translated(tmp_path, SUM, "--check-with", command)
    assert found.status == status and said in found.err and "Traceback" not in found.err, found.err


def test_other_formats_have_no_host_program(tmp_path):
    (tmp_path / "m.ptir").write_text(SUM)
    found = run_ptir("translate", tmp_path / "m.ptir", "--to", "pto", "--check-with", "c++ {source}")
    assert found.status == 2 and "--check-with is for pto-cpp, not for pto" in found.err
