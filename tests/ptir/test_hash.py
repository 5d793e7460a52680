"""Hashes against those that gpt.rs itself computed (testdata/ptir/hashes.txt: program, hash, canonical, symbol, bytes)."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Program
from ptir_tools.dialects.ptir.gptrs.bincode import encode, fnv1a, program_hash, symbol
from ptir_tools.dialects.ptir.gptrs.lowering import lower
from tests.ptir.texts import DATA, clean

FORMATS = {".json": "ptir-json", ".func.ptir": "ptir", ".dump.ptir": "ptir-dump"}
UPSTREAM = [line.split() for line in (DATA / "hashes.txt").read_text("utf-8").splitlines()]
LOST = "dump/d19_inline_literals.dump.ptir"  # a dump has no bytes of inline literals
CASES = [
    pytest.param(path, form, *wanted, id=str(path.relative_to(DATA)))
    for name, *wanted in UPSTREAM
    for suffix, form in FORMATS.items()
    if (path := DATA / (name + suffix)).exists() and str(path.relative_to(DATA)) != LOST
]


def hashed(program: Program, **how: bool) -> str:
    diagnostics = Diagnostics()
    found = program_hash(program, diagnostics, **how)
    assert found is not None and not diagnostics.errors
    return f"{found:016x}"


@pytest.mark.parametrize(("path", "form", "plain", "canonical", "name", "length"), CASES)
def test_upstream(path: Path, form: str, plain: str, canonical: str, name: str, length: str) -> None:
    program = clean(path.read_text("utf-8"), form)
    assert (hashed(program), hashed(program, canonical=True)) == (plain, canonical)
    assert symbol(program.entry, int(plain, 16)) == name
    blocks = lower(program, Diagnostics())
    assert blocks and sum(map(len, encode(program, *blocks, canonical=False))) == int(length)


def test_a_canonical_hash_depends_on_no_name() -> None:
    text = "func @{f}(%{x}: tensor<f32, 3>) -> tensor<f32, 3> {{\n  %{y} = {op}(%{x}) -> tensor<f32, 3>\n  return %{y}\n}}\n"
    first, renamed, another = (
        clean(text.format(f=f, x=x, y=y, op=op), "ptir")
        for f, x, y, op in (("f", "a", "b", "neg"), ("g", "17", "3", "neg"), ("f", "a", "b", "exp"))
    )
    assert hashed(first) != hashed(renamed)
    assert hashed(first, canonical=True) == hashed(renamed, canonical=True) != hashed(another, canonical=True)


@pytest.mark.parametrize(
    ("data", "wanted"), [(b"", 0xCBF29CE484222325), (b"a", 0xAF63DC4C8601EC8C), (b"foobar", 0x85944171F73967E8)]
)
def test_fnv1a(data: bytes, wanted: int) -> None:
    assert fnv1a([data]) == fnv1a(struct.pack("B", x) for x in data) == wanted


def test_symbols() -> None:
    assert [symbol(x, 10) for x in ("", "2x", "a-b.c", "é")] == [
        "entry__000000000000000a", "_2x__000000000000000a", "a_b_c__000000000000000a", "___000000000000000a",
    ]  # fmt: skip
