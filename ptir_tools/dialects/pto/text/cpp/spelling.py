"""How C++ spells element types, tile types, names and numbers."""

from __future__ import annotations

import math
import re

from ptir_tools.core import arrays
from ptir_tools.core.dtypes import I1, DType
from ptir_tools.core.ir import Function, Literal
from ptir_tools.core.types import TensorType, Type
from ptir_tools.dialects.pto.memory.info import sides, unit_dims
from ptir_tools.dialects.pto.names import DTYPE_TEXT
from ptir_tools.dialects.pto.types import MemRefType, ScalarType, TileType

_ELEMENTS = {
    "i1": "bool", "index": "int64_t", "f16": "half", "bf16": "bfloat16_t", "f32": "float", "f8e4m3fn": "float8_e4m3_t",
    "f8e5m2": "float8_e5m2_t",
} | {f"{sign}{n}": f"{'u' * (sign == 'u')}int{n}_t" for sign in "iu" for n in (8, 16, 32, 64)}  # fmt: skip
_LOCATIONS = {"Scale": "Scaling"}
_BOXES = {"ND": "RowMajor NoneBox", "DN": "ColMajor NoneBox", "Nz": "ColMajor RowMajor", "Zn": "RowMajor ColMajor",
          "Zz": "RowMajor RowMajor", "Nn": "ColMajor ColMajor"}  # fmt: skip
_WORDS = """
alignas alignof and asm auto bool break case catch char class const constexpr continue decltype default delete do double
else enum explicit export extern false float for friend goto half if inline int long mutable namespace new not nullptr operator or
private protected public register return short signed sizeof static struct switch template this throw true try typedef typename
union unsigned using virtual void volatile while xor Tile pto"""
RESERVED = frozenset(_WORDS.split())


def element(dtype: DType) -> str:
    """The C++ type of an element."""
    return _ELEMENTS[DTYPE_TEXT[dtype]]


def value_type(t: Type) -> str:
    """The C++ type of a scalar, a pointer, or the counts of a merge, with the space before a name."""
    if isinstance(t, MemRefType):
        return f"__gm__ {element(t.dtype)} *"
    if isinstance(t, TensorType):
        return "MrgSortExecutedNumList "
    assert isinstance(t, ScalarType)
    return f"{element(t.dtype)} "


def tile_type(t: TileType, of: str, pad: str = "Null") -> str:
    """A tile type with elements of the C++ type `of`."""
    rows, columns = sides(t)
    loc, layout = t.loc or "Vec", "ND" if unit_dims(t) else t.layout or "ND"
    outer, inner = _BOXES[layout].split()
    fractal = 1024 if loc == "Acc" else 32 if loc in ("ScaleLeft", "ScaleRight") else 512
    parts = [f"TileType::{_LOCATIONS.get(loc, loc)}", of, str(rows), str(columns), f"BLayout::{outer}", "-1", "-1"]
    return f"Tile<{', '.join([*parts, f'SLayout::{inner}', str(fractal), f'PadValue::{pad}'])}>"


def literal(x: Literal) -> str:
    """A number in C++."""
    value = arrays.from_literal(x)
    dtype = x.type.dtype
    if not dtype.is_float:
        return str(bool(value)).lower() if dtype is I1 else str(int(value))
    number = float(value)
    text = "NAN" if math.isnan(number) else f"{'-' * (number < 0)}INFINITY" if math.isinf(number) else f"{number!r}f"
    return text if DTYPE_TEXT[dtype] == "f32" else f"({element(dtype)}){text}"


def identifier(name: str) -> str:
    """A name as a C++ identifier."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return plain if plain and not plain[0].isdigit() and not plain.startswith("_") else f"v{plain}"


def function_name(f: Function) -> str:
    """The name of a function; `main` is the host's."""
    name = identifier(f.name)
    return f"{name}_kernel" if name == "main" or name in RESERVED else name
