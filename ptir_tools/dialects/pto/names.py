"""The spelling of element types, locations, layouts and spaces, and the other spellings that are read."""

from __future__ import annotations

from ptir_tools.core.dtypes import (
    BF16,
    F16,
    F32,
    FP8_E4M3,
    FP8_E5M2,
    I1,
    INDEX,
    SI8,
    SI16,
    SI32,
    SI64,
    UI8,
    UI16,
    UI32,
    UI64,
    DType,
)  # fmt: skip

# Canonical spelling first; the others are read too.
_SPELLINGS: dict[DType, tuple[str, ...]] = {
    INDEX: ("index",),
    I1: ("i1",),
    SI8: ("i8", "si8"),
    SI16: ("i16", "si16"),
    SI32: ("i32", "si32"),
    SI64: ("i64", "si64"),
    UI8: ("u8", "ui8"),
    UI16: ("u16", "ui16"),
    UI32: ("u32", "ui32"),
    UI64: ("u64", "ui64"),
    F16: ("f16",),
    BF16: ("bf16",),
    F32: ("f32",),
    FP8_E4M3: ("f8e4m3fn", "f8E4M3FN", "f8e4m3", "f8E4M3"),
    FP8_E5M2: ("f8e5m2", "f8E5M2"),
}
DTYPES: dict[str, DType] = {text: d for d, texts in _SPELLINGS.items() for text in texts}
DTYPE_TEXT: dict[DType, str] = {d: texts[0] for d, texts in _SPELLINGS.items()}

LOCS = ("Vec", "Mat", "Left", "Right", "Acc", "Bias", "Scale", "ScaleLeft", "ScaleRight")
LAYOUTS = ("ND", "DN", "Zz", "Zn", "Nz", "Nn")
SPACES = ("gm", "ub", "vec", "mat", "left", "right", "acc", "bias", "scale", "scaleleft", "scaleright")
SCOPES = ("intra", "inter")

SPACE_LOCS = {"ub": "Vec"} | {name.lower(): name for name in LOCS}  # where memrefs outside gm are
_LOCS = {name.lower(): name for name in LOCS} | {"scaling": "Scale"}
_LAYOUTS = {name.lower(): name for name in LAYOUTS}


def loc_of(text: str) -> str | None:
    """The location that `text` names in any case, or None."""
    return _LOCS.get(text.lower())


def layout_of(text: str) -> str | None:
    """The layout that `text` names in any case, or None."""
    return _LAYOUTS.get(text.lower())


def space_of(text: str) -> str | None:
    """The memory space that `text` names in any case, or None."""
    return text.lower() if text.lower() in SPACES else "scale" if text.lower() == "scaling" else None


def inner(opaque: str) -> str:
    """`a3` of `#pto.target<a3>`, `"a3"` or `a3`."""
    text = opaque.strip().strip('"')
    return text[text.index("<") + 1 : -1].strip() if text.startswith("#") and text.endswith(">") else text
