"""The manual of an op, from its declaration."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files

from ptir_tools.core.dialect import Dialect
from ptir_tools.core.ir import MANY, MAYBE, REQUIRED, SEGMENTS, Derived, OpDef, Trait
from ptir_tools.dialects import load_dialect

_GROUP = {MANY: "{}…", MAYBE: "[{}]"}


def signature(d: OpDef) -> str:
    """`ptir.transpose(x) perm`: operand groups, attributes with their defaults, regions."""
    operands = ", ".join(_GROUP.get(g.kind, "{}").format(g.name) for g in d.groups)
    attrs = [a.name + _default_text(a.default) for a in d.attrs if a.name != SEGMENTS]
    return " ".join([f"{d.name}({operands})", *attrs, *d.regions])


def _default_text(default: object) -> str:
    if default is REQUIRED:
        return ""
    return "=…" if isinstance(default, Derived) else f"={default}"  # `…`: follows from the operands and other attributes


def page(d: OpDef) -> str:
    """Signature, manual and traits as text."""
    traits = [t.name.lower() for t in Trait if t in d.traits and t.name] or ["none"]
    owner = load_dialect(d.name.partition(".")[0])
    shown = f"\nExample:\n\n{text}" if (text := example(d)) else ""
    return f"{signature(d)}\n\n{manual(d)}\n\nTraits: {', '.join(traits)}.\n{_specification(owner)}{shown}"


def example(d: OpDef) -> str:
    """A program with the op, from the file `examples.txt` next to its dialect; empty for an op that is not there."""
    return _examples(d.name.partition(".")[0]).get(d.short, "")


@cache
def _examples(dialect: str) -> dict[str, str]:
    """The programs in a dialect's file, by the short name of their op. Each follows a line `=== NAME`."""
    file = files("ptir_tools.dialects") / dialect / "examples.txt"
    names_and_texts = re.split(r"^=== (\S+)\n", file.read_text("utf-8"), flags=re.MULTILINE)[1:] if file.is_file() else []
    return dict(zip(names_and_texts[::2], names_and_texts[1::2], strict=True))


def manual(d: OpDef) -> str:
    """The docstring of the body, the declared laws of the op, and the docstring of its fold."""
    laws = f"\n\nAlgebra: {', '.join(result)}." if (result := d.algebra.laws()) else ""
    fold = "" if d.fold is None else f"\n\nFolds to {inspect.cleandoc(d.fold.__doc__ or '')}"
    return inspect.cleandoc(d.doc) + laws + fold


def markdown(d: OpDef) -> str:
    """The manual and the example."""
    text = example(d)
    return manual(d) + (f"\n\n```\n{text}```" if text else "")


def markdown_pages(results: Iterable[OpDef]) -> Iterator[str]:
    """docs/ops.md."""
    yield "# Ops\n\nMade by `ptir ops --markdown` from the declarations; a test compares. Do not edit.\n"
    dialect = ""
    for d in results:
        if (owner := d.name.partition(".")[0]) != dialect:
            dialect = owner
            yield f"\n## {dialect}\n"
            yield "\n" + _specification(load_dialect(dialect))
        yield f"\n### `{signature(d)}`\n\n{markdown(d)}\n"


def first_line(d: OpDef) -> str:
    """The first line of the manual."""
    return inspect.cleandoc(d.doc).partition("\n")[0]


def _specification(dialect: Dialect) -> str:
    """The line about the document to which manuals refer, if the dialect has a public specification."""
    return f"Specification: {dialect.specification}.\n" if dialect.specification else ""
