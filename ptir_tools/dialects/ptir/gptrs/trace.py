"""A directory that gpt.rs's trace wrote: `program.ptir` has the structure, `program.json` the bytes of inline literals."""

from __future__ import annotations

import os

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.ir import Literal, Operand
from ptir_tools.core.source import Source
from ptir_tools.dialects.ptir.gptrs import json

STRUCTURE, PAYLOADS = "program.ptir", "program.json"


def payloads(path: str) -> str | None:
    """The file that has the payloads of the dump at `path`; None where there is none."""
    folder, name = os.path.split(path)
    found = os.path.join(folder, PAYLOADS)
    return found if name == STRUCTURE and os.path.exists(found) else None


def supply(program: Program, twin_source: Source, diagnostics: Diagnostics, options: Options) -> None:
    """Fill in the missing payloads of a program read from a dump by those of its JSON. A JSON that cannot be read or is that
    of another program is reported as a warning, and the payloads stay missing. Raises LimitExceeded."""
    found = Diagnostics(twin_source)
    twin = json.read(twin_source, found, options)
    if twin is None or found.errors:
        message = f"{twin_source.name} cannot be read: inline literals have no payload"
        diagnostics.warning("MissingPayload", message, notes=[d.message for d in found.sorted()[:1]])
        return
    if not fill(program, twin):
        message = f"{twin_source.name} holds another program: inline literals have no payload"
        diagnostics.warning("MissingPayload", message)


def fill(program: Program, twin: Program) -> bool:
    """Fill in the missing payloads of `program` by those of `twin`; False when that is another program."""
    pairs = [(a, b) for x, y in zip(program.blocks(), twin.blocks(), strict=False) for a, b in zip(x.body, y.body, strict=False)]
    if any(a.defn is not b.defn or len(a.operands) != len(b.operands) for a, b in pairs):
        return False
    for op, other in pairs:
        op.operands = tuple(map(_whole, op.operands, other.operands))
    return True


def _whole(x: Operand, other: Operand) -> Operand:
    if isinstance(x, Literal) and x.data is None and isinstance(other, Literal) and other.type is x.type:
        return other
    return x
