"""`ptir ops`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator

from ptir_tools.cli.options import argument, choice, option, subcommand
from ptir_tools.cli.session import Session
from ptir_tools.core.diagnostics import unknown_name
from ptir_tools.core.dialect import Dialect
from ptir_tools.core.ir import MANY, MAYBE, REQUIRED, SEGMENTS, Derived, OpDef, Trait
from ptir_tools.dialects import DIALECTS, load_dialect

_GROUP = {MANY: "{}…", MAYBE: "[{}]"}


@subcommand(
    argument("name", default="", metavar="[OP]"),
    option("--dialect", type=choice(DIALECTS), help="Only the ops of this IR."),
    option("--markdown", is_flag=True, help="All pages as Markdown (docs/ops.md is made so)."),
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
    found = [d for n in ([dialect] if dialect else DIALECTS) for d in load_dialect(n).ops.values()]
    if markdown:
        sys.stdout.writelines(markdown_pages(found))
    elif not name:
        sys.stdout.writelines(f"{signature(d):64} {_first_line(d)}\n" for d in found)
    else:
        chosen = [d for d in found if name.lower() in (d.name.lower(), d.short.lower())]
        if not chosen:
            raise unknown_name("op", name, {n for d in found for n in (d.name, d.short)})
        sys.stdout.write("\n".join(map(page, chosen)))


def signature(d: OpDef) -> str:
    """`ptir.transpose(x) perm`: operand groups, attributes with their defaults, regions."""
    operands = ", ".join(_GROUP.get(g.kind, "{}").format(g.name) for g in d.groups)
    attrs = [a.name + _default_text(a.default) for a in d.attrs if a.name != SEGMENTS]
    return " ".join([f"{d.name}({operands})", *attrs, *d.regions])


def _default_text(default: object) -> str:
    if default is REQUIRED:
        return ""
    return "=…" if isinstance(default, Derived) else f"={default}"  # … follows from the operands and other attributes


def page(d: OpDef) -> str:
    """Signature, manual and traits as text."""
    traits = [t.name.lower() for t in Trait if t in d.traits and t.name] or ["none"]
    owner = load_dialect(d.name.partition(".")[0])
    return f"{signature(d)}\n\n{manual(d)}\n\nTraits: {', '.join(traits)}.\n{_specification(owner)}"


def manual(d: OpDef) -> str:
    """The docstring of the body, the laws of the op, and the docstring of its fold, as far as it declares them."""
    laws = f"\n\nAlgebra: {', '.join(found)}." if (found := d.algebra.laws()) else ""
    fold = "" if d.fold is None else f"\n\nFolds to {inspect.cleandoc(d.fold.__doc__ or '')}"
    return inspect.cleandoc(d.doc) + laws + fold


def markdown_pages(found: Iterable[OpDef]) -> Iterator[str]:
    """docs/ops.md."""
    yield "# Ops\n\nMade by `ptir ops --markdown` from the declarations; a test compares. Do not edit.\n"
    dialect = ""
    for d in found:
        if (owner := d.name.partition(".")[0]) != dialect:
            dialect = owner
            yield f"\n## {dialect}\n"
            yield "\n" + _specification(load_dialect(dialect))
        yield f"\n### `{signature(d)}`\n\n{manual(d)}\n"


def _first_line(d: OpDef) -> str:
    return inspect.cleandoc(d.doc).partition("\n")[0]


def _specification(dialect: Dialect) -> str:
    """The line that says what the sections in manuals refer to, if the dialect has a public specification."""
    return f"Specification: {dialect.specification}.\n" if dialect.specification else ""
