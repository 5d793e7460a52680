"""`ptir explain`."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator

import click

from ptir_tools.cli.codes import all_codes
from ptir_tools.cli.exits import unknown_name
from ptir_tools.cli.options import subcommand
from ptir_tools.cli.session import Session
from ptir_tools.core.dialect import Code


@subcommand(
    click.argument("code", default="", metavar="[CODE]"),
    click.option("--markdown", is_flag=True, help="All codes as Markdown (docs/codes.md is made so)."),
    reads=False,
)
def command(session: Session, code: str, markdown: bool) -> None:
    """Tell what a diagnostic code means, with a wrong and a right program.

    Without CODE, all codes are listed with the IR that they belong to.

    \b
    Examples:
      ptir explain E3001
      ptir explain InvalidAttributeValue
      ptir explain
    """
    known = all_codes()
    if markdown:
        sys.stdout.writelines(markdown_page(known))
        return
    if not code:
        sys.stdout.writelines(f"{owner:5} {c.code:34} {_first_sentence(c.meaning)}\n" for owner, c in known)
        return
    found = [(owner, c) for owner, c in known if c.code.lower() == code.lower()]
    if not found:
        raise unknown_name("code", code, {c.code for _, c in known})
    sys.stdout.write("\n".join(page(owner, c) for owner, c in found))


def page(owner: str, code: Code) -> str:
    """The explanation as text."""
    return "\n".join(_lines(owner, code)) + "\n"


def _lines(owner: str, code: Code) -> Iterator[str]:
    yield f"{code.code} ({owner})"
    yield ""
    for paragraph in code.meaning.split("\n\n"):
        yield from textwrap.wrap(paragraph, 96)
    for title, program in (("Wrong", code.wrong), ("Right", code.right)):
        if program:
            yield from ("", f"{title}:", "", textwrap.indent(program.strip("\n"), "    "))


def markdown_page(known: list[tuple[str, Code]]) -> Iterator[str]:
    """docs/codes.md."""
    yield "# Diagnostic codes\n\nMade by `ptir explain --markdown`; a test compares. Do not edit.\n"
    owner = ""
    for each, code in known:
        if each != owner:
            owner = each
            yield f"\n## {'All formats' if owner == 'any' else owner}\n"
        yield f"\n### {code.code}\n\n{code.meaning}\n"
        for title, program in (("Wrong", code.wrong), ("Right", code.right)):
            if program:
                yield f"\n{title}:\n\n{textwrap.indent(program.strip(chr(10)), '    ')}\n"


def _first_sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0].rstrip(".")
