"""Random programs of a seed are the recorded ones, in outline: campaigns can be repeated, and a change of a generator is seen.

`pytest --bless tests/tools/test_census.py` records them again. Read which lines change: only those of what was changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from zlib import crc32

import pytest

from ptir_tools.core.choices import Seeded
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Element, Literal, Value
from ptir_tools.core.verify import verify
from ptir_tools.dialects import load_dialect
from tests.conftest import TESTDATA

RECORD = TESTDATA / "census.txt"
# An IR and what is drawn of it, with the number of seeds.
DRAWN = {"ptir": 150, "mind": 40, "tiny": 40, "networks": 100}


def program_of(kind: str, seed: int) -> Program:
    dialect = load_dialect("ptir" if kind == "networks" else kind)
    how = {} if kind == "networks" else {"faults": seed % 4 == 0, "symbols": seed % 3 > 0}
    return dialect.random(Seeded(seed), kind == "networks", size=6 + seed % 12, **how)


def outline(kind: str, seed: int) -> str:
    """The ops of a program, each with its number, and a sum of what they are. Elements of arrays do not count: they may differ
    between versions of NumPy."""
    program, found = program_of(kind, seed), Diagnostics()
    assert verify(program, found), [d.message for d in found]
    ops = [op for block in program.blocks() for op in block.body]
    number: dict[Value, int] = {}
    for block in program.blocks():
        number.update((v, len(number) + k) for k, v in enumerate([*block.params, *(v for op in block.body for v in op.results)]))

    def told(x: object) -> object:
        if isinstance(x, Literal):
            return x.type, x.splat, x.data if x.splat or x.type.count == 1 else b""
        if isinstance(x, Element):
            return number[x.value], x.index
        if isinstance(x, Value):
            return number[x], x.type
        return [told(y) for y in x] if isinstance(x, tuple | list) else x

    said = [(op.defn.short, told(op.operands), told(op.results), told(op.attrs)) for op in ops]
    said += [(told(block.params), told(block.results), block.result_types) for block in program.blocks()]
    hints = [h for f in program.functions for h in f.annotations]
    said += [(type(h).__name__, told(h.inputs), told(h.exports), [op.defn.short for op in h.body]) for h in hints]
    counts = Counter(op.defn.short for op in ops)
    listed = " ".join(name if n == 1 else f"{name}*{n}" for name, n in sorted(counts.items()))
    return f"{kind} {seed}: {crc32(repr(said).encode()):08x} {listed}"


def recorded(kind: str) -> Iterator[str]:
    return (line for line in RECORD.read_text("utf-8").splitlines() if line.startswith(f"{kind} "))


def test_the_record_is_complete(bless: bool) -> None:
    if bless:
        RECORD.write_text("".join(f"{outline(kind, seed)}\n" for kind, n in DRAWN.items() for seed in range(n)), "utf-8")
    assert [line.partition(":")[0] for line in RECORD.read_text("utf-8").splitlines()] == [
        f"{kind} {seed}" for kind, n in DRAWN.items() for seed in range(n)
    ]


@pytest.mark.parametrize("kind", DRAWN)
def test_a_seed_gives_the_recorded_program(kind: str) -> None:
    for seed, line in enumerate(recorded(kind)):
        assert outline(kind, seed) == line
