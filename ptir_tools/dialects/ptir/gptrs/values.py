"""Values of gpt.rs as Rust has them, and their three encodings: serde's JSON, what `{:?}` prints, and bincode 1.

In Python, a Vec is a list, an array or tuple is a tuple, and an Option is None or Some. Numbers, texts and bytes are Python's.
Bincode has its default options: little endian and fixed width. There an enum is a u32 index before its payload, a length is a
u64, and an option is a byte before its value.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from ptir_tools.core.records import dataclass
from ptir_tools.core.typed import TypeAlias
from ptir_tools.core.violations import require
from ptir_tools.dialects.ptir.text.literal_text import decimal_text
from ptir_tools.dialects.ptir.text.spelling import quote

STEP = "  "
LARGE = ("Program", "Function", "Region", "Hint")  # structs that hold a Stream
BYTES = tuple(map(str, range(256)))  # a byte as text; each is made once


class Id(int):
    """The id of a value, which has 32 bits; other integers have 64."""


@dataclass(slots=True, eq=False)
class Some:
    """An Option that has a value."""

    value: Value


@dataclass(slots=True, eq=False)
class Newtype:
    """A struct around one value, whose name `{:?}` alone shows."""

    name: str
    value: Value


@dataclass(slots=True, eq=False)
class Struct:
    """A struct with its fields."""

    name: str
    fields: Mapping[str, Value]


@dataclass(slots=True, eq=False)
class Variant:
    """A variant of the enum that has `names`; without payload it is `()`. A `tagged` one goes by its name in bincode, too, and
    has its payload next to it in JSON."""

    name: str
    names: Iterable[str]
    payload: Value = ()
    tagged: bool = False


@dataclass(slots=True, eq=False)
class Stream:
    """A Vec whose elements are made when they are written."""

    make: Callable[..., Value]
    items: Sequence[object]

    def __iter__(self) -> Iterator[Value]:
        return map(self.make, self.items)


class Printed(partial[str]):
    """A value that exists only as JSON: a function of the indent."""


Value: TypeAlias = (
    "bool | int | float | str | bytes | Some | Newtype | Struct | Variant | Printed | Stream | tuple[Value, ...]"
    " | list[Value] | dict[str, Value] | None"
)


# ---- JSON


def json_pieces(x: Value, pad: str) -> Iterator[str]:
    """The text of serde_json's pretty printer, its first line without indent, an element of a Stream at a time."""
    inner, before = pad + STEP, ""
    if isinstance(x, Struct) and x.name in LARGE:
        for name, v in x.fields.items():
            yield f'{before or "{"}\n{inner}"{name}": '
            yield from json_pieces(v, inner)
            before = ","
        yield f"\n{pad}}}"
    elif isinstance(x, Stream):
        for v in x:
            start = f"{before or '['}\n{inner}"
            before = ","
            if isinstance(v, Printed):
                yield start + v(inner)
            else:
                yield start
                yield from json_pieces(v, inner)
        yield f"\n{pad}]" if before else "[]"
    else:
        yield json_text(x, pad)


def json_text(x: Value, pad: str) -> str:
    """The same in one piece."""
    inner = pad + STEP
    if isinstance(x, Printed):
        return x(pad)
    if isinstance(x, Struct):
        return _object([f'"{name}": {json_text(v, inner)}' for name, v in x.fields.items()], pad)
    if isinstance(x, Variant):
        if x.tagged:
            return _object([f'"kind": "{x.name}"', f'"value": {json_text(x.payload, inner)}'], pad)
        if x.payload == ():
            return _quoted(x.name)
        return _object([f'"{x.name}": {json_text(x.payload, inner)}'], pad)
    if isinstance(x, (list, tuple, Stream)):
        return json_array([json_text(v, inner) for v in x], pad)
    if isinstance(x, bytes):
        return json_array([BYTES[b] for b in x], pad)
    if isinstance(x, dict):
        return _object([f"{_quoted(key)}: {json_text(v, inner)}" for key, v in x.items()], pad)
    if isinstance(x, (Some, Newtype)):
        return json_text(x.value, pad)
    return float_text(x) if isinstance(x, float) else _quoted(x)


def _quoted(x: str | int | None) -> str:
    return json.dumps(x, ensure_ascii=False)


def _object(members: list[str], pad: str) -> str:
    inner = pad + STEP
    return f"{{\n{inner}" + f",\n{inner}".join(members) + f"\n{pad}}}" if members else "{}"


def json_array(items: list[str], pad: str) -> str:
    """An array of texts."""
    inner = pad + STEP
    return f"[\n{inner}" + f",\n{inner}".join(items) + f"\n{pad}]" if items else "[]"


def float_text(value: float) -> str:
    """A float as serde_json prints it: shortest digits, exponent form under 1e-5 and from 1e16 on; null when not finite."""
    if not math.isfinite(value):
        return "null"
    mantissa, _, exponent = repr(value).partition("e")
    if not exponent:
        return mantissa
    if exponent != "-05":
        return f"{mantissa}e{int(exponent)}"
    sign = "-" if mantissa[0] == "-" else ""
    return f"{sign}0.0000{mantissa.lstrip('-').replace('.', '')}"


# ---- `{:?}`


def debug(x: Value) -> str:
    """The output of `{:?}`."""
    if isinstance(x, Struct):
        return f"{x.name} {{ {', '.join(f'{name}: {debug(v)}' for name, v in x.fields.items())} }}"
    if isinstance(x, Variant):
        if isinstance(x.payload, Struct) and x.payload.name == x.name:  # a variant that has fields itself
            return debug(x.payload)
        return x.name if x.payload == () else f"{x.name}({debug(x.payload)})"
    if isinstance(x, (Some, Newtype)):
        return f"{x.name if isinstance(x, Newtype) else 'Some'}({debug(x.value)})"
    if isinstance(x, dict):
        return f"{{{', '.join(f'{quote(key)}: {debug(v)}' for key, v in x.items())}}}"
    if isinstance(x, (list, tuple)):
        left, right = "[]" if isinstance(x, list) else "()"
        return f"{left}{', '.join(map(debug, x))}{right}"
    if isinstance(x, bytes):
        return f"[{', '.join(BYTES[b] for b in x)}]"
    if isinstance(x, float):
        return decimal_text(repr(x)) if math.isfinite(x) else "NaN" if x != x else repr(x)
    return quote(x) if isinstance(x, str) else str(x).lower() if isinstance(x, bool) else str(x)


# ---- bincode


def bincode(x: Value) -> Iterator[bytes]:
    """The bytes of a value, in pieces. Raises Violation("NotTranslatable") for a value that gpt.rs cannot encode."""
    if isinstance(x, Struct):
        for v in x.fields.values():
            yield from bincode(v)
    elif isinstance(x, Variant):
        yield from bincode(x.name) if x.tagged else (_u32(_position(x)),)
        yield from bincode(x.payload)
    elif isinstance(x, tuple):
        for v in x:
            yield from bincode(v)
    elif isinstance(x, dict):
        yield from bincode(list(x.items()))
    elif isinstance(x, (list, Stream)):
        yield _u64(len(x if isinstance(x, list) else x.items))
        for v in x:
            yield from bincode(v)
    elif isinstance(x, (bytes, str)):
        data = x.encode("utf-8") if isinstance(x, str) else x
        yield _u64(len(data))
        yield data
    elif isinstance(x, Newtype):
        yield from bincode(x.value)
    elif isinstance(x, Some):
        yield b"\1"
        yield from bincode(x.value)
    elif isinstance(x, bool) or x is None:
        yield b"\1" if x else b"\0"
    elif isinstance(x, (int, float)):
        yield struct.pack("<d", x) if isinstance(x, float) else _u32(x) if isinstance(x, Id) else _u64(x)


def _position(x: Variant) -> int:
    known = list(x.names)
    require(x.name in known, "NotTranslatable", f"gpt.rs has no `{x.name}` (it has: {', '.join(known)})")
    return known.index(x.name)


def _u32(x: int) -> bytes:
    require(0 <= x < 2**32, "NotTranslatable", f"{x} does not fit the 32 bits that gpt.rs has for it")
    return struct.pack("<I", x)


def _u64(x: int) -> bytes:
    """64 bits of a number with or without sign."""
    require(-(2**63) <= x < 2**64, "NotTranslatable", f"{x} does not fit the 64 bits that gpt.rs has for it")
    return struct.pack("<Q", x & 2**64 - 1)
