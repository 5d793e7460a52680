"""Broken portable artifacts of StableHLO: modules of testdata/ in bytecode, with sections, strings, numbers and bytes changed.

A file of bytecode is a magic number, a version, a producer and sections: an id, a length and bytes. Strings are one section.
Broken strings leave the file readable, so they reach our reader; most others stop in jaxlib, which must not take us with it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from itertools import chain, islice

from ptir_tools.bridges.stablehlo import bytecode, portable, writer
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.dialect import Options
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.source import Source
from ptir_tools.core.verify import verify
from ptir_tools.core.violations import Violation
from ptir_tools.dialects import reading
from ptir_tools.tools.isolation import isolated

from .models import LIMITS
from .mutations import HOSTILE, corpus

_MAGIC = b"ML\xefR"
_STRINGS = 0  # the id of the section of strings
_PADDING = 0xCB
_PROGRAMS = 12

Section = tuple[int, bytes]


@cache
def artifacts() -> tuple[bytes, ...]:
    """Some programs of testdata/ as jaxlib writes them. A child makes them: JAX starts threads. It needs jaxlib."""
    return tuple(x for x in isolated(lambda announce: islice(_made(), _PROGRAMS), seconds=120.0) if isinstance(x, bytes))


def _made() -> Iterator[bytes]:
    for text in chain(corpus()["stablehlo"], _translated()):
        with suppress(Exception):  # of jaxlib: not a module on its own
            yield portable.work("write", text)


def _translated() -> Iterator[bytes]:
    """The programs in PTIR that StableHLO can express, as its text."""
    for data in corpus()["ptir"]:
        said, options = Diagnostics(), Options(limits=LIMITS)
        source = reading.decode(data, "<fuzz>", said, LIMITS)
        program = source and reading.read(source, said, options, "ptir")
        if program is not None and verify(program, said, options) and not said.errors:
            with suppress(Violation):  # a constant whose payload is elsewhere
                text = "".join(writer.write(program, said, options))
                if not said.errors:
                    yield text.encode()


def number(data: bytes, at: int) -> tuple[int, int]:
    """The number at a place of bytecode, and the place behind it. The zeros that end its first byte count its further bytes."""
    first = data[at]
    more = 8 if not first else (first & -first).bit_length() - 1
    end = at + more + 1
    whole = int.from_bytes(data[at:end], "little")
    return (whole >> 8 if not first else whole >> (more + 1)), end


def written(value: int) -> bytes:
    """A number in bytecode."""
    more = next(n for n in range(9) if n == 8 or value < 1 << 7 * (n + 1))
    return b"\0" + value.to_bytes(8, "little") if more == 8 else ((value * 2 + 1) << more).to_bytes(more + 1, "little")


def sections(data: bytes) -> tuple[bytes, list[Section]]:
    """The headers before the sections, and the sections. Their alignment is left out: only constants of the host need it."""
    at = data.index(b"\0", number(data, len(_MAGIC))[1]) + 1
    head, found = data[:at], list[Section]()
    while at < len(data):
        kind = data[at]
        length, at = number(data, at + 1)
        if kind & 0x80:
            _, at = number(data, at)
            while data[at] == _PADDING:
                at += 1
        found.append((kind & 0x7F, data[at : at + length]))
        at += length
    return head, found


def joined(head: bytes, parts: list[Section]) -> bytes:
    """The bytecode of sections."""
    return head + b"".join(bytes([kind]) + written(len(data)) + data for kind, data in parts)


def strings(data: bytes) -> list[bytes]:
    """The strings of their section: lengths, the last first, and then the strings, each with a zero."""
    count, at = number(data, 0)
    lengths = []
    for _ in range(count):
        length, at = number(data, at)
        lengths.append(length)
    found = []
    for length in reversed(lengths):
        found.append(data[at : at + length - 1])
        at += length
    return found


def of_strings(found: list[bytes]) -> bytes:
    """The section of these strings."""
    lengths = b"".join(written(len(x) + 1) for x in reversed(found))
    return written(len(found)) + lengths + b"".join(x + b"\0" for x in found)


def _other_strings(draw: random.Random, parts: list[Section]) -> list[Section]:
    at = next((i for i, (kind, _) in enumerate(parts) if kind == _STRINGS), None)
    if at is None:
        return parts
    found = strings(parts[at][1])
    for _ in range(draw.choice((1, 1, 2, 4))):
        i = draw.randrange(len(found))
        old = found[i]
        found[i] = draw.choice(
            (draw.choice(HOSTILE)[:300], old + draw.choice(HOSTILE)[:50], draw.choice(found), old[: len(old) // 2])
        )
    return [*parts[:at], (_STRINGS, of_strings(found)), *parts[at + 1 :]]


def _other_sections(draw: random.Random, parts: list[Section]) -> list[Section]:
    i, j = draw.randrange(len(parts)), draw.randrange(len(parts))
    kind, data = parts[i]
    other = draw.choice(
        ([], [parts[j]], [parts[i], parts[i]], [(parts[j][0], data)], [(draw.randrange(128), data)], [(kind, b"")])
    )
    return [*parts[:i], *other, *parts[i + 1 :]]


def _other_numbers(draw: random.Random, parts: list[Section]) -> list[Section]:
    i = draw.randrange(len(parts))
    kind, data = parts[i]
    for _ in range(draw.choice((1, 1, 3))):
        if data:
            at = draw.randrange(len(data))
            big = draw.choice((0, 1, 2, 63, 64, 1 << 14, 1 << 31, (1 << 63) - 1, (1 << 64) - 1, draw.randrange(256)))
            data = data[:at] + written(big) + data[at + draw.choice((0, 1, 1, 2)) :]
    return [*parts[:i], (kind, data), *parts[i + 1 :]]


_CHANGES: tuple[Callable[[random.Random, list[Section]], list[Section]], ...] = (
    _other_strings, _other_strings, _other_strings, _other_numbers, _other_numbers, _other_sections,
)  # fmt: skip


def artifact(seed: int) -> bytes:
    """Broken artifact number `seed`."""
    draw = random.Random(f"stablehlo bytecode {seed}")
    head, parts = sections(draw.choice(artifacts()))
    for _ in range(draw.choice((1, 1, 1, 2))):
        parts = draw.choice(_CHANGES)(draw, parts)
    data = bytearray(joined(head, parts))
    for _ in range(draw.choice((0, 0, 0, 0, 1, 3))):
        data[draw.randrange(len(data))] = draw.randrange(256)
    return bytes(data if draw.random() < 0.95 else data[: draw.randrange(len(data))])


def one_artifact(seed: int) -> str | None:
    """Broken artifact number `seed` through the reader of bytecode."""
    found, options = Diagnostics(), Options(limits=LIMITS)
    try:
        program = bytecode.read(Source("<fuzz>", "", artifact(seed)), found, options)
        if program is None:
            assert found.errors, "no program and no diagnostics"
            return None
        verify(program, found, options)
    except (LimitExceeded, UsageError):
        pass
    return None
