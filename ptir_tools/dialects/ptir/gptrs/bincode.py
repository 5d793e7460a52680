"""A program as gpt.rs's bincode, and the hash that gpt.rs knows it by: FNV-1a of those bytes.

Bincode 1 with its defaults: little endian, fixed width. An enum is a u32 index before its payload. A length, a `usize` and a
region's id are u64; a value's id is u32. An option is a byte before its value. Fields are in the order of the JSON.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import PTIR_DTYPES
from ptir_tools.core.ir import Element, Literal, Op, Operand, Value
from ptir_tools.core.typed import Any
from ptir_tools.core.types import Dim, TensorType, TupleType, Type
from ptir_tools.core.violations import Violation, require
from ptir_tools.dialects.ptir.check import missing_payloads
from ptir_tools.dialects.ptir.gptrs.kinds import KINDS, SPELLED, fields
from ptir_tools.dialects.ptir.gptrs.lowering import Block, lower, region_ids, written
from ptir_tools.dialects.ptir.gptrs.serde import all_bytes
from ptir_tools.dialects.ptir.hints import Hint
from ptir_tools.dialects.ptir.ops.kinds import ATTR_KINDS, ENUMERATIONS
from ptir_tools.dialects.ptir.ops.scalars import COMPLEX, FLOAT, I1, Scalar
from ptir_tools.dialects.ptir.ops.scalars import KINDS as SCALAR_KINDS
from ptir_tools.dialects.ptir.text.assembly import SPEC_VERSION

_OFFSET, _PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, 2**64 - 1
_HINT_KINDS = ("ElementwiseDag", "DotEpilogue", "ReductionChain")
_POLICIES = ("Optional", "Preferred", "Required")


def program_hash(program: Program, diagnostics: Diagnostics, canonical: bool = False) -> int | None:
    """The content address of `program`; None after reporting what gpt.rs cannot hold or a payload that is missing.

    A `canonical` one depends on no name: functions, regions, values and hints are called by their positions.
    """
    try:
        lowered = lower(program, diagnostics)
        if lowered is None or missing_payloads(program, diagnostics):
            return None
        return fnv1a(encode(program, *lowered, canonical=canonical))
    except Violation as violation:
        diagnostics.violation(violation, None)
        return None


def encode(program: Program, functions: list[Block], regions: list[Block], *, canonical: bool) -> Iterator[bytes]:
    """The bincode of a lowered program. Raises Violation("NotTranslatable") for what gpt.rs has no bits for."""
    ids = region_ids(functions, regions)
    if canonical:
        ids = {b.name: i for i, b in enumerate(regions)}
        for b in (*functions, *regions):
            b.ids = {v: i for i, v in enumerate([*b.params, *(v for op in b.body for v in op.results)])}
    return _Encoder(ids, canonical).program(program.entry, functions, regions)


def fnv1a(pieces: Iterable[bytes]) -> int:
    """FNV-1a of 64 bits."""
    h = _OFFSET
    for piece in pieces:
        for byte in piece:
            h = (h ^ byte) * _PRIME & _MASK
    return h


def symbol(entry: str, found: int) -> str:
    """The name that gpt.rs compiles the entry function under."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", entry) or "entry"
    return f"{'_' if name[0].isdigit() else ''}{name}__{found:016x}"


def _u32(x: int) -> bytes:
    require(0 <= x < 2**32, "NotTranslatable", f"{x} does not fit the 32 bits that gpt.rs has for it")
    return struct.pack("<I", x)


def _u64(x: int) -> bytes:
    """64 bits of a number with or without sign."""
    require(-(2**63) <= x < 2**64, "NotTranslatable", f"{x} does not fit the 64 bits that gpt.rs has for it")
    return struct.pack("<Q", x & _MASK)


def _variant(name: str, known: Sequence[str]) -> bytes:
    require(name in known, "NotTranslatable", f"gpt.rs has no `{name}` (it has: {', '.join(known)})")
    return _u32(known.index(name))


def _string(x: str) -> bytes:
    data = x.encode("utf-8")
    return _u64(len(data)) + data


def _listed(items: Iterable[bytes]) -> bytes:
    found = list(items)
    return _u64(len(found)) + b"".join(found)


def _option(x: object, write: Callable[[Any], bytes]) -> bytes:
    return b"\0" if x is None else b"\1" + write(x)


def _dtype(x: object) -> bytes:
    return _u32(PTIR_DTYPES.index(x))


def _dim(d: Dim) -> bytes:
    return _u32(0) + _u64(d) if isinstance(d, int) else _u32(1) + _string(d.name)


def _shape(dims: Iterable[Dim]) -> bytes:
    return _listed(map(_dim, dims))


def _new_dim(d: Dim) -> bytes:
    return _u32(1) if d == -1 else _u32(0) + _dim(d)


def _type(t: Type) -> bytes:
    if isinstance(t, TupleType):
        return _u32(1) + _listed(map(_type, t.elements))
    return _u32(0) + _spec(t)


def _spec(t: Type) -> bytes:
    return _dtype(t.dtype) + _shape(t.shape) if isinstance(t, TensorType) else b""


def _scalar(x: Scalar) -> bytes:
    tag = _variant(x.kind, SCALAR_KINDS)
    if x.kind == COMPLEX:
        value = complex(x.value)
        return tag + struct.pack("<dd", value.real, value.imag)
    return tag + _ELEMENT[bool if x.kind == I1 else float if x.kind == FLOAT else int](x.value)


_ELEMENT: dict[type, Callable[[Any], bytes]] = {
    bool: lambda x: struct.pack("<?", x),
    int: _u64,
    float: lambda x: struct.pack("<d", x),
    str: _string,
}


def _attrs(entries: tuple[tuple[str, tuple[str, object]], ...]) -> bytes:
    return _listed(_string(key) + _attr(*value) for key, value in entries)


def _attr(kind: str, value: Any) -> bytes:
    """The tag goes by name, as serde writes a kind next to its value."""
    write = _ELEMENT[ATTR_KINDS[kind]]
    return _string(kind) + (_listed(map(write, value)) if kind.endswith("Array") else write(value))


_ENCODE: dict[str, Callable[[Any], bytes]] = {
    "int": _u64,
    "int | None": lambda x: _option(x, _u64),
    "bool": _ELEMENT[bool],
    "str": _string,
    "float": _ELEMENT[float],
    "DType": _dtype,
    "DType | None": lambda x: _option(x, _dtype),
    "tuple[int, ...]": lambda x: _listed(map(_u64, x)),
    "tuple[tuple[int, int], ...]": lambda x: _listed(_u64(a) + _u64(b) for a, b in x),
    "Shape": _shape,
    "NewShape": lambda dims: _listed(map(_new_dim, dims)),
    "Scalar": _scalar,
    "Attrs": _attrs,
}
_ENCODE |= {name: partial(_variant, known=known) for name, known in ENUMERATIONS.items()}


def _literal(x: Literal) -> bytes:
    data = all_bytes(x) or b""
    return _spec(x.type) + _u64(len(data)) + data


class _Encoder:
    def __init__(self, regions: dict[str, int], canonical: bool) -> None:
        self.regions, self.canonical = regions, canonical
        self.ids: dict[Value, int] = {}

    def program(self, entry: str, functions: list[Block], regions: list[Block]) -> Iterator[bytes]:
        names = {b.name: f"f{i}" if self.canonical else b.name for i, b in enumerate(functions)}
        yield _string(SPEC_VERSION) + _string(names.get(entry, entry)) + _u64(len(functions))
        for b in functions:
            yield _string(names[b.name])
            yield from self.function(b)
        yield _u64(len(regions))
        for b in regions:
            yield _u64(self.regions[b.name])
            yield from self.region(b)

    def function(self, b: Block) -> Iterator[bytes]:
        self.ids = b.ids
        yield _listed(_type(p.type) for p in b.params) + self.values(b.params) + _listed(map(_type, b.result_types))
        yield from self.body(b.body)
        yield _u64(len(b.hints))
        for number, h in enumerate(b.hints):
            yield from self.hint(h, number if self.canonical else h.id)
        yield self.values(b.results)

    def region(self, b: Block) -> Iterator[bytes]:
        self.ids = b.ids
        yield _listed(_type(p.type) for p in b.params)
        yield from self.body(b.body)
        yield _listed(map(_type, b.result_types))

    def hint(self, h: Hint, number: int) -> Iterator[bytes]:
        yield _u32(number) + _variant(h.kind, _HINT_KINDS) + _variant(h.policy, _POLICIES)
        yield self.values(h.inputs) + self.values(h.exports)
        yield from self.body(h.body)
        yield _attrs(h.attrs)

    def values(self, values: Iterable[Value]) -> bytes:
        return _listed(_u32(self.ids[v]) for v in values)

    def body(self, ops: Iterable[Op]) -> Iterator[bytes]:
        found = list(ops)
        yield _u64(len(found))
        for op in found:
            yield _u32(self.ids[op.results[0]])
            yield self.operation(op)
            yield _listed(map(self.operand, op.operands)) + _type(op.results[0].type)

    def operation(self, op: Op) -> bytes:
        kind, sub = SPELLED[op.defn.short]
        made = _u32(KINDS.index(kind)) + (_variant(sub, tuple(kind.ops)) if sub else b"")
        if op.defn.short == "constant":
            return made + _literal(op.attrs[0])
        if not kind.struct:
            return made
        named = dict(zip((a.name for a in op.defn.attrs), written(op), strict=True))
        made += b"".join(_u64(self.regions[r.name]) for r in op.regions)
        return made + b"".join(_ENCODE[a.kind](named[a.name]) for a in fields(op.defn.short))

    def operand(self, x: Operand) -> bytes:
        if isinstance(x, Value):
            return _u32(0) + _u32(self.ids[x])
        if isinstance(x, Element):
            return _u32(1) + _u32(self.ids[x.value]) + _u64(x.index)
        return _u32(2) + _literal(x)
