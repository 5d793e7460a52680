"""What the default pipeline does to every model and sample: ops, operations, bytes, planned peak; nothing gets worse."""

from __future__ import annotations

from collections.abc import Iterator

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program, clone
from ptir_tools.core.source import Source
from ptir_tools.core.symbols import bind, symbols
from ptir_tools.core.verify import verify
from ptir_tools.dialects import load_format
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.passes import run_pipeline
from ptir_tools.plan.record import ALIGN, plan
from ptir_tools.tools.stats import count, total
from tests import models
from tests.conftest import TESTDATA

TABLE = TESTDATA / "rules" / "models.md"
HEAD = "| program | ops | operations | bytes | planned peak |\n|---|---|---|---|---|\n"
EXTENTS = {"B": 2, "T": 16, "N": 7}
SAMPLES = [*sorted((TESTDATA / "ptir/dump").glob("*.dump.ptir")), *sorted((TESTDATA / "ptir/func").glob("*.func.ptir"))]

Row = tuple[int, int, int, int]
ROOM = (0, 0, 0, ALIGN)  # of the peak: what is computed once is kept for a later use, here a scalar in the body of a loop


def is_no_worse(before: Row, after: Row) -> bool:
    """Whether nothing costs more."""
    return all(y <= x + room for x, y, room in zip(before, after, ROOM, strict=True))


def programs() -> Iterator[tuple[str, Program]]:
    """Models and samples by name, symbols bound, as far as they verify."""
    for name in sorted(models.MODULES):
        yield name, clone(models.program(name))
    for path in SAMPLES:
        found = Diagnostics(Source(path.name, path.read_text("utf-8")))
        form = load_format("ptir-dump" if path.name.endswith(".dump.ptir") else "ptir")
        program = form.read(found.source, found, Options())
        if program is not None and verify(program, found):
            yield path.name.partition(".")[0], program


def measure(program: Program) -> Row:
    """Ops, operations and bytes as `ptir stats` counts them, and the peak that `ptir plan` plans."""
    whole = total(count(program))
    assert whole.operations.value is not None and whole.bytes.value is not None
    return whole.ops, whole.operations.value, whole.bytes.value, plan(program).functions[program.entry].peak


def rows() -> Iterator[tuple[str, Row, Row]]:
    """(name, before, after) for every program."""
    for name, program in programs():
        bind(program, {s: EXTENTS.get(s, 4) for s in symbols(program)})
        assert verify(program, Diagnostics())
        before = measure(program)
        run_pipeline(program, DIALECT.pipeline)
        yield name, before, measure(program)


def test_no_model_gets_worse(bless: bool) -> None:
    found = list(rows())
    lines = [
        f"| {name} | {' | '.join(f'{x} → {y}' if x != y else f'{x}' for x, y in zip(a, b, strict=True))} |\n"
        for name, a, b in found
    ]
    text = HEAD + "".join(lines)
    if bless:
        TABLE.write_text(text, "utf-8")
    assert text == TABLE.read_text("utf-8"), "pytest --bless rewrites it; read the diff"
    for name, before, after in found:
        assert is_no_worse(before, after), name


def test_no_model_with_symbols_gets_worse_when_they_are_bound_later() -> None:
    for name, program in programs():
        if not (names := symbols(program)):
            continue
        after = clone(program)
        run_pipeline(after, DIALECT.pipeline)
        for extent in (1, 5, 16):
            bound = [clone(p) for p in (program, after)]
            for p in bound:
                bind(p, dict.fromkeys(names, extent))
                assert verify(p, Diagnostics())
            before, found = map(measure, bound)
            assert is_no_worse(before, found), (name, extent)
