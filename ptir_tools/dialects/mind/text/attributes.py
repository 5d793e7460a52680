"""Attributes between their text and the core: names, aliases, positions, kinds; the literals of constants."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache

from ptir_tools.core import decimals
from ptir_tools.core.declare import OPS
from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import Literal, OpDef
from ptir_tools.core.typed import Any
from ptir_tools.core.types import TensorType, tensor
from ptir_tools.core.violations import Violation, require
from ptir_tools.dialects.mind import ops as _ops  # noqa: F401  (declares them)
from ptir_tools.dialects.mind.text.statements import Call, Range
from ptir_tools.dialects.mind.types import DTYPES, NAMES

OPCODES: dict[str, OpDef] = {d.short: d for d in OPS.values() if d.name.startswith("mind.")}
BINARY = ("Add", "Sub", "Mul")
SCALARS = {"ConstI64": DTYPES["i64"], "ConstF32": DTYPES["f32"], "ConstF64": DTYPES["f64"]}

ALIASES: dict[str, dict[str, str]] = {
    "ConstTensor": {"data": "value"},
    "Reshape": {"shape": "new_shape"},
    "Transpose": {"perm": "permutation"},
    "ExpandDims": {"axis": "axes"},
    "Squeeze": {"axis": "axes"},
}
_FORMATS = {"i32": "<i", "i64": "<q", "f32": "<f", "f64": "<d"}


@cache
def keys(opcode: str) -> tuple[str, ...]:
    """The attributes that an opcode has in text, in the order of the positional form."""
    if opcode == "Input":
        return ("name",)
    if opcode == "ConstTensor":
        return ("value", "dtype", "shape")
    return tuple(a.name for a in OPCODES[opcode].attrs)


def convert(opcode: str, key: str, raw: object) -> Any:
    """The core's value of the attribute `key`, written as `raw`. Raises Violation("E4013") when it is of another kind."""
    kind = OPCODES[opcode].attrs[OPCODES[opcode].attr_index[key]].kind
    return _CONVERTERS[kind](opcode, key, raw)


def integers(opcode: str, key: str, raw: Any) -> tuple[int, ...]:
    """A list of i64."""
    fits = _is_list(raw) and all(type(i) is int and -(1 << 63) <= i < 1 << 63 for i in raw)
    require(fits, "E4013", f"attribute `{key}` of {opcode} is a list of integers")
    return tuple(raw)


def _is_list(raw: object) -> bool:
    return isinstance(raw, (list, tuple))


def boolean(opcode: str, key: str, raw: object) -> bool:
    """`true` or `false`."""
    require(type(raw) is bool, "E4013", f"attribute `{key}` of {opcode} is true or false")
    return bool(raw)


def padding(opcode: str, key: str, raw: object) -> Any:
    """Valid, Same or Custom, in any case of letters; what else it holds is the type rule's to judge (E4012)."""
    if isinstance(raw, str):
        return raw.capitalize()
    pairs: Any = raw.value if isinstance(raw, Call) and raw.word.capitalize() == "Custom" else None
    if not _is_list(pairs) or not all(_is_list(p) and all(type(i) is int for i in p) for p in pairs):
        raise Violation("E4012", "padding must be Valid, Same or Custom([[top, bottom], [left, right]])")
    return tuple(map(tuple, pairs))


_CONVERTERS: dict[str, Callable[[str, str, Any], Any]] = {
    "tuple[int, ...]": integers,
    "bool": boolean,
    "Padding": padding,
}


def slice_ranges(raw: object) -> dict[str, object] | None:
    """`starts`, `ends` and `steps` of a list of ranges; None when `raw` is not one."""
    if not (isinstance(raw, list) and raw and all(isinstance(r, Range) for r in raw)):
        return None
    return {"starts": [r.start for r in raw], "ends": [r.end for r in raw], "steps": [r.step for r in raw]}


def scalar_literal(opcode: str, raw: object) -> Literal:
    """The literal of ConstI64, ConstF32 or ConstF64. Raises Violation("E4005")."""
    dtype = SCALARS[opcode]
    return Literal(tensor(dtype), element(raw, dtype))


def tensor_literal(raw: Any, t: TensorType) -> Literal:
    """The literal of ConstTensor from nested lists of the shape of `t`, or a flat list of as many elements.

    Raises Violation("E4005") for another nesting or count, or an element that the dtype does not hold.
    """
    flat = _is_list(raw) and not any(_is_list(x) for x in raw)
    elements: list[Any] = list(raw) if flat else []
    if not flat:
        _flatten(raw, t.static_shape, 0, elements)
    require(len(elements) == t.count, "E4005", f"{len(elements)} elements for shape {list(t.shape)}, which has {t.count}")
    return Literal(t, b"".join(element(x, t.dtype) for x in elements))


def _flatten(raw: Any, shape: tuple[int, ...], depth: int, into: list[object]) -> None:
    if depth == len(shape):
        require(not _is_list(raw), "E4005", f"the value is nested deeper than shape {list(shape)}")
        into.append(raw)
        return
    found = len(raw) if _is_list(raw) else "no list"
    message = f"axis {depth} of shape {list(shape)} has {shape[depth]} elements, the value has {found}"
    require(found == shape[depth], "E4005", message)
    for x in raw:
        _flatten(x, shape, depth + 1, into)


def element(raw: object, dtype: DType) -> bytes:
    """The bytes of one element, floats rounded to nearest. Raises Violation("E4005") for what the dtype does not hold."""
    name = NAMES[dtype]
    if type(raw) is not int and not (dtype.is_float and isinstance(raw, float)):
        shown = repr(raw) if isinstance(raw, (str, float, bool)) else "this"
        raise Violation("E4005", f"{shown} is not a value of {name}")
    try:
        number = decimals.nearest(raw if isinstance(raw, float) else decimals.read(str(raw)), dtype) if dtype.is_float else raw
        return struct.pack(_FORMATS[name], number)
    except (OverflowError, struct.error):
        shown = str(raw) if not isinstance(raw, int) or abs(raw) < 1 << 128 else "the integer"
        raise Violation("E4005", f"{shown} is out of the range of {name}") from None
