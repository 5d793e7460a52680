"""Shared by the tests of PTIR's serializations: reading, writing, sample files, mutated text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from ptir_tools.core.collector import collector_paused
from ptir_tools.core.diagnostics import Diagnostics, Severity
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.source import Source
from ptir_tools.dialects import load_format
from ptir_tools.dialects.ptir.text import structure
from ptir_tools.dialects.ptir.text.reader import _Reader

DATA = Path(__file__).parents[2] / "testdata" / "ptir"
FUNCS = sorted((DATA / "func").glob("*.func.ptir"))
DUMPS = sorted(DATA.glob("*/*.dump.ptir"))
WHOLE = [p for p in DUMPS if "all_ops" not in p.name]  # that one refers to regions that are not there


def read(text: str, form: str = "ptir", **options: Any) -> tuple[Program, Diagnostics]:
    """A program (always one: a reader of these tests gives back what it could make) and what was said."""
    source = Source("x", text)
    diagnostics = Diagnostics(source)
    reader = load_format(form).read
    assert reader is not None
    program = reader(source, diagnostics, Options(**options))
    return program, diagnostics  # type: ignore[return-value]


def write(program: Program, form: str = "ptir", **options: Any) -> str:
    """The text of a program that can be written without an error."""
    diagnostics = Diagnostics()
    writer = load_format(form).write
    assert writer is not None
    text = "".join(writer(program, diagnostics, Options(**options)))
    assert diagnostics.errors == 0, [d.message for d in diagnostics]
    return text


def clean(text: str, form: str = "ptir", **options: Any) -> Program:
    """The program in a text without errors."""
    program, diagnostics = read(text, form, **options)
    assert errors(diagnostics) == []
    return program


def errors(diagnostics: Diagnostics) -> list[tuple[int, int, str, str]]:
    """(line, column, code, message) of every error, in order."""
    return [(*d.where[1:], d.code, d.message) for d in diagnostics.sorted() if d.severity is Severity.ERROR]


def by_grammar(text: str) -> tuple[Program, Diagnostics]:
    """A program read by the grammar alone, the fast path switched off."""
    source = Source("x", text)
    diagnostics = Diagnostics(source)
    with collector_paused():
        reader = _Reader(source, diagnostics, Options())
        at, failed = 0, False
        while at < len(text) and not failed:
            at, failed = structure.parse(reader.assembly, at, len(text))
        return reader.assembly.finish(), diagnostics


@st.composite
def mutated(draw: st.DrawFn, texts: list[str]) -> str:
    """One of `texts` with a few edits: pieces dropped, doubled, moved, or replaced by pieces of the language."""
    text = draw(st.sampled_from(texts))
    pieces = [*"%()[]{}<>,:=1-", "%x", "->", "return", "func", "tensor<f32>", "//", "\n"]
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        size = draw(st.integers(0, 12))
        new = draw(st.sampled_from(["", text[at : at + size] * 2, *pieces]) | st.text(max_size=3))
        text = text[:at] + new + text[at + size :]
    return text
