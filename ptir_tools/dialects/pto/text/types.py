"""Types of PTO from text (PTO IR, section 2)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from itertools import takewhile

from ptir_tools import grammars
from ptir_tools.core.lazy import regex
from ptir_tools.core.limits import integer
from ptir_tools.core.spelling import dtype_meant, nearest
from ptir_tools.core.typed import Any
from ptir_tools.core.types import UNKNOWN, Dim, Shape, Type, tensor
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.pto import names
from ptir_tools.dialects.pto.types import event, memref, scalar, tile
from ptir_tools.grammars.parser import Node, Nodes, Parser, Refused

_PLACEHOLDER = regex(r"\.\.\.|…|<\s*(?:[A-Z]\w*|\d+|\?)(?:\s*x\s*(?:\d+|\?|[A-Z]\w*?))*\s*x\s*[A-Z]\w*|<\s*[A-Z]\w*\s*x|\|")
_PARTS = {"loc": names.loc_of, "layout": names.layout_of, "space": names.space_of}
_CHOICES = {"loc": names.LOCS, "layout": names.LAYOUTS, "space": names.SPACES}


class TypeSyntaxError(Violation):
    """A type that cannot be read; `offset` and `width` are where in its text, `width` 0 up to its end."""

    def __init__(self, message: str, offset: int, help: str | None = None, width: int = 0, instead: str | None = None) -> None:
        super().__init__("ParseError", message, help=help, instead=instead)
        self.offset = offset
        self.width = width


@cache
def parse_type(text: str) -> Type:
    """The type that `text` spells. Raises TypeSyntaxError."""
    if (dtype := names.DTYPES.get(text)) is not None:
        return scalar(dtype)
    if (found := _PLACEHOLDER.search(text)) is not None:
        message = f"`{text}` is a placeholder of the documentation, not a type"
        raise TypeSyntaxError(message, found.start(), "write every extent as a number or `?`, and leave nothing out")
    try:
        return _build(_parser().parse(text, "type").children[0])
    except Refused:
        error: Any = grammars.refused("pto", text, "type")
        at = min(error.pos_in_stream or 0, max(len(text) - 1, 0))
        message, help = f"`{text}` is not a type of PTO", "such as tile<32x32xf32> or pto.memref<64x64xf16>"
        if text.startswith("memref"):  # as MLIR spells it
            raise TypeSyntaxError(message, 0, None, len(text), f"pto.{text}") from None
        raise TypeSyntaxError(message, at, help) from None


@cache
def _parser() -> Parser:
    return grammars.parser("pto", Nodes())


def _build(tree: Node) -> Type:
    made: Type = _BUILDERS[tree.data](tree.children)
    return made


def _shape(token: Any) -> tuple[Any, Shape]:
    parts = re.sub(r"\s+", "", token).split("x")
    dims = list(takewhile(lambda d: d.isdecimal() or d == "?", parts))
    element = "x".join(parts[len(dims) :])  # there may be an x in its name
    if element not in names.DTYPES:
        known = ", ".join(sorted(set(names.DTYPE_TEXT.values())))
        meant = dtype_meant(element, names.DTYPES)
        at = token.start_pos + str(token).rindex(element) if element in token else token.start_pos
        help = None if meant else f"one of {known}"
        raise TypeSyntaxError(f"`{element}` is not an element type", at, help, len(element), meant)
    return names.DTYPES[element], tuple(UNKNOWN if d == "?" else integer(d) for d in dims)


def _positive(token: Any, shape: Shape) -> Shape:
    if any(isinstance(d, int) and d <= 0 for d in shape) or not shape:
        raise TypeSyntaxError("a tile or memref has one extent at least, all of them positive", token.start_pos)
    return shape


def _dim(token: Any) -> Dim:
    return UNKNOWN if token == "?" else integer(token)


def _pairs(children: Iterable[Any], allowed: tuple[str, ...]) -> dict[str, Any]:
    """The `key = value` parts of a type, checked and in canonical spelling."""
    found: dict[str, Any] = {}
    for pair in children:
        key, value = pair.children
        if key not in allowed or key in found:
            what = "given twice" if key in found else f"unknown here (known: {', '.join(allowed)})"
            meant = None if key in found else nearest(str(key), allowed)
            raise TypeSyntaxError(f"`{key}` is {what}", key.start_pos, None, len(key), meant)
        found[str(key)] = _value(str(key), value)
    return found


def _value(key: str, value: Any) -> Any:
    if key == "valid":
        if not isinstance(value, Node):
            raise TypeSyntaxError("`valid` is a list such as [16, 32]", value.start_pos)
        return tuple(map(_dim, value.children))
    if isinstance(value, Node):
        raise TypeSyntaxError(f"`{key}` is not a list", 0)
    text = names.inner(value)
    if key == "eid":
        if not text.isdecimal():
            raise TypeSyntaxError("`eid` is a number", value.start_pos)
        return integer(text)
    canonical = _PARTS[key](text) if key in _PARTS else text
    if key == "scope" and canonical not in names.SCOPES:
        canonical = None
    if canonical is None:
        choices = _CHOICES.get(key, names.SCOPES)
        meant, at = nearest(text, choices), value.start_pos + max(str(value).find(text), 0)
        help = None if meant else f"one of {', '.join(choices)}"
        raise TypeSyntaxError(f"`{text}` is not a {key}", at, help, len(text), meant)
    return canonical


def _tile(children: list[object]) -> Type:
    dtype, shape = _shape(children[1])
    pairs = (c for c in children[2:] if isinstance(c, Node))
    return tile(dtype, _positive(children[1], shape), **_pairs(pairs, ("loc", "layout", "valid")))


def _memref(children: list[Any]) -> Type:
    dtype, shape = _shape(children[1])
    more: dict[str, Any] = {}
    for c in children[2:]:
        if isinstance(c, Node) and c.data == "strided":
            more["strides"] = tuple(map(_dim, c.children[0].children))
            more["offset"] = _dim(c.children[1]) if len(c.children) > 1 else 0
        elif isinstance(c, Node):
            more |= _pairs([c], ("space", "layout"))
        else:
            key = c.partition("<")[0].rpartition(".")[2]
            if key not in ("space", "layout"):
                raise TypeSyntaxError(f"`{c}` does not belong in a memref", c.start_pos)
            more[key] = _value(key, c)
    if "strides" in more and len(more["strides"]) != len(shape):
        message = f"{len(more['strides'])} strides for {len(shape)} extents"
        raise TypeSyntaxError(message, children[2].children[0].children[0].start_pos if more["strides"] else 0)
    return memref(dtype, _positive(children[1], shape), **more)


def _event(children: list[object]) -> Type:
    return event(**_pairs(children[1:], ("producer", "scope", "eid")))


def _vector(children: list[object]) -> Type:
    return tensor(*_shape(children[0]))


def _scalar(children: list[object]) -> Type:
    dtype, shape = _shape(children[0])
    if shape:
        raise TypeSyntaxError(f"`{children[0]}` is not a type of PTO", 0, "write tile<…> round a shape")
    return scalar(dtype)


_BUILDERS = {"tile": _tile, "memref": _memref, "event": _event, "vector": _vector, "scalar": _scalar}
