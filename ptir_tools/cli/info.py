"""`ptir info`."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ptir_tools.cli.options import file_argument, json_option, output_option, subcommand
from ptir_tools.cli.output import write_text
from ptir_tools.cli.session import Session
from ptir_tools.core.render import clean
from ptir_tools.core.typed import Any
from ptir_tools.tools.info import describe


@subcommand(file_argument, output_option, json_option)
def command(session: Session, file: str, output: str | None, as_json: bool) -> None:
    """Show what is in a program: format, functions, inputs and outputs with their types, symbols, op counts.

    With --json: {"format", "dialect", "entry", "functions": [{"name", "inputs": [{"name", "type"}], "outputs": as inputs,
    "ops"}], "regions", "symbols", "ops": {OP: count}}.

    \b
    Examples:
      ptir info model.ptir
      ptir info --json graph.json | jq .functions[0].inputs
    """
    program, _ = session.load(file)
    facts = describe(program)
    text = json.dumps(facts, indent=2, ensure_ascii=False) if as_json else "\n".join(map(clean, _lines(facts)))
    write_text(output, [text, "\n"])


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
