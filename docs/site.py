"""What mkdocs calls: the README is the first page of the site, and the docstrings of `ptir_tools` are its page `api`."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

from mkdocs.structure.files import File, Files

import ptir_tools

README = Path(__file__).parent.parent / "README.md"
API = """# Python API

These are the names of `ptir_tools`. [The builder](builder.md) explains how programs are made,
[engines](engines.md) how they run.
"""


def on_files(files: Files, config: Any) -> Files:
    """Add `index.md`: the README, with links to pages of `docs` as they are from there; and `api.md`, for mkdocstrings."""
    text = re.sub(r"\]\(docs/", "](", README.read_text("utf-8"))
    files.append(File.generated(config, "index.md", content=text))
    files.append(File.generated(config, "api.md", content=API + "".join(map(_entry, sorted(ptir_tools.__all__, key=str.lower)))))
    return files


def _entry(name: str) -> str:
    """What asks mkdocstrings for a name of `ptir_tools`: where it is defined."""
    found = getattr(ptir_tools, name)
    assert not isinstance(found, ModuleType)
    return f"\n::: {found.__module__}.{found.__qualname__}\n"
