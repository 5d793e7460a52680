"""What happens around a reader: decoding, folders of traces, arrays outside of the text, and numbers for symbols."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import ptir_tools as ptir
from ptir_tools.core.diagnostics import Diagnostics, Rejected, UsageError
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.dtypes import BF16, F32, I1, SI8, SI32, DType
from ptir_tools.core.ir import Literal
from ptir_tools.core.limits import LIMITS, LimitExceeded, Limits, using
from ptir_tools.core.records import replace
from ptir_tools.core.source import Source
from ptir_tools.core.types import tensor
from ptir_tools.core.violations import LITERAL, Violation
from ptir_tools.dialects import external, reading, weights
from tests.conftest import run_ptir

TEXT = "func @f(%x: tensor<f32, ?Nx?M>, %y: tensor<f32, ?N>) -> tensor<f32, ?Nx?M> {\n  return %x\n}\n"


def program_of(text: str, form: str = "ptir", **options: Any) -> tuple[Program, Diagnostics]:
    found = Diagnostics()
    program = reading.read(Source("f", text), found, Options(**options), form)
    assert program is not None
    return program, found


# ---- bytes


@pytest.mark.parametrize("size", [0, 1, 40])
def test_a_file_of_as_many_bytes_as_the_limit_is_decoded(size: int) -> None:
    for more in (0, 1):
        found, limits = Diagnostics(), replace(LIMITS, file_bytes=size)
        if more:
            with pytest.raises(LimitExceeded, match=f"more than {size} bytes") as caught:
                reading.decode(b"x" * (size + 1), "name", found, limits)
            assert (
                caught.value.flag == "--max-file-bytes" and caught.value.source is not None and caught.value.source.name == "name"
            )
        else:
            source = reading.decode(b"x" * size, "name", found, limits)
            assert (
                source is not None
                and (source.text, source.name, source.raw) == ("x" * size, "name", None)
                and found.source is source
            )


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_mark_and_line_ends_are_dropped_and_kept_aside(mark: str, end: str) -> None:
    text = f"{mark}é{end}b{end}"
    source = reading.decode(text.encode(), "f", Diagnostics(), LIMITS)
    assert source is not None and source.text == "é\nb\n" and source.raw == (None if (mark, end) == ("", "\n") else text)


@pytest.mark.parametrize("before", ["", "\ufeff", "func @é\r\n", "\ufefffunc\r\n\r\n"])
def test_the_first_byte_that_is_no_text_is_named(before: str) -> None:
    found, data = Diagnostics(), before.encode()
    assert reading.decode(data + b"a\xff\xfe", "f", found, LIMITS, "ptir") is None
    (error,) = found.items
    offset = len(data) + 1
    assert error.message == f"byte 0xff at offset {offset} is not UTF-8" and error.help is None
    at = len(before.removeprefix("\ufeff").replace("\r\n", "\n")) + 1
    assert error.span is not None and (error.span.start, error.span.end) == (at, at + 1)
    assert error.source is not None and error.source.text[at] == "\ufffd"


# ---- folders of traces


def traced(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / getattr(reading.trace, name)).write_text(text)
    return folder


def test_the_program_of_a_trace_is_its_structure_or_else_its_payloads(tmp_path: Path) -> None:
    structure, payloads = reading.trace.STRUCTURE, reading.trace.PAYLOADS
    both = traced(tmp_path / "a" / "both", STRUCTURE="s", PAYLOADS="p")
    assert reading.program_file(str(both)) == str(both / structure)
    one = traced(tmp_path / "b" / "one", PAYLOADS="p")
    assert reading.program_file(str(one)) == str(one / payloads)
    assert reading.program_file(str(tmp_path / "b")) == str(one / payloads)
    assert reading.program_file(str(tmp_path)) == str(tmp_path)  # two folders below are none of its runs
    assert reading.program_file("no/such") == "no/such"
    (tmp_path / "file").write_text("x")
    assert reading.program_file(str(tmp_path / "file")) == str(tmp_path / "file")


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ({"STRUCTURE": "s", "PAYLOADS": "p"}, {"STRUCTURE": "s", "PAYLOADS": "p"}, True),
        ({"STRUCTURE": "s"}, {"STRUCTURE": "s"}, True),
        ({"PAYLOADS": "p"}, {"PAYLOADS": "p"}, True),
        ({"STRUCTURE": "s", "PAYLOADS": "p"}, {"STRUCTURE": "t", "PAYLOADS": "p"}, False),
        ({"STRUCTURE": "s", "PAYLOADS": "p"}, {"STRUCTURE": "s", "PAYLOADS": "q"}, False),
        ({"STRUCTURE": "s", "PAYLOADS": "p"}, {"STRUCTURE": "s"}, False),
        ({"STRUCTURE": "s"}, {"STRUCTURE": "s", "PAYLOADS": "p"}, False),
        ({"PAYLOADS": "p"}, {"PAYLOADS": "q"}, False),
    ],
)
def test_a_trace_of_several_runs_is_one_program_where_they_are_the_same(
    first: dict[str, str], second: dict[str, str], same: bool, tmp_path: Path
) -> None:
    runs = [traced(tmp_path / "trace" / name, **files) for name, files in (("1", first), ("2", second), ("3", first))]
    (tmp_path / "trace" / "0_other").mkdir()
    if same:
        assert os.path.dirname(reading.program_file(str(tmp_path / "trace"))) == str(runs[0])
    else:
        with pytest.raises(UsageError, match=f"a trace of several programs; name one: {runs[0]}, {runs[1]}, {runs[2]}$"):
            reading.program_file(str(tmp_path / "trace"))


# ---- numbers


def types(program: Program) -> list[str]:
    return [str(p.type) for p in program.main.params]


@pytest.mark.parametrize(
    ("bind", "shapes", "wanted"),
    [
        ({}, {}, ["?Nx?M", "?N"]),
        ({"N": 3}, {}, ["3x?M", "3"]),
        ({}, {"x": (3, None)}, ["3x?M", "3"]),
        ({}, {"x": (None, 4), "y": (5,)}, ["5x4", "5"]),
        ({"N": 3}, {"x": (3, 4)}, ["3x4", "3"]),
        ({}, {"x": (None, None)}, ["?Nx?M", "?N"]),
    ],
)
def test_symbols_get_their_numbers(bind: dict[str, int], shapes: dict[str, Any], wanted: list[str]) -> None:
    program, found = program_of(TEXT, bind=bind, shapes=shapes)
    assert types(program) == [f"tensor<f32, {w}>" for w in wanted] and not found.items


@pytest.mark.parametrize(
    ("bind", "shapes", "said"),
    [
        ({"N": 3}, {"x": (4, None)}, r"input `x` is tensor<f32, 3?\??N?x\?M>, and cannot have the shape 4,\*"),
        ({}, {"x": (4,)}, r"cannot have the shape 4: the ranks differ"),
        ({}, {"x": (4, 5, 6)}, r"cannot have the shape 4,5,6: the ranks differ"),
        ({}, {"x": (4, None), "y": (5,)}, r"input `y` is .* cannot have the shape 5"),
        ({}, {"z": (4,)}, "no input `z` whose shape is given"),
    ],
)
def test_numbers_that_cannot_be_are_wrong_usage(bind: dict[str, int], shapes: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        program_of(TEXT, bind=bind, shapes=shapes)


def test_a_symbol_that_is_not_there_is_a_warning() -> None:
    for text, name, help in (
        (TEXT, "n", "`N`"),
        (TEXT, "batch", "its symbols are N, M"),
        (TEXT.replace("?N", "2").replace("?M", "3"), "N", "no symbols"),
    ):
        _, found = program_of(text, bind={name: 3})
        (warning,) = found.items
        assert (warning.severity, warning.code) == ("warning", "UnknownSymbol") and f"no symbol `{name}`" in warning.message
        assert warning.help is not None and help in warning.help


# ---- arrays of other files


ARRAYS: dict[str, np.ndarray] = {
    "f": np.arange(20, dtype=np.float32), "b": np.array([True, False]), "i": np.arange(6, dtype=np.int32).reshape(2, 3),
    "h": np.arange(4).astype(ml_dtypes.bfloat16),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (place := tmp_path / "in").mkdir()
    save_file(ARRAYS, str(place / "w.safetensors"))
    save_file(ARRAYS, str(tmp_path / "out.safetensors"))
    np.savez(place / "w.npz", **{n: ARRAYS[n] for n in "fbi"}, odd=np.array([2, 3], np.uint8))
    return place


STORED = {"f": (F32, (20,)), "b": (I1, (2,)), "i": (SI32, (2, 3)), "h": (BF16, (4,))}


@pytest.mark.parametrize(("file", "name"), [*(("w.safetensors", n) for n in "fbih"), *(("w.npz", n) for n in "fbi")])
def test_an_array_of_a_file_has_the_bytes_of_a_literal(file: str, name: str, folder: Path) -> None:
    dtype, shape = STORED[name]
    files = external.Files(str(folder))
    for _ in range(2):
        assert files.load(f"@{file}:{name}", tensor(dtype, shape)) == ARRAYS[name].tobytes()
    assert list(files.archives) == [str(folder / file)]


@pytest.mark.parametrize(
    ("reference", "dtype", "shape", "said"),
    [
        ("@w.bin:f", F32, (20,), "names no array"),
        ("@w.npz:", F32, (20,), "names no array"),
        ("@w.npz", F32, (20,), "names no array"),
        ("@w\0.npz:f", F32, (20,), "names no array"),
        ("@w.npz:g", F32, (20,), "cannot be read: there is no array `g`"),
        ("@no.npz:f", F32, (20,), "cannot be read: No such file"),
        ("@../out.safetensors:f", F32, (20,), "is outside of the program's folder"),
        ("@w.npz:f", SI32, (20,), "`f` has dtype float32, si32 is wanted"),
        ("@w.npz:i", SI8, (2, 3), "`i` has dtype int32, si8 is wanted"),
        ("@w.npz:f", F32, (19,), r"`f` has shape \[20\], \[19\] is wanted"),
        ("@w.npz:i", SI32, (3, 2), r"`i` has shape \[2, 3\], \[3, 2\] is wanted"),
    ],
)
def test_an_array_that_cannot_be_is_named(reference: str, dtype: DType, shape: tuple[int, ...], said: str, folder: Path) -> None:
    with pytest.raises(Violation, match=said) as caught:
        external.Files(str(folder)).load(reference, tensor(dtype, shape))
    assert (caught.value.code, caught.value.at) == ("InvalidLiteral", LITERAL)


def test_files_are_below_the_folder_or_a_root(folder: Path) -> None:
    out, wanted = "@../out.safetensors:f", tensor(F32, (20,))
    assert external.Files(str(folder), (str(folder.parent),)).load(out, wanted) == ARRAYS["f"].tobytes()
    assert external.Files(str(folder), (str(folder), str(folder.parent / "out.safetensors"))).load(out, wanted)
    (folder / "link.safetensors").symlink_to(folder.parent / "out.safetensors")
    for reference in (out, "@link.safetensors:f"):
        with pytest.raises(Violation, match="outside"):
            external.Files(str(folder), (str(folder),)).load(reference, wanted)


def test_a_literal_of_as_many_bytes_as_the_limit_is_read(folder: Path) -> None:
    files, wanted = external.Files(str(folder)), tensor(F32, (20,))
    with using(Limits(literal_bytes=80)):
        assert len(files.load("@w.npz:f", wanted)) == 80
    with using(Limits(literal_bytes=79)), pytest.raises(LimitExceeded) as caught:
        files.load("@w.npz:f", wanted)
    assert caught.value.flag == "--max-literal-bytes"


# ---- and written


def constants(*arrays: np.ndarray) -> Program:
    lines = ""
    for i, a in enumerate(arrays):
        t = f"tensor<{'f32' if a.dtype.kind == 'f' else 'si32'}, {len(a)}>"
        lines += f"  %c{i} = constant() value[dense<{a.tolist()}>] -> {t}\n"
    return program_of(f"func @f(%x: tensor<f32>) -> tensor<f32> {{\n{lines}  return %x\n}}\n")[0]


def test_long_constants_are_kept_in_a_file_once_for_each_payload(tmp_path: Path) -> None:
    one, other = np.arange(17, dtype=np.float32), np.arange(17, dtype=np.int32)
    program = constants(one[:16], one, other, one, np.full(40, 2.0, np.float32))
    references, found = weights.outside(program, str(tmp_path / "w.npz"))
    assert {n: a.tolist() for n, a in found.items()} == {"c1": one.tolist(), "c2": other.tolist()}
    values = [op.attr("value") for op in program.main.body]
    assert [references.get(v) for v in values] == [None, "@w.npz:c1", "@w.npz:c2", "@w.npz:c1", None]
    assert weights.nbytes(program) == 64 + 3 * 68 + 4
    values[1].payload = None
    assert list(weights.outside(program, "w.npz")[1]) == ["c2", "c3"] and weights.nbytes(program) == 64 + 2 * 68 + 4
    with pytest.raises(UsageError, match="weights are kept in"):
        weights.outside(program, str(tmp_path / "w.bin"))


def test_a_key_that_is_taken_gets_a_number() -> None:
    assert [weights._free("c", taken) for taken in ((), ("c",), ("c", "c_1"), ("c_1",))] == ["c", "c_1", "c_2", "c"]


@pytest.mark.parametrize(
    ("origin", "folder", "wanted"),
    [
        ("w.npz:k", "", "@w.npz:k"),
        ("a/w.npz:k", "a", "@w.npz:k"),
        ("w.npz:k", "a", "@../w.npz:k"),
        ("a/w.npz:k", "", "@a/w.npz:k"),
        ("/a/w.npz:k", "/a", "@w.npz:k"),
        ("/a/b/w.npz:k", "/a", "@b/w.npz:k"),
        ("/a/w.npz:k", "/b", "@/a/w.npz:k"),
        ("/a/w.npz:k", "b", "@/a/w.npz:k"),
        ("a:b.npz:k", "", "@a:b.npz:k"),
    ],
)
def test_a_file_is_named_from_the_folder_of_the_text(origin: str, folder: str, wanted: str) -> None:
    assert weights._reference(origin, folder) == wanted


def test_what_came_from_a_file_stays_there() -> None:
    program = constants(np.arange(3, dtype=np.float32), np.arange(4, dtype=np.float32))
    first, second = (op.attr("value") for op in program.main.body)
    second.origin = "a/w.npz:k"
    assert weights.kept(program, "a") == {second: "@w.npz:k"} and isinstance(first, Literal)


def test_a_text_and_its_weights_are_the_program(folder: Path) -> None:
    text = "func @f() -> tensor<f32, 20> {\n  %c = constant() value[dense<@w.npz:f>] -> tensor<f32, 20>\n  return %c\n}\n"
    (folder / "p.ptir").write_text(text)
    assert run_ptir("run", folder / "p.ptir", "--full").text.count(".") == 20
    moved = run_ptir("fmt", folder / "p.ptir")
    assert moved.text == text.replace("@w.npz", f"@{folder}/w.npz") or moved.text == text
    (folder / "sub").mkdir()
    (folder / "sub" / "q.ptir").write_text(text)
    refused = run_ptir("verify", folder / "sub" / "q.ptir")
    assert refused.status == 1 and "cannot be read" in refused.err
    with pytest.raises(Rejected):
        ptir.read(folder / "sub" / "q.ptir")
