"""Several programs in one file, divided by lines `// -----` (`# -----` in MIND)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ptir_tools.core.lazy import regex
from ptir_tools.core.source import Source
from ptir_tools.dialects import FORMATS
from ptir_tools.dialects.sniff import beginning

_BOUNDARY = regex(r"^[ \t]*(//|#)[ \t]*-----[ \t]*$", re.MULTILINE)


def parts(source: Source) -> list[Source]:
    """The texts between the boundaries of `source`, as sources; lines and columns are those of the file. A binary program is
    one part."""
    if source.data is not None:
        return [source]
    matches = [m.span() for m in _BOUNDARY.finditer(source.text)]
    starts = (0, *(end for _, end in matches))
    ends = (*(start for start, _ in matches), len(source.text))
    return [source.part(start, end) for start, end in zip(starts, ends, strict=True)]


def is_blank(source: Source) -> bool:
    """Whether `source` has only blanks and comments."""
    return beginning(source.text) == len(source.text)


def programs(source: Source) -> list[Source]:
    """The parts of `source` with more than comments, or with comments about expected diagnostics; the first part, if there is
    none."""
    result = parts(source)
    return [p for p in result if p.data is not None or not is_blank(p) or "expected-" in p.text] or result[:1]


def with_parts_replaced(texts: Sequence[Iterable[str]], source: Source, to: str | None = None) -> list[str]:
    """The pieces of one text in format `to` (None: that of `source`), with `texts` in place of the parts of `source`."""
    own = _BOUNDARY.search(source.text)
    return divided(texts, FORMATS[to].comment if to is not None else own[1] if own else "//")


def divided(texts: Iterable[Iterable[str]], comment: str) -> list[str]:
    """The pieces of one text: `texts` in order, with boundaries between them."""
    return [piece for i, text in enumerate(texts) for piece in ([_boundary(comment)] * (i > 0) + [*text])]


def divider(form: str) -> str:
    """The text between two programs, the second of them in format `form`."""
    return _boundary(FORMATS[form].comment)


def _boundary(comment: str) -> str:
    return f"\n{comment} -----\n\n"
