"""Source locations of the Python calls that build ops, for the diagnostics of a built program."""

from __future__ import annotations

import linecache
from types import CodeType, FrameType

from ptir_tools.core.source import Loc, Source, pack
from ptir_tools.core.typed import Protocol

Position = tuple[int | None, int | None, int | None, int | None]  # line, last line, column, end column; columns count bytes


class Places(Protocol):
    """What knows the locations of the ops of a graph."""

    def place(self, frame: FrameType | None, /) -> Loc:
        """The location of an op that the call in `frame` appends."""


class Caller:
    """The file that makes a graph. The location of an op is the innermost call in that file; without a file there is none."""

    def __init__(self, file: str) -> None:
        self.file = file
        text = "".join(linecache.getlines(file))
        self.source = Source(file, text) if text else None
        self.positions: dict[CodeType, list[Position]] = {}

    def place(self, frame: FrameType | None) -> Loc:
        """The location of the call in `frame`, or in the nearest of its callers that is in the file."""
        while frame is not None and frame.f_code.co_filename != self.file:
            frame = frame.f_back
        if frame is None or self.source is None:
            return 0
        code = frame.f_code
        if code not in self.positions:
            self.positions[code] = list(code.co_positions())
        line, last, column, end = self.positions[code][frame.f_lasti // 2]
        if line is None or last is None or column is None or end is None or last > len(self.source.lines):
            return 0
        return pack(self._offset(self.source, line, column), self._offset(self.source, last, end))

    def _offset(self, source: Source, line: int, column: int) -> int:
        before = source.line_text(line).encode()[:column].decode("utf-8", "replace")
        return source.lines[line - 1] + len(before)
