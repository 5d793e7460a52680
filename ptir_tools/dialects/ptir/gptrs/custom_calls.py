"""Extension ops in gpt.rs's dump and JSON: the op `sin` is a custom call of `ptir.sin.v1` with the attributes of the op.

This applies to every op without regions that gpt.rs has no kind for. Reading such a call gives the op again.
"""

from __future__ import annotations

import re

from ptir_tools.core.dtypes import PTIR_DTYPES, DType
from ptir_tools.core.ir import REQUIRED, Attr, Derived, Op, OpDef
from ptir_tools.core.lazy import regex
from ptir_tools.dialects.ptir.gptrs.kinds import SPELLED, ops
from ptir_tools.dialects.ptir.ops.kinds import ENUMERATIONS, Attrs

_TARGET = regex(r"ptir\.(\w+)\.v1", re.ASCII)
# How a custom call holds an attribute of a kind; one that is None is left out.
_HELD = {
    "int": "I64", "int | None": "I64", "bool": "Bool", "float": "F64", "str": "String", "DType": "String",
    "DType | None": "String",
    "tuple[int, ...]": "I64Array", "tuple[float, ...]": "F64Array", "tuple[bool, ...]": "BoolArray",
    **dict.fromkeys(ENUMERATIONS, "String"),
}  # fmt: skip
_DTYPES = {d.name: d for d in PTIR_DTYPES}


def carries(defn: OpDef) -> bool:
    """Whether an op is written as a custom call: gpt.rs does not have it, and a call can hold its attributes."""
    return defn.short not in SPELLED and not defn.regions and all(a.kind in _HELD for a in defn.attrs)


def call_of(op: Op) -> Op:
    """The custom call that carries an extension op, with the same results."""
    named = zip(op.defn.attrs, op.attrs, strict=True)
    attrs = tuple(sorted((a.name, (_HELD[a.kind], _held(v))) for a, v in named if v is not None))
    made = Op(ops()["custom_call"], op.operands, (f"ptir.{op.defn.short}.v1", attrs), results=op.results, loc=op.loc)
    for v in op.results:
        v.op = made
    return made


def _held(value: object) -> object:
    return value.name if isinstance(value, DType) else value


def called(target: str) -> OpDef | None:
    """The extension op that a custom call of `target` carries; None when it carries none."""
    found = _TARGET.fullmatch(target)
    defn = ops().get(found[1]) if found else None
    return defn if defn is not None and carries(defn) else None


def restored(defn: OpDef, attrs: Attrs) -> tuple[object, ...]:
    """The attributes of an extension op out of those of its call. Raises ValueError with what is wrong."""
    given = dict(attrs)
    unknown = sorted(given.keys() - defn.attr_index.keys())
    if unknown:
        raise ValueError(f"{defn.short} has no attribute {unknown[0]}")
    return tuple(_restored(defn, a, given.get(a.name)) for a in defn.attrs)


def _restored(defn: OpDef, a: Attr, given: tuple[str, object] | None) -> object:
    if given is None:
        missing = a.default is REQUIRED or isinstance(a.default, Derived)
        if missing and not a.kind.endswith("None"):
            raise ValueError(f"{defn.short} needs the attribute {a.name}")
        return None if a.kind.endswith("None") else a.default
    kind, value = given
    if kind != _HELD[a.kind]:
        raise ValueError(f"{defn.short}: {a.name} is {kind}, expected {_HELD[a.kind]}")
    if not a.kind.startswith("DType"):
        return value
    if value not in _DTYPES:
        raise ValueError(f"{defn.short}: {a.name} is {value!r}, which is not a dtype")
    return _DTYPES[value]
