"""Element types that tile ops take, per target, as PTO spells them."""

from __future__ import annotations

from collections.abc import Mapping


def on(a3: str, more: str = "", *, but: str = "") -> Mapping[str, frozenset[str]]:
    """The element types of an op on a3; a5 has `more`, too, `but` lacks some."""
    return {"a3": frozenset(a3.split()), "a5": frozenset(f"{a3} {more}".split()) - frozenset(but.split())}


_COMMON = "i16 i32 f16 f32"
_SMALL = "i8 i16 i32 u8 u16 u32 f16 bf16 f32"
_FP8 = "f8e4m3fn f8e5m2"
COMMON, WIDENED = on(_COMMON), on(_COMMON, "i8 u8 u16 u32 bf16")
FLOATS, POWERS, WORDS = on("f16 f32"), on("f32", "f16 bf16"), on("i16 i32 u16 u32 f16 bf16 f32")
SMALL, SMALL_OR_FP8, SMALL_ON_A5 = on(_SMALL), on(_SMALL, _FP8), on("", _SMALL)
MEMORY = on("i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32", _FP8)
MATRIX = on("i8 f16 bf16 f32", _FP8)
BITS = on("i8 i16", "i32 u8 u16 u32")
SHIFTED, SHIFTED_ALIKE = on("i8 i16 i32 u8 u16 u32"), on("i16 i32 u16 u32", "i8 u8")
WINDOWS = on("i16 i32 u16 u32 f16 bf16 f32", f"i8 {_FP8}", but="i16 u16 u32")  # of tiles in Vec
PRODUCTS = on(_COMMON, "u16 u32 bf16")
COUNTED = on("i16 i32 u16 u32")
INDEXED = on("i16 i32 u16 u32 f16 f32", "bf16")
ADDED = on("i8 i16 i32 f16 bf16 f32")  # to memory, by a store
ACCUMULATED = on("i32 f32")
