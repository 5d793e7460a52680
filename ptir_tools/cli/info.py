"""`ptir info`."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ptir_tools.cli.options import file_argument, json_option, output_option, subcommand
from ptir_tools.cli.output import write_text
from ptir_tools.cli.session import Session
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.render import clean
from ptir_tools.core.typed import Any
from ptir_tools.dialects import FORMATS
from ptir_tools.tools.info import describe

Facts = dict[str, Any]  # what --json shows


@subcommand(file_argument, output_option, json_option)
def command(session: Session, file: str, output: str | None, as_json: bool) -> None:
    """Show what is in a program: format, functions, inputs and outputs with their types, symbols, op counts.

    With --json: {"format", "dialect", "entry", "functions": [{"name", "inputs": [{"name", "type"}], "outputs": as inputs,
    "ops"}], "regions", "symbols", "ops": {OP: count}}.

    An ONNX file has "model", too: {"inputs", "outputs", "operator_sets": {DOMAIN: version}, "operators": {NAME: count}}. If its
    translation is refused, only that is shown, and the reasons.

    \b
    Examples:
      ptir info model.ptir
      ptir info --json graph.json | jq .functions[0].inputs
    """
    source = session.opened(file)
    data, diagnostics = source.data or b"", Diagnostics(source)
    program = session.parse(source, diagnostics)
    outline = FORMATS[source.form].load().outline if source.form in FORMATS else None
    model = outline(data) if outline is not None else {}
    if program is not None:
        session.verify(program, diagnostics)
    facts: Facts = {"model": model} if model else {}
    if model and diagnostics.errors:
        facts = {
            "format": source.form,
            **facts,
            "refused": [{"code": d.code, "message": d.message} for d in diagnostics.sorted()],
        }
    else:
        session.reporter.settle(diagnostics)
        assert program is not None  # a reader without errors returns a program
        facts = describe(program) | facts
    text = json.dumps(facts, indent=2, ensure_ascii=False) if as_json else "\n".join(map(clean, _lines(facts)))
    write_text(output, [text, "\n"])


def _lines(facts: Facts) -> Iterator[str]:
    yield f"format    {facts['format']}"
    model: Facts = facts.get("model", {})
    if model:
        yield f"sets      {', '.join(f'{name} {version}' for name, version in model['operator_sets'].items())}"
        yield f"operators {_counted(model['operators'])}"
    if "refused" in facts:
        yield from _ports(model)
        yield from (f"refused   {d['code']}: {d['message']}" for d in facts["refused"])
        return
    for f in facts["functions"]:
        yield f"function  @{f['name']}{' (entry)' if f['name'] == facts['entry'] else ''}, {_plural(f['ops'], 'op')}"
        yield from _ports(f)
    if facts["regions"]:
        yield f"regions   {facts['regions']}"
    if facts["symbols"]:
        yield f"symbols   {', '.join(facts['symbols'])}"
    yield f"ops       {_counted(facts['ops'])}"


def _ports(signature: Facts) -> Iterator[str]:
    for kind in ("inputs", "outputs"):
        width = max((len(p["name"]) for p in signature[kind]), default=0)
        yield from (f"  {kind[:-1]:7} {p['name']:{width}}  {p['type']}" for p in signature[kind])


def _counted(ops: dict[str, int]) -> str:
    return f"{sum(ops.values())}" + (": " + ", ".join(f"{n} {name}" for name, n in ops.items()) if ops else "")


def _plural(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"
