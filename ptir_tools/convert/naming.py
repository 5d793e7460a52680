"""Names that survive a translation: spelled in the target's letters, unique."""

from __future__ import annotations

import re

_BAD = re.compile(r"[^A-Za-z0-9_]")


def spelled(name: str) -> str:
    """`name` with `_` for what no dialect can spell; a name that begins with a digit and is no number gets `_` in front."""
    plain = _BAD.sub("_", name)
    return f"_{plain}" if plain[:1].isdigit() and not plain.isdecimal() else plain


def between(name: str, taken: set[str]) -> str:
    """A fresh name for a value that stands between those of the source, on the way to `name`: `v5_0` for `5`. It is taken."""
    stem, n = f"v{name}" if name.isdecimal() else name, 0
    while (own := f"{stem}_{n}") in taken:
        n += 1
    taken.add(own)
    return own
