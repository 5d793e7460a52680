"""Results appear whole or not at all."""

from __future__ import annotations

import json
import os
import stat
import threading
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from ptir_tools.cli.output import replacing, write_text
from ptir_tools.core import arrayfiles
from tests.conftest import run_ptir

PROGRAM = "%0 = Input {name=x} : tensor<f32[2]>\n%1 = Neg (%0) : tensor<f32[2]>\noutputs: %1\n"


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("old")
    with pytest.raises(RuntimeError), replacing(str(path)) as file:
        file.write(b"half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_mode_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("old")
    path.chmod(0o640)
    write_text(str(path), ["new"])
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_new_file_obeys_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text(str(tmp_path / "out"), ["new"])
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o640


def test_a_symbolic_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_text(str(tmp_path / "link"), ["new"])
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_a_pipe_is_written_directly(tmp_path: Path) -> None:
    path, got = tmp_path / "pipe", []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: got.append(path.read_text()))
    reader.start()
    write_text(str(path), ["through"])
    reader.join()
    assert got == ["through"]
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_a_device_is_written_directly() -> None:
    write_text("/dev/null", ["x"])
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("target", ["missing/out", "."])
def test_what_cannot_be_written_is_an_io_error(target: str, tmp_path: Path) -> None:
    ran = run_ptir("fmt", "-", "-o", str(tmp_path / target), stdin=PROGRAM.encode())
    assert ran.status == 4
    assert str(tmp_path / target).removesuffix("/.") in ran.err


def test_in_and_out_may_be_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "p.ir"
    path.write_text(PROGRAM.replace("  ", " "))
    assert run_ptir("opt", path, "-o", path).status == 0
    assert path.read_text() == PROGRAM


def test_a_rejected_program_leaves_the_old_output(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("old")
    ran = run_ptir("opt", "-", "-o", path, stdin=PROGRAM.replace("Neg (%0)", "Neg (%9)").encode())
    assert ran.status == 1
    assert path.read_text() == "old"


@pytest.mark.parametrize("suffix", ["npy", "npz", "safetensors"])
def test_outputs_of_run(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"o.{suffix}"
    assert run_ptir("run", "-", "--input", "x=[1, -2]", "-o", path, stdin=PROGRAM.encode()).status == 0
    assert path.stat().st_size > 0
    if suffix == "npz":
        with np.load(path, allow_pickle=False) as archive:
            np.testing.assert_array_equal(archive["1"], np.array([-1, 2], np.float32))


def test_output_files_are_the_same_bytes_every_time(tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz"):
        run_ptir("run", "-", "--input", "x=[1, -2]", "-o", tmp_path / name, stdin=PROGRAM.encode())
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_outputs_stand_in_result_order(suffix: str, tmp_path: Path) -> None:
    program = b"""func @f(%b: tensor<i1>, %a: tensor<bf16, 2>) -> (tensor<f32>, tensor<i1>, tensor<bf16, 2>, tensor<f64>) {
  %z = constant() value[dense<1.5>] -> tensor<f32>
  %c = constant() value[dense<2.5>] -> tensor<f64>
  return %z, %b, %a, %c
}
"""
    path = tmp_path / f"o.{suffix}"
    assert run_ptir("run", "-", "--random", "0", "-o", path, stdin=program).status == 0
    assert list(arrayfiles.Archive(str(path)).names) == ["z", "b", "a", "c"]
    found = arrayfiles.load_all(str(path))
    assert list(found) == ["z", "b", "a", "c"] and arrayfiles.load(str(path), "a").tobytes() == found["a"].tobytes()
    if suffix == "safetensors":
        data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        assert list(header) == ["z", "b", "a", "c"] and size % 8 == 0
        assert all(header[name]["data_offsets"][0] % array.itemsize == 0 for name, array in found.items())
        theirs = load_file(path)  # as the library reads it
        for name, array in found.items():
            np.testing.assert_array_equal(theirs[name], array)


def test_what_was_read_from_a_file_stays_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`opt` and `translate` refer to weights from where they write; other formats, and what is computed anew, hold them."""
    (tmp_path / "sub").mkdir()
    np.savez(tmp_path / "w.npz", k=np.arange(40, dtype=np.float32))
    text = """func @f(%x: tensor<f32, 40>) -> tensor<f32, 40> {
  %c = constant() value[dense<@w.npz:k>] -> tensor<f32, 40>
  %n = neg(dense<@w.npz:k> : tensor<f32, 40>) -> tensor<f32, 40>
  %y = mul(%x, %c) -> tensor<f32, 40>
  %z = div(%y, %n) -> tensor<f32, 40>
  return %z
}
"""
    (tmp_path / "m.ptir").write_text(text)
    monkeypatch.chdir(tmp_path)
    there = Path("sub", "m.ptir")
    assert run_ptir("translate", "m.ptir", "--to", "ptir").out.decode() == text
    assert run_ptir("opt", "-p", "dce", "m.ptir", "-o", there).status == 0
    assert there.read_text() == text.replace("@w", "@../w")
    assert "is outside of the program's folder" in run_ptir("opt", "-p", "dce", there).err
    assert run_ptir("opt", "-p", "dce", there, "--weights-root", ".").out.decode() == text
    folded = run_ptir("opt", "-p", "fold", there, "--weights-root", ".").out
    assert folded.count(b"@w.npz:k") == 1 and folded.count(b"dense<[-0.0, -1.0, -2.0") == 1
    assert run_ptir("hash", there, "--weights-root", ".").out.split()[0] == run_ptir("hash", "m.ptir").out.split()[0]
    assert b"w.npz" not in run_ptir("translate", there, "--to", "ptir-json", "--weights-root", ".").out


def test_names_in_messages_cannot_drive_a_terminal(tmp_path: Path) -> None:
    ran = run_ptir("opt", "no\x1b[31m\x07such")
    assert ran.status == 4 and ran.err == "error[IOError]: no such file or directory\n --> no\\x1b[31m\\x07such\n"
    (tmp_path / "loop").symlink_to("loop")
    ran = run_ptir("opt", "testdata/verify/ok.ptir", "-o", tmp_path / "loop")
    assert ran.status == 4 and "error[IOError]: too many levels" in ran.err and f"{tmp_path}/loop" in ran.err


# The options of a command that write a file, and how the command is called.
WRITES = {
    ("opt",): ("--output", "--weights-to", "--trace", "--log-rewrites"),
    ("translate", "--to", "tiny"): ("--output", "--weights-to", "--constants"),
    ("run", "--random", "0"): ("--output", "--save-inputs", "--save-values", "--trace", "--timing-to"),
}
PAIRS = [(command, pair) for command, options in WRITES.items() for pair in combinations(options, 2)]


@pytest.mark.parametrize(("command", "pair"), PAIRS, ids=[" ".join((c[0], *pair)) for c, pair in PAIRS])
def test_two_results_do_not_go_to_one_file(command: tuple[str, ...], pair: tuple[str, str], tmp_path: Path) -> None:
    """Also where it has two names."""
    (tmp_path / "link.npz").symlink_to(tmp_path / "f.npz")
    for other in ("f.npz", "link.npz"):
        words = (pair[0], tmp_path / "f.npz", pair[1], tmp_path / other)
        ran = run_ptir(*command, *words, "testdata/verify/ok.ptir")
        assert ran.status == 2 and f"{pair[0]} and {pair[1]} name one file, {tmp_path / other}" in ran.err
        assert [path.name for path in tmp_path.iterdir()] == ["link.npz"]


SINGLE = [(command, option) for command, options in WRITES.items() for option in options if option != "--output"]


@pytest.mark.parametrize(("command", "option"), SINGLE, ids=[f"{command[0]} {option}" for command, option in SINGLE])
def test_no_option_overwrites_the_program_that_is_read(command: tuple[str, ...], option: str, tmp_path: Path) -> None:
    path = tmp_path / "program.npz"
    path.write_text("func @f() { }")
    ran = run_ptir(*command, option, path, path)
    assert ran.status == 2 and f"{option} would overwrite {path}, which is read" in ran.err
    assert path.read_text() == "func @f() { }"


def test_a_log_of_before_stays_when_no_program_is_read(tmp_path: Path) -> None:
    """A name that was meant as the program's is that of the log."""
    path = tmp_path / "program.ptir"
    path.write_text("what was here")
    ran = run_ptir("opt", "--log-rewrites", path)
    assert ran.status == 1 and path.read_text() == "what was here"
    assert run_ptir("opt", "--log-rewrites", path, "testdata/verify/ok.ptir").status == 0 and path.read_text() == ""


def test_two_results_may_go_to_one_device() -> None:
    assert run_ptir("opt", "--trace", "/dev/null", "--log-rewrites", "/dev/null", "testdata/verify/ok.ptir").status == 0


@pytest.mark.parametrize(
    ("line", "begins"),
    [
        ("graph -o {}/x.svg", "<svg"),
        ("graph -o {}/x.HTML", "<!doctype"),
        ("graph -o {}/x.dot", "digraph"),
        ("graph -o {}/x.txt", "digraph"),
        ("graph --to dot -o {}/x.svg", "digraph"),
        ("plan -o {}/x.svg", "<svg"),
        ("plan -o {}/x.json", "{{"),
        ("plan -o {}/x.csv", "id,"),
        ("plan -o {}/x.txt", "@softmax: peak"),
    ],
)
def test_the_suffix_of_the_file_says_the_form(line: str, begins: str, tmp_path: Path) -> None:
    ran = run_ptir(*line.format(tmp_path).split(), "testdata/plan/softmax.ptir")
    assert ran.status == 0 and ran.err == ""
    assert next(tmp_path.iterdir()).read_text().lower().startswith(begins.format().lower())
