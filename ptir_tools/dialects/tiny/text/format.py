"""Tiny's JSON: reading, the canonical print, and layout that keeps what the author wrote."""

from __future__ import annotations

from ptir_tools.core.dialect import Format
from ptir_tools.dialects.tiny.text.fmt import format_text
from ptir_tools.dialects.tiny.text.reader import read
from ptir_tools.dialects.tiny.text.writer import write

FORMAT = Format("tiny", "tiny", read, write, format_text)
