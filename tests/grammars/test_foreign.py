"""Files in formats of others are named, with what to do about them."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from ptir_tools import api
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.limits import Limits
from ptir_tools.core.violations import Violation
from ptir_tools.dialects import writing
from ptir_tools.dialects.foreign import FOREIGN, foreign
from ptir_tools.dialects.reading import decode
from ptir_tools.dialects.sniff import sniff_bytes
from tests.conftest import EVERY_FORMAT, Ran, run_ptir


def field(number: int, payload: bytes) -> bytes:
    """A length-delimited field of protobuf, of at most 127 bytes."""
    return bytes((number << 3 | 2, len(payload))) + payload


def archive(*names: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        for name in names:
            made.writestr(name, b"x")
    return out.getvalue()


def saved(write: Callable[..., None], *arguments: object) -> bytes:
    out = io.BytesIO()
    write(out, *arguments)
    return out.getvalue()


HEADER = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
GRAPH = field(7, field(1, b"\x0a\x01x\x12\x01y\x22\x04Relu") + field(2, b"g"))
HLO = "module @jit_f {\n  func.func public @main(%arg0: tensor<2xf32>) -> tensor<2xf32> {\n    %0 = {} %arg0\n  }\n}\n"
CASES: dict[str, tuple[bytes, str]] = {
    "mhlo": (HLO.replace("{}", "mhlo.tanh").encode(), "MLIR of MHLO"),
    "tosa": (HLO.replace("{}", "tosa.tanh").encode(), "MLIR of other dialects"),
    "aliases": (b"#map = affine_map<(d0) -> (d0)>\n" + HLO.replace("{}", "linalg.generic").encode(), "MLIR of other dialects"),
    "hlo": (b"HloModule jit_f, entry_computation_layout={(f32[2]{0})->f32[2]{0}}\n", "HLO text of XLA"),
    "safetensors": (len(HEADER).to_bytes(8, "little") + HEADER + b"\0" * 4, "a safetensors file"),
    "gguf": (b"GGUF\x03\0\0\0", "a GGUF file"),
    "npy": (saved(lambda out: np.save(out, np.zeros(2))), "a NumPy array"),
    "npz": (saved(lambda out: np.savez(out, a=np.zeros(2))), "a NumPy archive"),
    "torch": (archive("model/data.pkl", "model/version"), "a PyTorch file"),
    "zip": (archive("a.ptir"), "a zip archive"),
    **{f"pickle of protocol {n}": (pickle.dumps({"a": 1}, n), "a Python pickle") for n in range(2, pickle.HIGHEST_PROTOCOL + 1)},
    "html": (b"\n<!DOCTYPE html>\n<html></html>", "an HTML page"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a pointer of Git LFS"),
    "python": (b"# a model\nimport numpy as np\n", "Python"),
}


def refused(data: bytes) -> Ran:
    ran = run_ptir("verify", "--diagnostics", "json", "-", stdin=data)
    assert ran.status == 1, ran.text
    return ran


@pytest.mark.parametrize("name", CASES)
def test_a_foreign_file_is_named(name: str) -> None:
    data, what = CASES[name]
    found = next(entry for entry in FOREIGN if entry.name == what)
    (line,) = refused(data).text.splitlines()
    said = json.loads(line)
    assert said["code"] == "UnknownFormat" and said["message"].startswith(f"this is {what}") and said["help"] == found.help


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("%0 = x\n", False),
        ("\ufeff%0 = x\n", True),
        ("%0 = x\r\n", True),
        ("\ufeff%0 = x\r\n", True),
        ("", False),
        ("a\rb\n", False),
    ],
)
def test_a_text_is_kept_as_it_came_where_it_is_read_as_another(text: str, kept: bool) -> None:
    """Without a byte-order mark, lines end as `\\n`."""
    source = decode(text.encode(), "a.ptir", Diagnostics(), Limits(), "ptir")
    assert source is not None and source.raw == (text if kept else None)
    assert source.text == text.replace("\ufeff", "").replace("\r\n", "\n")


def test_what_a_writer_cannot_write_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that was not verified may be one that a writer cannot write."""

    def write(*_: object) -> str:
        raise Violation("InvalidShape", "no such shape")

    monkeypatch.setattr(writing, "load_format", lambda form: SimpleNamespace(write=write))
    program, found = api.read("testdata/verify/ok.ptir"), Diagnostics()
    assert writing.program_text(program, "ptir", found, Options()) == []
    assert [(d.code, d.message) for d in found] == [("InvalidShape", "no such shape")]


@pytest.mark.parametrize("data", [b"\x08\x0a" + field(2, b"pytorch") + GRAPH + field(8, b"\x10\x12"), b"\x08\x08" + GRAPH])
def test_an_onnx_model_is_recognized(data: bytes) -> None:
    assert sniff_bytes(data) == "onnx"
    assert sniff_bytes(data[:2]) is None


@pytest.mark.parametrize("path", EVERY_FORMAT)
def test_a_program_is_not_foreign(path: object) -> None:
    with open(str(path), "rb") as file:
        assert foreign(file.read()) is None


@pytest.mark.parametrize("size", [1, 2, 3, 9, 20])
def test_a_part_of_a_file_is_no_fault(size: int) -> None:
    for data, _ in CASES.values():
        refused(data[:size])


def test_a_text_that_only_mentions_another_dialect_is_pto() -> None:
    text = b"// not stablehlo.add\nmodule {\n  func.func @f() {\n    %a = pto.constant 1 : index\n    return\n  }\n}\n"
    assert foreign(text) is None
    assert run_ptir("verify", "-", stdin=text).status == 0
