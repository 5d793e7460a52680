"""Which of the two spellings of PTO a text has: tiles that are values, or the assembler's buffers."""

from __future__ import annotations

from ptir_tools.core.lazy import regex

_RESULTS = r"(?:%[\w$.-]+(?::\d+)?(?:\s*,\s*%[\w$.-]+(?::\d+)?)*\s*=\s*)?"
_BEGINS = regex(
    rf"{_RESULTS}\"?[A-Za-z_]\w*\.[A-Za-z_]|module\b(?!\s*\{{\s*(?:%\d+\s*=\s*const\.|output\s))|#pto\b"
)  # a module of constants is another IR's
_BUFFERS = regex(
    r"!pto\.(?:tile_buf|ptr|tensor_view|partition_tensor_view|eventid_array|pipe)\b|#pto\.address_space\b|"
    r"\bpto\.(?:alloc_tile|record_event|wait_event|set_flag|wait_flag|barrier|get_buf|get_block_idx)\b"
)


def begins_tiles(text: str, at: int) -> bool:
    """Whether `text` begins at `at` as PTO IR does, and has nothing of the assembler's."""
    return _BEGINS.match(text, at) is not None and not _has_buffers(text)


def begins_buffers(text: str, at: int) -> bool:
    """Whether `text` begins at `at` as PTO IR does, and has buffers, pointers or cores as the assembler spells them."""
    return _BEGINS.match(text, at) is not None and _has_buffers(text)


def _has_buffers(text: str) -> bool:
    return _BUFFERS.search(text) is not None
