"""`ptir ops`."""

from __future__ import annotations

import sys

from ptir_tools.cli.options import argument, choice, option, subcommand
from ptir_tools.cli.session import Session
from ptir_tools.core.diagnostics import UsageError, unknown_name
from ptir_tools.dialects import DIALECTS, load_dialect
from ptir_tools.dialects.ptir.text.faults import ADVICE
from ptir_tools.dialects.synonyms import same_op
from ptir_tools.tools import manuals


@subcommand(
    argument("name", default="", metavar="[OP]"),
    option("--dialect", type=choice(DIALECTS), help="Only the ops of this IR."),
    option("--markdown", is_flag=True, help="Print all pages as Markdown (this makes docs/ops.md)."),
    reads=False,
)
def command(session: Session, name: str, dialect: str | None, markdown: bool) -> None:
    """Print the op reference, made from the declarations that the verifier and the engines use.

    OP is `add` or `ptir.add`; without it, every op is listed.

    \b
    Examples:
      ptir ops
      ptir ops dot_general
      ptir ops --dialect tiny
    """
    known = [d for n in ([dialect] if dialect else DIALECTS) for d in load_dialect(n).ops.values()]
    if markdown:
        sys.stdout.writelines(manuals.markdown_pages(known))
    elif not name:
        sys.stdout.writelines(f"{manuals.signature(d):64} {manuals.first_line(d)}\n" for d in known)
    else:
        chosen = [d for d in known if name.lower() in (d.name.lower(), d.short.lower())]
        if not chosen:
            names = dict.fromkeys(d.name if "." in name else d.short for d in known)
            if (advice := ADVICE.get(name.lower())) is not None:
                raise UsageError(f"no op `{name}`", advice)
            if (meant := same_op(name, names)) is not None:
                raise UsageError(f"no op `{name}`; did you mean `{meant}`?")
            raise unknown_name("op", name, names)
        sys.stdout.write("\n".join(map(manuals.page, chosen)))
