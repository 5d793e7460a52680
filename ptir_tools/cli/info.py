"""`ptir info`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import click

from ptir_tools.cli.options import file_argument, output_option, subcommand
from ptir_tools.cli.output import write_text
from ptir_tools.cli.session import Session
from ptir_tools.core.ir import Function, Program
from ptir_tools.core.symbols import symbols
from ptir_tools.engines.signature import Port, results, signature


@subcommand(file_argument, output_option, click.option("--json", "as_json", is_flag=True, help="The same as JSON."))
def command(session: Session, file: str, output: str | None, as_json: bool) -> None:
    """Tell what is in a program: format, functions, inputs and outputs with their types, symbols, op counts.

    As JSON: {"format", "dialect", "entry", "functions": [{"name", "inputs": [{"name", "type"}], "outputs" alike, "ops"}],
    "regions", "symbols", "ops": {OP: count}}.

    \b
    Examples:
      ptir info model.ptir
      ptir info --json graph.json | jq .functions[0].inputs
    """
    program, _ = session.load(file)
    facts = describe(program)
    text = json.dumps(facts, indent=2, ensure_ascii=False) if as_json else "\n".join(_lines(facts))
    write_text(output, [text, "\n"])


def describe(program: Program) -> dict[str, Any]:
    """What `ptir info --json` prints."""
    counts = Counter(op.defn.short for block in program.blocks() for op in block.body)
    return {
        "format": program.format,
        "dialect": program.dialect.name,
        "entry": program.entry,
        "functions": [_function(program, f) for f in program.functions],
        "regions": len(program.regions),
        "symbols": symbols(program),
        "ops": dict(sorted(counts.items(), key=lambda row: (-row[1], row[0]))),
    }


def _function(program: Program, function: Function) -> dict[str, Any]:
    def rows(ports: list[Port]) -> list[dict[str, str]]:
        return [{"name": p.name, "type": program.dialect.type_text(p.type)} for p in ports]

    inputs, outputs = signature(program, function.name), results(program, function.name)
    return {"name": function.name, "inputs": rows(inputs), "outputs": rows(outputs), "ops": sum(1 for _ in function.ops())}


def _lines(facts: dict[str, Any]) -> Iterator[str]:
    yield f"format    {facts['format']}"
    for f in facts["functions"]:
        yield f"function  @{f['name']}{' (entry)' if f['name'] == facts['entry'] else ''}, {_plural(f['ops'], 'op')}"
        for kind in ("inputs", "outputs"):
            width = max((len(p["name"]) for p in f[kind]), default=0)
            yield from (f"  {kind[:-1]:7} {p['name']:{width}}  {p['type']}" for p in f[kind])
    if facts["regions"]:
        yield f"regions   {facts['regions']}"
    if facts["symbols"]:
        yield f"symbols   {', '.join(facts['symbols'])}"
    total = sum(facts["ops"].values())
    yield f"ops       {total}" + (": " + ", ".join(f"{n} {name}" for name, n in facts["ops"].items()) if total else "")


def _plural(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"
