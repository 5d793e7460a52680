"""The types of the assembler's text: buffers, pointers, views of memory."""

from __future__ import annotations

import re
from functools import cache

from ptir_tools.core.dtypes import DType
from ptir_tools.core.records import dataclass
from ptir_tools.core.spelling import nearest
from ptir_tools.core.types import UNKNOWN, Dim, Shape
from ptir_tools.core.violations import Violation, require
from ptir_tools.dialects.pto.names import DTYPES, SPACE_LOCS, loc_of, space_of
from ptir_tools.dialects.pto.types import ScalarType, TileType, scalar, tile

# The layout of a tile by the order of its boxes (blayout) and the order inside of a box (slayout).
LAYOUTS = {
    ("row_major", "none_box"): "ND",
    ("col_major", "none_box"): "DN",
    ("row_major", "row_major"): "Zz",
    ("row_major", "col_major"): "Zn",
    ("col_major", "row_major"): "Nz",
    ("col_major", "col_major"): "Nn",
}
PADS = {"0": None, "1": "Zero", "2": "Max", "3": "Min"}  # what a load writes around the valid region
_KEYS = ("loc", "dtype", "rows", "cols", "v_row", "v_col", "valid", "blayout", "slayout", "fractal", "pad", "compact")


@dataclass(slots=True, frozen=True)
class BufferType:
    """A tile buffer: the type of the tiles that it holds. A valid extent of None is given when the buffer is made."""

    tile: TileType
    valid: tuple[int | None, ...]
    pad: str | None = None


@dataclass(slots=True, frozen=True)
class PointerType:
    """A pointer to elements in global memory."""

    dtype: DType


@dataclass(slots=True, frozen=True)
class ViewType:
    """A view of global memory, or a part of one."""

    dtype: DType
    shape: Shape


@dataclass(slots=True, frozen=True)
class OtherType:
    """A type without a meaning in PTO IR, such as that of a pipe between cores. An op that needs it is refused by name."""

    text: str


Spelled = BufferType | PointerType | ViewType | ScalarType | OtherType


@cache
def parse(text: str) -> Spelled:
    """The type that `text` spells. Raises Violation."""
    name, _, inside = text.partition("<")
    inside = inside.removesuffix(">").strip()
    name = name.strip()
    if name == "!pto.ptr":
        return PointerType(_dtype(inside.partition(",")[0]))
    if name in ("!pto.tensor_view", "!pto.partition_tensor_view", "!pto.tile_view"):
        return ViewType(*_dtype_and_shape(inside))
    if name == "!pto.tile_buf" or (not name and ("loc=" in inside or "address_space" in inside)):
        return _buffer(inside)
    if not name:
        return PointerType(_dtype(inside))
    if name == "memref":
        return _memref(inside)
    if name in DTYPES:
        return scalar(DTYPES[name])
    return OtherType(text)


def _dtype(text: str) -> DType:
    found = DTYPES.get(text.strip())
    if found is None:
        raise Violation(
            "TypeMismatch", f"`{text.strip()}` is no element type", instead=nearest(text.strip(), DTYPES), at=text.strip()
        )
    return found


def _dtype_and_shape(text: str) -> tuple[DType, tuple[Dim, ...]]:
    """`?x32xf32`: the element type and the extents."""
    *dims, element = re.split(r"\s*x\s*(?=[\d?a-z])", text.strip())
    return _dtype(element), tuple(UNKNOWN if d == "?" else int(d) for d in dims)


def _pieces(text: str) -> list[str]:
    """The parts of a list that no bracket encloses."""
    return [p.strip() for p in re.findall(r"(?:[^,<\[]|<[^<>]*(?:<[^<>]*>[^<>]*)*>|\[[^\]]*\])+", text) if p.strip()]


def _memref(inside: str) -> Spelled:
    """A memref: on chip it is a buffer, elsewhere a view of global memory."""
    shaped, *info = _pieces(inside)
    dtype, shape = _dtype_and_shape(shaped)
    space = next((m[1] for p in info if (m := re.search(r"address_space<\s*(\w+)\s*>", p))), "gm")
    loc = SPACE_LOCS.get(space_of(space) or "")
    if loc is None:
        return ViewType(dtype, shape)
    require(all(isinstance(d, int) for d in shape), "ShapeMismatch", f"a tile has a fixed shape, not `{shaped}`")
    sizes = tuple(d for d in shape if isinstance(d, int))
    sizes = (1,) * (2 - len(sizes)) + sizes
    return BufferType(tile(dtype, sizes, loc), sizes)


def _buffer(inside: str) -> BufferType:
    """`loc=vec, dtype=f32, rows=32, cols=32, …`, or `vec, 32x32xf32, …`. Raises Violation."""
    given: dict[str, str] = {}
    for piece in _pieces(inside):
        key, equals, value = (x.strip() for x in piece.partition("="))
        if (space := re.search(r"address_space<\s*(\w+)\s*>", piece)) is not None:
            given["loc"] = space[1]
        elif not equals and loc_of(key) is not None:
            given["loc"] = key
        elif not equals and re.match(r"\d+\s*x", key):
            _, shape = _dtype_and_shape(key)
            given |= {"dtype": key.rpartition("x")[2].strip(), "rows": str(shape[0]), "cols": str(shape[-1])}
        elif equals:
            require(key in _KEYS, "UnknownAttribute", f"a tile_buf has no `{key}`", help=f"it has {', '.join(_KEYS)}", at=key)
            given[key] = value
    missing = [key for key in ("loc", "dtype", "rows", "cols") if key not in given]
    require(not missing, "TypeMismatch", f"a tile_buf needs `{missing[0] if missing else ''}`")
    loc = loc_of(given["loc"])
    require(loc is not None, "InvalidLocation", f"`{given['loc']}` is no location", at=given["loc"])
    extents = [_natural(given[key]) for key in ("rows", "cols")]
    valid: list[int | None] = []
    for key, extent in zip(("v_row", "v_col"), extents, strict=True):
        text = given.get(key, "")
        known = None if text == "?" else _natural(text) if text else extent
        require(known is None or 0 < known <= extent, "InvalidValid", f"{key} is {known} of {extent}", at=f"{key}={text}")
        valid.append(known)
    stated = [v for v in valid if v is not None]
    smaller = stated if len(stated) == len(extents) and stated != extents else None
    pad = PADS.get(given.get("pad", "0").partition(":")[0].strip())
    return BufferType(tile(_dtype(given["dtype"]), extents, loc, _layout(given, loc), smaller), tuple(valid), pad)


def _layout(given: dict[str, str], loc: str | None) -> str | None:
    """The layout that blayout and slayout spell; None where neither is there, and in Left, where the target decides."""
    if ("blayout" not in given and "slayout" not in given) or loc == "Left":
        return None
    usual = {"Left": ("row_major", "row_major"), "Right": ("row_major", "col_major"), "Mat": ("col_major", "row_major")}
    outer, inner = usual.get(loc or "", ("row_major", "none_box"))
    outer, inner = given.get("blayout", outer), given.get("slayout", inner)
    found = LAYOUTS.get((outer, inner))
    if found is None:
        raise Violation("InvalidLayout", f"there is no layout with blayout={outer} and slayout={inner}", at=f"blayout={outer}")
    if loc in ("Scale", "ScaleLeft", "ScaleRight") and found == "ND":
        return None
    return found


def _natural(text: str) -> int:
    require(text.isdecimal() and len(text) < 10, "ShapeMismatch", f"`{text}` is no extent", at=text)
    return int(text)
