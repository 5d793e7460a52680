"""What mkdocs calls: the README is the first page of the site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

README = Path(__file__).parent.parent / "README.md"


def on_files(files: Files, config: Any) -> Files:
    """Add `index.md`: the README, with links to pages of `docs` as they are from there."""
    text = re.sub(r"\]\(docs/", "](", README.read_text("utf-8"))
    files.append(File.generated(config, "index.md", content=text))
    return files
