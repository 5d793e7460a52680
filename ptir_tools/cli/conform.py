"""`ptir conform`."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

from ptir_tools.cli.options import argument, check_timeout_option, choice, json_option, option, subcommand
from ptir_tools.cli.report import Leave
from ptir_tools.cli.session import Session
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.engines.options import OWN
from ptir_tools.tools import cases, conform

_SUFFIXES = (".yaml", ".yml")
_SHOWN = {"passed": "ok", "failed": "not ok", "skipped": "ok"}


@subcommand(
    argument("ir", type=choice(conform.IRS)),
    argument("paths", nargs=-1, required=True, metavar="DIR..."),
    option("--command", "words", metavar="CMD", help="Test this command instead: `other {task} {file} {inputs}`."),
    option("--engine", type=choice(["auto", *OWN]), default="auto", help="The engine that runs modules (the fastest)."),
    check_timeout_option,
    json_option,
    reads=False,
)
def command(
    session: Session, ir: str, paths: Sequence[str], words: str | None, engine: str, timeout: float | None, as_json: bool
) -> None:
    """Run conformance cases: the YAML files below DIR, in the form of MIND's public specification.

    A case gives a module and the expected result: its canonical form, its outputs, a module that computes the same as its
    gradient module, or an error with code, words and place. docs/conformance.md describes the form and the commands. The
    report is TAP: a line per case, the difference of a failed case below it, the counts at the end. Cases of the surface
    language and of GPUs are skipped. The exit code is 1 if a case fails or is malformed.

    With --json: {"ir", "cases": [{"file", "description", "category", "status", "reason"}], "passed", "failed", "skipped"}.

    \b
    Examples:
      ptir conform mind testdata/conformance/mind
      ptir conform tiny cases --command 'other-tool {task} {file} {inputs}' --timeout 10
    """
    answer = conform.Ours(ir, engine) if words is None else conform.Command(words, ir, timeout)
    files = [file for path in paths for file in _below(path)]
    if not files:
        raise UsageError(f"no case (a file {' or '.join(_SUFFIXES)}) below {', '.join(paths)}")
    rows: list[dict[str, str]] = []
    status = 0
    if not as_json:
        sys.stdout.write(f"TAP version 14\n1..{len(files)}\n")
    with session.reporter.progress(prints=not as_json) as show:
        for file in files:
            show(f"case {len(rows) + 1} of {len(files)}: {file}")
            diagnostics = Diagnostics()
            source = session.source(file, diagnostics)
            case = None if source is None else cases.read(source, diagnostics)
            outcome = conform.Outcome("failed", "this is not a case") if case is None else conform.evaluate(case, ir, answer)
            status = max(status, session.reporter.status(diagnostics), int(outcome.status == "failed"))
            entry = {"file": file, "description": case.description if case else "", "category": case.category if case else ""}
            rows.append({**entry, "status": outcome.status, "reason": outcome.reason})
            if not as_json:
                sys.stdout.writelines(_tap(len(rows), rows[-1]))
    counts = Counter(row["status"] for row in rows)
    totals = {name: counts[name] for name in ("passed", "failed", "skipped")}
    if as_json:
        sys.stdout.write(json.dumps({"ir": ir, "cases": rows, **totals}, indent=2, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write(f"# {', '.join(f'{n} {name}' for name, n in totals.items())}\n")
    if status:
        raise Leave(status)


def _below(path: str) -> Iterator[str]:
    """A file, or the cases below a folder in order of their paths. Raises OSError for a missing path."""
    if not os.path.isdir(path):
        os.stat(path)
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders.sort()
        yield from (os.path.join(folder, name) for name in sorted(names) if name.endswith(_SUFFIXES))


def _tap(number: int, row: dict[str, str]) -> Iterator[str]:
    label = f"{row['file']}: {row['description']}" if row["description"] else row["file"]
    yield f"{_SHOWN[row['status']]} {number} - {label.replace(chr(92), chr(92) * 2).replace('#', chr(92) + '#')}"
    yield f" # SKIP {row['reason']}\n" if row["status"] == "skipped" else "\n"
    if row["status"] == "failed":
        yield "  ---\n  reason: |\n"
        yield from (f"    {line}\n" for line in row["reason"].splitlines())
        yield "  ...\n"
