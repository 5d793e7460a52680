"""A trace directory of gpt.rs: the dump's structure with the JSON's payloads."""

from pathlib import Path

import pytest

from ptir_tools.core.diagnostics import Diagnostics, Severity
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.source import Source
from ptir_tools.dialects.ptir.gptrs import trace
from ptir_tools.dialects.reading import program_file
from tests.ptir.texts import DATA, clean, write

STEM = DATA / "dump" / "d19_inline_literals"


def supplied(raw: str) -> tuple[Program, Diagnostics]:
    program = clean(STEM.with_suffix(".dump.ptir").read_text(), "ptir-dump")
    diagnostics = Diagnostics(program.source)
    trace.supply(program, Source("program.json", raw), diagnostics, Options())
    return program, diagnostics


def test_payloads_come_from_the_json() -> None:
    raw = STEM.with_suffix(".json").read_text()
    program, diagnostics = supplied(raw)
    assert list(diagnostics) == []
    assert write(program) == write(clean(raw, "ptir-json"))
    assert "dense<?>" not in write(program)


def test_another_program_or_none_supplies_nothing() -> None:
    for raw in ((DATA / "dump" / "d07_scan_cumsum.json").read_text(), "{"):
        program, diagnostics = supplied(raw)
        assert [(d.severity, d.code) for d in diagnostics] == [(Severity.WARNING, "MissingPayload")]
        assert "dense<?>" in write(program)


@pytest.mark.parametrize("place", [".", "00001_materialize_%0"])
def test_a_folder_with_the_json_alone_is_read(tmp_path: Path, place: str) -> None:
    (tmp_path / place).mkdir(exist_ok=True)
    path = tmp_path / place / "program.json"
    path.write_text(STEM.with_suffix(".json").read_text())
    assert Path(program_file(str(tmp_path))) == path
