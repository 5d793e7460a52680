"""A summary of a program: functions, signatures, symbols, op counts."""

from __future__ import annotations

from collections import Counter

from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Function
from ptir_tools.core.symbols import symbols
from ptir_tools.engines.signature import Port, results, signature


def describe(program: Program) -> dict[str, object]:
    """Format, dialect, entry, functions with their signatures, regions, symbols and op counts: what `ptir info --json` prints."""
    counts = Counter(op.defn.short for block in program.blocks() for op in block.body)
    return {
        "format": program.source.form if program.source and program.source.form else program.format,
        "dialect": program.dialect.name,
        "entry": program.entry,
        "functions": [_function(program, f) for f in program.functions],
        "regions": len(program.regions),
        "symbols": symbols(program),
        "ops": dict(sorted(counts.items(), key=lambda row: (-row[1], row[0]))),
    }


def _function(program: Program, function: Function) -> dict[str, object]:
    def rows(ports: list[Port]) -> list[dict[str, str]]:
        return [{"name": p.name, "type": program.dialect.type_text(p.type)} for p in ports]

    inputs, outputs = signature(program, function.name), results(program, function.name)
    return {"name": function.name, "inputs": rows(inputs), "outputs": rows(outputs), "ops": sum(1 for _ in function.ops())}
