"""The diagnostic codes of the whole toolkit."""

from __future__ import annotations

from ptir_tools.convert.codes import EXPLAIN as TRANSLATION
from ptir_tools.core.dialect import Code
from ptir_tools.dialects import DIALECTS, load_dialect
from ptir_tools.dialects.sniff import EXPLAIN as FORMATS
from ptir_tools.plan.codes import EXPLAIN as PLANS


def all_codes() -> list[tuple[str, Code]]:
    """(owner, code) of every code that can be explained, by owner and name; `any` owns what concerns all formats."""
    found = [("any", c) for c in (*FORMATS, *TRANSLATION, *PLANS)]
    found += [(name, c) for name in DIALECTS for c in load_dialect(name).explain]
    return sorted(found, key=lambda row: (row[0], row[1].code))
