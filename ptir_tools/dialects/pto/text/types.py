"""Types of PTO from text (PTO IR, section 2)."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from itertools import takewhile

from ptir_tools import grammars
from ptir_tools.core.dtypes import DType
from ptir_tools.core.lazy import regex
from ptir_tools.core.limits import integer
from ptir_tools.core.source import Loc, pack
from ptir_tools.core.spelling import did_you_mean, dtype_meant, nearest
from ptir_tools.core.typed import TypeAlias
from ptir_tools.core.types import UNKNOWN, Dim, Shape, Type, tensor
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.pto import names
from ptir_tools.dialects.pto.text.syntax import parser
from ptir_tools.dialects.pto.types import event, memref, scalar, tile
from ptir_tools.grammars.parser import Node, Refused, Token

_ELEMENT = regex(r"[<\s](?:(?:\d+|\?)\s*x\s*)+([A-Za-z_]\w*)\s*[,>]")
_PLACEHOLDER = regex(r"\.\.\.|…|<\s*(?:[A-Z]\w*|\d+|\?)(?:\s*x\s*(?:\d+|\?|[A-Z]\w*?))*\s*x\s*[A-Z]\w*|<\s*[A-Z]\w*\s*x|\|")
# The parts of types that are one of some words: what gives the canonical spelling, and the words.
_WORDS: dict[str, tuple[Callable[[str], str | None], tuple[str, ...]]] = {
    "loc": (names.loc_of, names.LOCS),
    "layout": (names.layout_of, names.LAYOUTS),
    "space": (names.space_of, names.SPACES),
    "scope": ({name: name for name in names.SCOPES}.get, names.SCOPES),
}
Parts: TypeAlias = "dict[str, Token | Node]"  # of a type, by their key


def _wrong(message: str, at: Loc = 0, help: str | None = None, instead: str | None = None) -> Violation:
    """A type that cannot be read; `at` is what is wrong within its text, if not all of it."""
    return Violation("ParseError", message, help=help, loc=at, instead=instead)


@cache
def parse_type(text: str) -> Type:
    """The type that `text` spells. Raises Violation("ParseError"), whose place is within it."""
    if (dtype := names.DTYPES.get(text)) is not None:
        return scalar(dtype)
    if (found := _PLACEHOLDER.search(text)) is not None:
        message = f"`{text}` is a placeholder of the documentation, not a type"
        raise _wrong(message, pack(found.start(), len(text)), "write every extent as a number or `?`, and leave nothing out")
    try:
        tree: Node = parser().parse(text, "type").children[0]
        return _BUILDERS[tree.data](tree)
    except Refused:
        at = min(grammars.refused("pto", text, "type").at, max(len(text) - 1, 0))
        if (unknown := _ELEMENT.search(text)) is not None and unknown[1] not in names.DTYPES:
            raise _no_element(unknown[1], pack(*unknown.span(1))) from None
        message, help = f"`{text}` is not a type of PTO", "such as tile<32x32xf32> or pto.memref<64x64xf16>"
        if text.startswith("tensor<"):
            raise _wrong(message, instead=f"tile<{text[7:]}", help=did_you_mean([f"tile<{text[7:]}"])) from None
        if (parted := re.fullmatch(r"((?:pto\.memref|tile)<)((?:\s*\d+\s*,)+)(\s*\w+.*)", text)) is not None:
            extents = "x".join(re.findall(r"\d+", parted[2]))
            written = f"{parted[1]}{extents}x{parted[3].lstrip()}"
            raise _wrong(message, pack(*parted.span(2)), f"`x` separates extents: `{written}`") from None
        if text.startswith("memref"):  # as MLIR spells it
            raise _wrong(message, instead=f"pto.{text}") from None
        raise _wrong(message, pack(at, len(text)), help) from None


def _shape(token: Token) -> tuple[DType, Shape]:
    parts = re.sub(r"\s+", "", token).split("x")
    dims = list(takewhile(lambda d: d.isdecimal() or d == "?", parts))
    element = "x".join(parts[len(dims) :])  # there may be an x in its name
    if element not in names.DTYPES:
        raise _no_element(element, pack(token.end_pos - len(element), token.end_pos))
    return names.DTYPES[element], tuple(UNKNOWN if d == "?" else integer(d) for d in dims)


def _no_element(element: str, at: Loc) -> Violation:
    known = ", ".join(sorted(set(names.DTYPE_TEXT.values())))
    meant = dtype_meant(element, names.DTYPES)
    return _wrong(f"`{element}` is not an element type", at, None if meant else f"one of {known}", meant)


def _positive(token: Token, shape: Shape) -> Shape:
    if any(isinstance(d, int) and d <= 0 for d in shape) or not shape:
        raise _wrong("a tile or memref has one extent at least, all of them positive", token.loc)
    return shape


def _dim(token: Token) -> Dim:
    return UNKNOWN if token == "?" else integer(token)


def _parts(tree: Node, *allowed: str) -> Parts:
    """The `key = value` parts of a type."""
    found: Parts = {}
    for pair in tree.parts("pair"):
        key, value = pair.children
        if key not in allowed or key in found:
            what = "given twice" if key in found else f"unknown here (known: {', '.join(allowed)})"
            meant = None if key in found else nearest(key, allowed)
            raise _wrong(f"`{key}` is {what}", key.loc, None, meant)
        found[str(key)] = value
    return found


def _word(parts: Parts, key: str) -> str | None:
    """A part of one word, in canonical spelling."""
    value = parts.get(key)
    if value is None:
        return None
    if isinstance(value, Node):
        raise _wrong(f"`{key}` is not a list")
    text = names.inner(value)
    canonical, choices = _WORDS.get(key, (str, ()))
    if (found := canonical(text)) is None:
        meant = nearest(text, choices)
        at = value.start_pos + max(value.find(text), 0)
        where = pack(at, at + len(text)) if text else value.loc
        raise _wrong(f"`{text}` is not a {key}", where, None if meant else f"one of {', '.join(choices)}", meant)
    return found


def _tile(tree: Node) -> Type:
    at, parts = tree.token("SHAPE"), _parts(tree, "loc", "layout", "valid")
    dtype, shape = _shape(at)
    valid = parts.get("valid")
    if isinstance(valid, Token):
        raise _wrong("`valid` is a list such as [16, 32]", valid.loc)
    extents = None if valid is None else map(_dim, valid.tokens())
    return tile(dtype, _positive(at, shape), _word(parts, "loc"), _word(parts, "layout"), extents)


def _memref(tree: Node) -> Type:
    at, parts = tree.token("SHAPE"), _parts(tree, "space", "layout")
    dtype, shape = _shape(at)
    for c in tree.tokens():
        if c.type == "OPAQUE":
            key = c.partition("<")[0].rpartition(".")[2]
            if key not in ("space", "layout"):
                raise _wrong(f"`{c}` does not belong in a memref", c.loc)
            parts[key] = c
    made = memref(dtype, _positive(at, shape), _word(parts, "space"), _word(parts, "layout"))
    for strided in tree.parts("strided"):
        strides, offset = strided.tokens("dims"), strided.tokens()
        if len(strides) != len(shape):
            raise _wrong(f"{len(strides)} strides for {len(shape)} extents", strided.loc)
        made = memref(dtype, shape, made.space, made.layout, map(_dim, strides), _dim(offset[0]) if offset else 0)
    return made


def _event(tree: Node) -> Type:
    parts = _parts(tree, "producer", "scope", "eid")
    eid, at = _word(parts, "eid"), parts.get("eid")
    if isinstance(at, Token) and eid is not None and not eid.isdecimal():
        raise _wrong("`eid` is a number", at.loc)
    return event(_word(parts, "producer"), _word(parts, "scope"), None if eid is None else integer(eid))


def _vector(tree: Node) -> Type:
    return tensor(*_shape(tree.token("SHAPE")))


def _scalar(tree: Node) -> Type:
    at = tree.token("SHAPE")
    dtype, shape = _shape(at)
    if shape:
        raise _wrong(f"`{at}` is not a type of PTO", help="write tile<…> round a shape")
    return scalar(dtype)


_BUILDERS = {"tile": _tile, "memref": _memref, "event": _event, "vector": _vector, "scalar": _scalar}
