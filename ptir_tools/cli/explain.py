"""`ptir explain`."""

from __future__ import annotations

import sys

from ptir_tools.cli.options import argument, option, subcommand
from ptir_tools.cli.session import Session
from ptir_tools.core.diagnostics import UsageError, unknown_name
from ptir_tools.dialects import DIALECTS, load_dialect
from ptir_tools.tools import explanations


@subcommand(
    argument("code", default="", metavar="[CODE]"),
    option("--markdown", is_flag=True, help="Print all codes as Markdown (this makes docs/codes.md)."),
    reads=False,
)
def command(session: Session, code: str, markdown: bool) -> None:
    """Explain a diagnostic code, with a wrong and a right program.

    Without CODE, all codes are listed with the IR that they belong to.

    \b
    Examples:
      ptir explain E3001
      ptir explain InvalidAttributeValue
      ptir explain
    """
    known = explanations.all_codes()
    if markdown:
        sys.stdout.writelines(explanations.markdown_page(known))
        return
    if not code:
        sys.stdout.writelines(f"{owner:5} {c.code:34} {explanations.first_sentence(c.meaning)}\n" for owner, c in known)
        return
    found = [(owner, c) for owner, c in known if c.code.lower() == code.lower()]
    if not found:
        if any(code.lower() in (d.name.lower(), d.short.lower()) for n in DIALECTS for d in load_dialect(n).ops.values()):
            raise UsageError(f"no code `{code}`; there is an op of that name", f"`ptir ops {code}` explains it")
        raise unknown_name("code", code, dict.fromkeys(c.code for _, c in known))
    sys.stdout.write("\n".join(explanations.page(owner, c) for owner, c in found))
