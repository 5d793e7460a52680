"""Broken programs: those of testdata/, with bytes, tokens, lines and numbers changed, and spliced into each other."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.limits import LIMITS
from ptir_tools.dialects import FORMATS, OWNERS, reading
from ptir_tools.dialects.sniff import sniff

ROOT = Path(__file__).parent.parent.parent
_GRAMMARS = {"ptir-dump": "ptir_dump", "ptir-json": "json", "tiny": "json"} | {x: x for x in ("ptir", "pto", "mind", "stablehlo")}
READABLE = tuple(f.name for f in FORMATS.values() if f.name in _GRAMMARS)
_SUFFIXES = (".ptir", ".ir", ".json", ".pto", ".mlir")
_LARGEST = 8_000  # bytes of a program that is mutated: more cost time and find no more
_TOKEN = re.compile(rb'"(?:[^"\\\n]|\\.)*"|[%@^?#!]?[A-Za-z_][\w.]*|-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|->|\s+|.', re.DOTALL)
_WORD = re.compile(r'"((?:[^"\\]|\\.)+)"')

# What breaks readers: numbers beyond every width, names beyond every length, bytes that are no text, escapes of no character.
HOSTILE = (
    b"", b"0", b"-0", b"-1", b"1" * 30, b"9" * 5000, b"9223372036854775807", b"9223372036854775808", b"-9223372036854775809",
    b"18446744073709551616", b"0x", b"0xFFFFFFFFFFFFFFFFFF", b"1e999", b"-1e-999", b"nan", b"inf", b"-inf", b".5", b"5.", b"1_0",
    b"\0", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xe2\x80\xae", b"\xf0\x9d\x9f\x99", b"\xd9\xa3",
    b"\r", b"\x0b", b"\x85",
    b"\xc2\xb2",
    b'"\\ud800"', b'"\\udfff\\ud800"', b'"\\u0000"', b'"\\u12"', b'"\\x"', b'"', b"'", b"\\", b"/*", b"*/", b"//", b"#",
    b"a" * 5000, b"(" * 300, b"[" * 300, b"{" * 300, b'{"a":' * 300, b"tensor<f32, " * 50, b")" * 300, b"{{x}}",
    b"dense<?>", b"dense<@x>",
    b"true", b"null", b"{}", b"[]", b"()", b"?N", b"?", b"%", b"%0", b"@", b"^", b"::", b"->", b"<", b">", b"=", b",", b":", b";",
)  # fmt: skip


@cache
def corpus() -> dict[str, tuple[bytes, ...]]:
    """The programs of testdata/ by format."""
    found: dict[str, list[bytes]] = {name: [] for name in READABLE}
    for path in sorted((ROOT / "testdata").rglob("*")):
        if path.suffix in _SUFFIXES and path.stat().st_size <= _LARGEST:
            source = reading.decode(data := path.read_bytes(), path.name, Diagnostics(), LIMITS)
            form = sniff(source.text) if source is not None else None
            if form in found:
                found[form].append(data)
    return {name: tuple(texts) for name, texts in found.items()}


@cache
def dictionary(form: str) -> tuple[bytes, ...]:
    """The words of a format's grammar, the names of its ops, and what breaks readers."""
    grammar = ROOT / "grammars" / f"{_GRAMMARS[form]}.lark"
    words = _WORD.findall(grammar.read_text("utf-8")) if grammar.exists() else []
    ops = OWNERS[form].ops
    said = {w.encode() for w in (*words, *ops)} | {t for text in corpus()[form] for t in _TOKEN.findall(text) if len(t) < 40}
    return (*HOSTILE, *sorted(said))


def _byte(text: bytes, form: str, draw: random.Random) -> bytes:
    at = draw.randrange(len(text) + 1)
    end = min(len(text), at + draw.choice((0, 1, 1, 2, 8)))
    return text[:at] + draw.choice((bytes([draw.randrange(256)]), b"", text[at:end] * 2)) + text[end:]


def _token(text: bytes, form: str, draw: random.Random) -> bytes:
    """A token dropped, doubled, swapped with another, or replaced by a word."""
    tokens = _TOKEN.findall(text)
    if not tokens:
        return draw.choice(HOSTILE)
    i, j = draw.randrange(len(tokens)), draw.randrange(len(tokens))
    way = draw.randrange(6)
    if way == 0:
        del tokens[i]
    elif way == 1:
        tokens.insert(j, tokens[i])
    elif way == 2:
        tokens[i], tokens[j] = tokens[j], tokens[i]
    else:
        tokens[i] = draw.choice(HOSTILE if way == 3 else dictionary(form))
    return b"".join(tokens)


def _number(text: bytes, form: str, draw: random.Random) -> bytes:
    """A number replaced by another, everywhere or in one place."""
    numbers = list(re.finditer(rb"\d+", text))
    if not numbers:
        return text
    m = draw.choice(numbers)
    new = draw.choice((*HOSTILE[1:20], str(int(m[0][:18]) + draw.choice((-1, 1))).encode(), draw.choice(numbers)[0]))
    return text.replace(m[0], new) if draw.random() < 0.2 else text[: m.start()] + new + text[m.end() :]


def _line(text: bytes, form: str, draw: random.Random) -> bytes:
    """A line dropped, doubled, moved, or taken from another program of the format."""
    lines, others = text.split(b"\n"), draw.choice(corpus()[form]).split(b"\n")
    i, way = draw.randrange(len(lines)), draw.randrange(4)
    if way == 0:
        del lines[i]
    elif way == 1:
        lines.insert(draw.randrange(len(lines)), lines[i])
    elif way == 2:
        lines.insert(draw.randrange(len(lines)), lines.pop(i))
    else:
        lines.insert(i, draw.choice(others))
    return b"\n".join(lines)


def _splice(text: bytes, form: str, draw: random.Random) -> bytes:
    """The beginning of one program and the end of another, or a balanced part of another in place of one of this."""
    other = draw.choice(corpus()[form])
    if draw.random() < 0.5:
        return text[: draw.randrange(len(text) + 1)] + other[draw.randrange(len(other)) :]
    here, there = _part(text, draw), _part(other, draw)
    return text[: here[0]] + other[slice(*there)] + text[here[1] :]


def _part(text: bytes, draw: random.Random) -> tuple[int, int]:
    """The place of a balanced part: from an opening bracket to its closing one."""
    opening = [m.start() for m in re.finditer(rb"[(\[{<]", text)]
    if not opening:
        return 0, 0
    start, depth = draw.choice(opening), 0
    for i in range(start, len(text)):
        depth += (text[i] in b"([{<") - (text[i] in b")]}>")
        if depth == 0:
            return start, i + 1
    return start, len(text)


def _deeper(text: bytes, form: str, draw: random.Random) -> bytes:
    """A balanced part repeated within itself many times, or many times over."""
    start, end = _part(text, draw)
    times = draw.choice((2, 50, 255, 257, 2000))
    if draw.random() < 0.5:
        return (text[: start + 1] * min(times, 1 + 100_000 // (start + 1)) + text[start + 1 :])[:200_000]
    return (text[:start] + text[start:end] * min(times, 1 + 100_000 // max(end - start, 1)) + text[end:])[:200_000]


def _longer(text: bytes, form: str, draw: random.Random) -> bytes:
    """A token made very long: a number, a name, a blank or a sign repeated, which shows what takes the square of a length."""
    tokens = list(_TOKEN.finditer(text))
    if not tokens:
        return text
    m = draw.choice(tokens)
    unit = m[0][-1:] if m[0][-1:].isalnum() else m[0]
    return text[: m.end()] + unit * (draw.choice((5_000, 60_000)) // len(unit)) + text[m.end() :]


_WAYS: tuple[Callable[[bytes, str, random.Random], bytes], ...] = (
    _byte, _token, _token, _token, _number, _number, _line, _splice,
)  # fmt: skip


def mutated(seed: int) -> tuple[str, bytes]:
    """The format and the text of broken program number `seed`."""
    draw = random.Random(seed)
    form = draw.choice(READABLE)
    text = draw.choice(corpus()[form])
    for _ in range(draw.choice((1, 1, 1, 2, 3, 6))):
        text = draw.choice(_WAYS)(text, form, draw)
    if draw.random() < 0.02:
        text = draw.choice((_deeper, _longer))(text, form, draw)
    return form, text
