"""Array files that others have written, well or with bad intent: what they hold, or what is wrong with them; never a traceback,
another number, or memory that a header asks for."""

from __future__ import annotations

import json
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ptir_tools
from tests.conftest import ROOT, Ran

Ptir = Callable[..., Ran]
X = np.arange(6, dtype=np.float32).reshape(2, 3)
DATA = X.tobytes()
GIB = 1 << 30


def npy(
    descr: Any = "<f4", shape: Any = (2, 3), data: bytes = DATA, fortran: bool = False, major: int = 1, header: str | None = None
) -> bytes:
    """The bytes of a .npy file with this header; `header` takes its place."""
    text = (repr({"descr": descr, "fortran_order": fortran, "shape": shape}) if header is None else header).encode() + b"\n"
    return b"\x93NUMPY" + bytes([major, 0]) + struct.pack("<H" if major == 1 else "<I", len(text)) + text + data


def safe(header: Any, data: bytes = DATA, size: int | None = None) -> bytes:
    """The bytes of a .safetensors file with this header, and the length that it gives it."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + data


ENTRY = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
RIGHT = {
    "big-endian": npy(">f4", data=X.astype(">f4").tobytes()),
    "columns": npy(data=X.tobytes("F"), fortran=True),
    "big-endian columns": npy(">f4", data=X.astype(">f4").tobytes("F"), fortran=True),
    "version 2": npy(major=2),
    "version 3": npy(major=3),
    "more than it needs": npy(data=DATA + b"more"),
    "raw bytes": npy("|V4"),
}
WRONG = {
    "objects": (npy("|O", data=b"cos\nsystem\n(S'echo read'\ntR."), "it holds Python objects"),
    "objects in a record": (npy([("a", "|O")], (3,)), "it holds Python objects"),
    "pickle": (pickle.dumps(X), "magic string"),
    "negative": (npy(shape=(-2, 3)), "its shape is [-2, 3]"),
    "negative twice": (npy(shape=(-2, -3)), "its shape is [-2, -3]"),
    "overflowing": (npy(shape=(2**62, 4)), "its header says 73786976294838206464 bytes"),
    "cut short": (npy(data=DATA[:-3]), "bytes"),
    "no data": (npy(data=b""), "bytes"),
    "empty": (b"", "magic string"),
    "magic alone": (b"\x93NUMPY", "magic string"),
    "version 9": (npy(major=9), "its format is version 9.0"),
    "header beyond the file": (b"\x93NUMPY\x01\x00" + struct.pack("<H", 60_000) + b"{", "its header is cut short"),
    "header of 4 GB": (b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + b"{", "its header has 4294967295 bytes"),
    "nested header": (npy(header="(" * 9000), "its header is malformed"),
    "many signs": (npy(header="-" * 50_000 + "1"), "its header is malformed"),
    "a call": (npy(header="__import__('os').system('echo read')"), "its header is malformed"),
    "another key": (npy(header="{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'x': 1}"), "its header is malformed"),
    "text in the shape": (npy(shape=("2", 3)), "its header is malformed"),
    "float in the shape": (npy(shape=(2.0, 3)), "its header is malformed"),
    "no tuple": (npy(shape=6), "its header is malformed"),
}
UNFIT = {
    "rank 33": (npy(shape=(1,) * 33, data=bytes(4)), "shape"),
    "rank 1000": (npy(shape=(1,) * 1000, data=bytes(4)), "shape"),
    "empty and overflowing": (npy(shape=(2**70, 0), data=b""), "shape"),
    "record": (npy([("a", "<f4"), ("b", "<i4")], (2, 3), bytes(48)), "('a', '<f4')"),
    "dates": (npy("<M8[ns]", data=bytes(48)), "datetime64"),
    "strings": (npy("<U2", data=bytes(48)), "<U2"),
    "long double": (npy("<f16", data=bytes(96)), "float128"),
    "complex": (npy("<c8", data=bytes(48)), "complex64"),
}
SAFE_WRONG = {
    "overlapping": (safe({"x": ENTRY, "y": {"dtype": "F32", "shape": [1], "data_offsets": [20, 24]}}), "`x` and `y` share bytes"),
    "out of range": (safe({"x": {**ENTRY, "data_offsets": [0, 28]}}), "`x` has the bytes 0 to 28 of 24"),
    "another entry out of range": (safe({"x": ENTRY, "y": {**ENTRY, "data_offsets": [24, 48]}}), "`y` has the bytes 24 to 48"),
    "before the data": (safe({"x": {**ENTRY, "data_offsets": [-4, 20]}}), "`x` has the bytes -4 to 20 of 24"),
    "backwards": (safe({"x": {**ENTRY, "data_offsets": [24, 0]}}), "`x` has the bytes 24 to 0 of 24"),
    "huge": (safe({"x": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}), "`x` has the bytes 0 to"),
    "another size": (safe({"x": {**ENTRY, "data_offsets": [0, 20]}}), "`x` has the bytes 0 to 20, its type 24"),
    "negative": (safe({"x": {**ENTRY, "shape": [-2, -3]}}), "its shape is [-2, -3]"),
    "float in the shape": (safe({"x": {**ENTRY, "shape": [2.0, 3]}}), "no usable entry for `x`"),
    "truth in the shape": (safe({"x": {**ENTRY, "shape": [True, 6]}}), "no usable entry for `x`"),
    "three offsets": (safe({"x": {**ENTRY, "data_offsets": [0, 24, 24]}}), "no usable entry for `x`"),
    "no shape": (safe({"x": {"dtype": "F32", "data_offsets": [0, 24]}}), "no usable entry for `x`"),
    "a number": (safe({"x": 3}), "no usable entry for `x`"),
    "a list": (safe([1]), "its header is not a table"),
    "nothing": (safe(b"null"), "its header is not a table"),
    "no JSON": (safe(b"zzz"), "not a readable .safetensors file"),
    "a key twice": (safe(b'{"x":1,"x":1}'), "its header repeats a key"),
    "an unknown dtype": (safe({"x": {**ENTRY, "dtype": "F9"}}), "unknown dtype F9"),
    "deep": (safe(b"[" * 200_000), "recursion"),
    "many digits": (safe(b'{"x":' + b"9" * 5000 + b"}"), "not a readable .safetensors file"),
    "length 2^63": (safe({"x": ENTRY}, size=2**63), "its header has 9223372036854775808 bytes"),
    "length 0": (safe({"x": ENTRY}, size=0), "not a readable .safetensors file"),
    "cut short": (safe({"x": ENTRY})[:30], "its header is cut short"),
    "two bytes": (b"\1\2", "its header is cut short"),
}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Doubles `x`."""
    t = "tensor<f32, 2x3>"
    path = tmp_path / "program.ptir"
    path.write_text(f"func @f(%x: {t}) -> {t} {{\n  %z = add(%x, %x) -> {t}\n  return %z\n}}\n", "utf-8")
    return path


def reader(folder: Path, file: str, dtype: str = "f32") -> Path:
    """A program that gives the array `x` of a file."""
    t, path = f"tensor<{dtype}, 2x3>", folder / "reader.ptir"
    path.write_text(f"func @f() -> {t} {{\n  %w = constant() value[dense<@{file}:x>] -> {t}\n  return %w\n}}\n", "utf-8")
    return path


def zipped(path: Path, data: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", data)
    return path


def refused(ran: Ran, status: int, said: str) -> None:
    assert ran.status == status and said in ran.err and "Traceback" not in ran.err and "Errno" not in ran.err, ran


@pytest.mark.parametrize("name", RIGHT)
def test_every_layout_of_npy_gives_its_numbers(name: str, ptir: Ptir, program: Path, tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(RIGHT[name])
    zipped(tmp_path / "x.npz", RIGHT[name])
    out = tmp_path / "out.npz"
    for how in (("--input", f"x=@{tmp_path / 'x.npy'}"), ("--inputs", str(tmp_path / "x.npz"))):
        ran = ptir("run", program, *how, "-o", out)
        assert ran.status == 0, ran
        np.testing.assert_array_equal(np.load(out)["z"], X + X)
    got = ptir_tools.run(ptir_tools.read(reader(tmp_path, "x.npz")), [])
    np.testing.assert_array_equal(next(iter(got.values())), X)


@pytest.mark.parametrize("name", WRONG)
def test_npy_files_that_are_wrong(
    name: str, ptir: Ptir, program: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data, said = WRONG[name]
    (tmp_path / "x.npy").write_bytes(data)
    file = zipped(tmp_path / "x.npz", data)
    refused(ptir("run", program, "--input", f"x=@{tmp_path / 'x.npy'}"), 4, said)
    refused(ptir("run", program, "--inputs", file), 4, said)
    refused(ptir("verify", reader(tmp_path, "x.npz")), 1, said)
    assert "read\n" not in capfd.readouterr().out  # nothing in a file is run


@pytest.mark.parametrize("name", UNFIT)
def test_npy_files_that_do_not_fit(name: str, ptir: Ptir, program: Path, tmp_path: Path) -> None:
    data, said = UNFIT[name]
    file = zipped(tmp_path / "x.npz", data)
    refused(ptir("run", program, "--inputs", file), 2, said)
    refused(ptir("verify", reader(tmp_path, "x.npz")), 1, said)


@pytest.mark.parametrize("name", SAFE_WRONG)
def test_safetensors_files_that_are_wrong(name: str, ptir: Ptir, program: Path, tmp_path: Path) -> None:
    data, said = SAFE_WRONG[name]
    (file := tmp_path / "x.safetensors").write_bytes(data)
    refused(ptir("run", program, "--inputs", file), 4, said)
    refused(ptir("run", program, "--input", f"x=@{file}:x"), 4, said)
    refused(ptir("verify", reader(tmp_path, file.name)), 1, said)


KINDS: dict[str, Any] = {
    "f32": "f4", "f16": "f2", "bf16": ml_dtypes.bfloat16, "si8": "i1", "si64": "i8", "ui32": "u4", "i1": "?", "cf32": "c8",
}  # fmt: skip


@pytest.mark.parametrize("end", ["npz", "safetensors"])
@pytest.mark.parametrize("dtype", KINDS)
def test_weights_that_are_written_are_weights_that_are_read(dtype: str, end: str, tmp_path: Path) -> None:
    kind = np.dtype(KINDS[dtype])
    want = (np.arange(18) % 7 - 3).astype(kind).reshape(6, 3) if dtype[0] != "u" else np.arange(18, dtype=kind).reshape(6, 3)
    graph = ptir_tools.Graph("f")
    text = ptir_tools.write(graph.returns(graph.constant(want)), "ptir", weights=tmp_path / f"w.{end}")
    assert f"@w.{end}:" in text
    (tmp_path / "p.ptir").write_text(text, "utf-8")
    (got,) = ptir_tools.run(ptir_tools.read(tmp_path / "p.ptir"), []).values()
    assert got.dtype == want.dtype and got.tobytes() == want.tobytes()


def test_a_weight_that_the_type_cannot_hold(ptir: Ptir, tmp_path: Path) -> None:
    zipped(tmp_path / "x.npz", npy(data=np.float32([1, 2, 3, 4, 5, 1.001]).tobytes()))
    refused(ptir("verify", reader(tmp_path, "x.npz", "bf16")), 1, "`x` has 1.00100")


def test_a_name_with_nul_is_refused(ptir: Ptir, program: Path, tmp_path: Path) -> None:
    refused(ptir("verify", reader(tmp_path, "a\0b.npz")), 1, "a NUL character is in no program")
    for line in (("verify", "a\0b"), ("fmt", program, "-o", "a\0b"), ("run", program, "--inputs", "a\0.npz")):
        refused(ptir(*line), 2, "an argument has a NUL character")


def sparse(path: Path, begins: bytes, size: int) -> Path:
    """A file of a size that takes no room on the disk."""
    with open(path, "wb") as file:
        file.write(begins)
        file.truncate(size)
    return path


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits memory as Linux does")
@pytest.mark.parametrize("kind", ["npy header", "npy", "safetensors header", "safetensors", "table", "program", "archive"])
def test_what_a_header_asks_for_takes_no_memory(kind: str, program: Path, tmp_path: Path) -> None:
    """Files of 4 GB, under a limit of 1 GB."""
    entry = json.dumps({"x": {"dtype": "F32", "shape": [GIB], "data_offsets": [0, 4 * GIB]}}).encode()
    lists = b'{"x":[' + b"[]," * ((1 << 24) // 3 - 4) + b"[]]}"
    name, begins = {
        "npy header": ("x.npy", b"\x93NUMPY\x02\x00" + struct.pack("<I", 3 * GIB) + b"{"),
        "npy": ("x.npy", npy(shape=(GIB,), data=b"")),
        "safetensors header": ("x.safetensors", struct.pack("<Q", 3 * GIB) + b"{"),
        "safetensors": ("x.safetensors", safe(entry, b"")),
        "table": ("x.safetensors", safe(lists, b"")),
        "program": ("x.ptir", b"func @f"),
        "archive": ("x.npz", b"PK"),
    }[kind]
    file = sparse(tmp_path / name, begins, 5 * GIB)
    line = (
        ["verify", file]
        if kind == "program"
        else ["run", program, *(["--input", f"x=@{file}"] if name == "x.npy" else ["--inputs", file])]
    )
    script = f"import resource, sys; resource.setrlimit(resource.RLIMIT_DATA, ({GIB}, {GIB})); sys.argv[0] = 'ptir'"
    script += "; from ptir_tools.cli import main; sys.exit(main())"
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", script, *map(str, line)], capture_output=True, cwd=ROOT, env=environment, check=False
    )
    assert ran.returncode in (2, 3, 4) and b"Traceback" not in ran.stderr and b"memory" not in ran.stderr.lower(), ran.stderr


ODD = ["{folder}/no/x", "/proc/1/x", "{folder}/" + "a" * 300, "{folder}/loop/x", "{program}/x"]
DEVICES = ["{folder}", "/dev/full", "/", "/dev/fd/987"]  # for what needs no suffix; no one has so many files open
WRITERS = {
    "fmt": "fmt {program} -o {out}",
    "opt": "opt {program} -o {out}",
    "canonicalize": "canonicalize {program} -o {out}",
    "translate": "translate --to mind {program} -o {out}",
    "plan": "plan {program} -o {out}",
    "outputs": "run {program} --random 0 -o {out}.npz",
    "outputs as npy": "run {program} --random 0 -o {out}.npy",
    "outputs as safetensors": "run {program} --random 0 -o {out}.safetensors",
    "inputs": "run {program} --random 0 --save-inputs {out}.npz",
    "times": "run {program} --random 0 --timing-to {out}.json",
    "trace": "run {program} --random 0 --trace {out}.json",
    "dump": "run {program} --random 0 --dump-dir {out}",
    "reduced": "reduce {program} --check false -o {out}",
}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="names of files of Linux")
@pytest.mark.parametrize("writer", WRITERS)
def test_odd_places_to_write_to(writer: str, ptir: Ptir, program: Path, tmp_path: Path) -> None:
    """What cannot be written is said, the program stays, and nothing half written is left; a folder is made where one is asked
    for."""
    before, line = program.read_bytes(), WRITERS[writer]
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for odd in ODD if "{out}." in line or writer == "dump" else ODD + DEVICES:
        ran = ptir(*line.format(program=program, out=odd.format(folder=tmp_path, program=program)).split())
        if ran.status == 0:
            assert odd == "{folder}/no/x" and writer == "dump"
        else:
            assert ran.status in (1, 2, 4) and ran.err.startswith("error") and "Traceback" not in ran.err, (odd, ran)
            assert {p.name for p in tmp_path.iterdir()} <= {"program.ptir", "loop", "no"}, odd
        assert program.read_bytes() == before, odd
