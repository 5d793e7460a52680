"""Whether a text is the assembler's."""

from __future__ import annotations

from ptir_tools.core.lazy import regex

_BEGINS = regex(r"module\b|func\.func\b")
_OURS = regex(r"(?<![!\w.])(?:pto\.memref|(?:pto\.)?tile)<")  # a type without `!`
_BUFFERS = regex(
    r"!pto\.(?:tile_buf|ptr|tensor_view|partition_tensor_view|eventid_array|pipe)\b|#pto\.address_space\b|"
    r"\bpto\.(?:alloc_tile|record_event|wait_event|set_flag|wait_flag|barrier|get_buf|get_block_idx)\b"
)


def begins(text: str, at: int) -> bool:
    """Whether `text` begins at `at` with a module or a function, and has buffers, pointers, flags or cores."""
    return _BEGINS.match(text, at) is not None and _BUFFERS.search(text) is not None and _OURS.search(text) is None
