"""A program as gpt.rs's bincode, and the hash that gpt.rs knows it by: FNV-1a of those bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Program
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.check import missing_payloads
from ptir_tools.dialects.ptir.gptrs.lowering import Block, lower, region_ids
from ptir_tools.dialects.ptir.gptrs.model import Model
from ptir_tools.dialects.ptir.gptrs.values import bincode

_OFFSET, _PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, 2**64 - 1


def program_hash(program: Program, diagnostics: Diagnostics, canonical: bool = False) -> int | None:
    """The content address of `program`; None after reporting values that gpt.rs cannot hold, or a missing payload.

    If `canonical`, it does not depend on names: functions, regions, values and hints are named by their positions.
    """
    try:
        lowered = lower(program, diagnostics)
        if lowered is None or missing_payloads(program, diagnostics):
            return None
        return fnv1a(encode(program, *lowered, canonical=canonical))
    except Violation as violation:
        diagnostics.violation(violation, None)
        return None


def encode(program: Program, functions: list[Block], regions: list[Block], *, canonical: bool) -> Iterator[bytes]:
    """The bincode of a lowered program. Raises Violation("NotTranslatable") for a value that gpt.rs cannot encode."""
    ids = region_ids(functions, regions)
    if canonical:
        ids = {b.name: i for i, b in enumerate(regions)}
        for b in (*functions, *regions):
            b.ids = {v: i for i, v in enumerate([*b.params, *(v for op in b.body for v in op.results)])}
    return bincode(Model(ids, canonical=canonical).program(program.entry, functions, regions))


def fnv1a(pieces: Iterable[bytes]) -> int:
    """FNV-1a of 64 bits."""
    h = _OFFSET
    for piece in pieces:
        for byte in piece:
            h = (h ^ byte) * _PRIME & _MASK
    return h


def symbol(entry: str, found: int) -> str:
    """The name that gpt.rs compiles the entry function under."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", entry) or "entry"
    return f"{'_' if name[0].isdigit() else ''}{name}__{found:016x}"
