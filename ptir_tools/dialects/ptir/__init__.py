"""PTIR, the portable tensor IR of gpt.rs (contract ptir.v0.4): ops on whole tensors, three serializations."""

import re

from ptir_tools.core.dialect import Dialect, FormatEntry, Hash
from ptir_tools.core.lazy import late, value

_HERE = "ptir_tools.dialects.ptir"
# The first function or region of a program. Its parameters are in parentheses in text, in `params:` in a dump.
_HEADER = r"^[ \t]*(?:[^\n{]*\{)?[ \t]*(?:func|region)\s*[@^]?[^\s({]*\s*(?P<open>\()?"
_BARE = r"(?!\w+\.[A-Za-z_])(?:func(?:tion)?|region)\s*[@^\w(]"  # a word with a point is an op of another dialect
_LOOKED_AT = 1 << 16  # characters, which have the first header


def _is_text(text: str, start: int) -> bool:
    if not re.compile(r"program\b").match(text, start):
        return re.compile(_BARE).match(text, start) is not None
    plain = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text[start : start + _LOOKED_AT], flags=re.DOTALL)
    header = re.search(_HEADER, plain, re.MULTILINE)
    return header is not None and header["open"] is not None


def _is_onnx(data: bytes) -> bool:
    """Whether `data` are the fields of a protobuf message as ONNX numbers those of a model, a graph (7) among them."""
    at, seen, end = 0, set(), len(data)
    while at < end:
        tag, at = _varint(data, at)
        field, kind = tag >> 3, tag & 7
        if (field, kind) not in _MODEL:
            return False
        size, at = _varint(data, at)
        at += size if kind == 2 else 0
        seen.add(field)
        if at > end and field != 7:  # the graph may be cut short: its reader says so
            return False
    return 7 in seen


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The variable-length integer at a place, and the place after it; what ends early is cut off."""
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        value, at, shift = value | (byte & 127) << shift, at + 1, shift + 7
        if byte < 128:
            break
    return value, at


# The fields of onnx.ModelProto by number and wire type.
_MODEL = {(1, 0), (5, 0), *((n, 2) for n in (2, 3, 4, 6, 7, 8, 14, 20, 25, 26))}

DIALECT = Dialect(
    name="ptir",
    specification="PTIR backend contract (https://github.com/Lallapallooza/gpt.rs)",
    formats=(
        FormatEntry(
            "ptir",
            f"{_HERE}.text.format",
            suffix=".ptir",
            begins=_is_text,
            comments_found=True,
            lines_before=lambda _: 1,
        ),
        FormatEntry("ptir-dump", f"{_HERE}.gptrs.dump", named=False, begins=r"program\b"),
        FormatEntry("onnx", "ptir_tools.bridges.onnx.format", suffix=".onnx", binary=_is_onnx),
        FormatEntry("ptir-json", f"{_HERE}.gptrs.json", named=False, suffix=".json", json_keys=('"functions"', '"spec_version"')),
    ),
    declares=f"{_HERE}.ops",
    constant="ptir.constant",
    pipeline="canonicalize,cse,dce",
    passes="ptir_tools.passes.ptir",
    check=late(f"{_HERE}.check", "check"),
    explain=value(f"{_HERE}.codes", "EXPLAIN"),
    generate=late(f"{_HERE}.generate", "generate"),
    hash=Hash(late(f"{_HERE}.gptrs.bincode", "program_hash"), late(f"{_HERE}.gptrs.bincode", "symbol")),
)
