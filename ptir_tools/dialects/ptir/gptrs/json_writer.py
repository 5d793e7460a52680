"""PTIR as gpt.rs's JSON: the writer. The bytes are those of serde_json's pretty printer."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.ir import Element, Literal, Op, Operand, Value
from ptir_tools.core.typed import Any
from ptir_tools.core.types import Dim, TensorType, TupleType, Type
from ptir_tools.dialects.ptir.check import missing_payloads
from ptir_tools.dialects.ptir.gptrs.kinds import RUST_DTYPE, SPELLED, fields
from ptir_tools.dialects.ptir.gptrs.lowering import Block, lower, region_ids, written
from ptir_tools.dialects.ptir.gptrs.serde import BYTES, all_bytes
from ptir_tools.dialects.ptir.hints import Hint
from ptir_tools.dialects.ptir.ops.scalars import Scalar
from ptir_tools.dialects.ptir.text.assembly import SPEC_VERSION

STEP = "  "


def write(program: Program, diagnostics: Diagnostics, options: Options) -> Iterator[str]:
    """The pieces of a program's JSON; nothing after an op that gpt.rs does not have, or a payload that is missing."""
    lowered = lower(program, diagnostics)
    if lowered is None or missing_payloads(program, diagnostics):
        return
    writer = _Writer(region_ids(*lowered), diagnostics)
    yield f'{{\n  "spec_version": "{SPEC_VERSION}",\n  "entry": {_string(program.entry)},\n  "functions": '
    yield from _listed((writer.function(b) for b in lowered[0]), STEP)
    yield ',\n  "regions": '
    yield from _listed((writer.region(b) for b in lowered[1]), STEP)
    yield "\n}"


def _listed(items: Iterable[Iterator[str]], pad: str) -> Iterator[str]:
    """An array of streamed items."""
    empty = True
    for item in items:
        yield f"[\n{pad}{STEP}" if empty else f",\n{pad}{STEP}"
        yield from item
        empty = False
    yield "[]" if empty else f"\n{pad}]"


class _Writer:
    def __init__(self, regions: dict[str, int], diagnostics: Diagnostics) -> None:
        self.regions, self.diagnostics = regions, diagnostics
        self.types: dict[tuple[Type, str], str] = {}
        self.ops: dict[tuple[Any, ...], str] = {}
        self.ids: dict[Value, int] = {}

    # ---- blocks

    def function(self, b: Block) -> Iterator[str]:
        self.ids = b.ids
        pad = STEP * 3
        yield f'{{\n{pad}"name": {_string(b.name)},\n{pad}"parameters": '
        yield _array([self.type(p.type, pad + STEP) for p in b.params], pad)
        yield f',\n{pad}"parameter_ids": ' + _array([str(b.ids[p]) for p in b.params], pad)
        yield f',\n{pad}"results": ' + _array([self.type(t, pad + STEP) for t in b.result_types], pad)
        yield f',\n{pad}"body": '
        yield from _listed((self.instruction(op, pad + STEP) for op in b.body), pad)
        yield f',\n{pad}"hints": '
        yield from _listed((self.hint(h, pad + STEP) for h in b.hints), pad)
        yield f',\n{pad}"result_ids": ' + _array([str(b.ids[v]) for v in b.results], pad)
        yield f"\n{STEP * 2}}}"

    def region(self, b: Block) -> Iterator[str]:
        self.ids = b.ids
        pad = STEP * 3
        yield f'{{\n{pad}"id": {self.regions[b.name]},\n{pad}"parameters": '
        yield _array([self.type(p.type, pad + STEP) for p in b.params], pad)
        yield f',\n{pad}"body": '
        yield from _listed((self.instruction(op, pad + STEP) for op in b.body), pad)
        yield f',\n{pad}"results": ' + _array([self.type(t, pad + STEP) for t in b.result_types], pad)
        yield f"\n{STEP * 2}}}"

    def hint(self, h: Hint, pad: str) -> Iterator[str]:
        inner = pad + STEP
        yield f'{{\n{inner}"id": {h.id},\n{inner}"kind": {_string(h.kind)},\n{inner}"policy": {_string(h.policy)}'
        for key, values in (("inputs", h.inputs), ("exports", h.exports)):
            yield f',\n{inner}"{key}": ' + _array([str(self.ids[v]) for v in values], inner)
        yield f',\n{inner}"body": '
        yield from _listed((self.instruction(op, inner + STEP) for op in h.body), inner)
        yield f',\n{inner}"attrs": {self.value(_attrs(h.attrs), inner)}\n{pad}}}'

    def instruction(self, op: Op, pad: str) -> Iterator[str]:
        inner = pad + STEP
        operands = _array([self.operand(x, inner + STEP) for x in op.operands], inner)
        yield f'{{\n{inner}"id": {self.ids[op.results[0]]},\n{inner}"op": {self.op(op, inner)},\n{inner}"operands": {operands}'
        yield f',\n{inner}"output": {self.type(op.results[0].type, inner)}\n{pad}}}'

    # ---- operations

    def op(self, op: Op, pad: str) -> str:
        attrs = written(op)
        if op.regions or op.defn.float_attrs:
            return self.payload(op, attrs, pad)
        found = self.ops.get((op.defn, attrs, pad))
        if found is None:
            found = self.ops[op.defn, attrs, pad] = self.payload(op, attrs, pad)
        return found

    def payload(self, op: Op, attrs: tuple[Any, ...], pad: str) -> str:
        kind, sub = SPELLED[op.defn.short]
        if not kind.has_payload:
            return f'"{kind.name}"'
        if not kind.struct:
            return self.value({kind.name: sub}, pad)
        if op.defn.short == "constant":
            return f'{{\n{pad}{STEP}"{kind.name}": {self.literal(op.attrs[0], pad + STEP)}\n{pad}}}'
        payload: dict[str, object] = {kind.field: sub} if kind.field else {}
        payload |= {name: self.regions[r.name] for name, r in zip(op.defn.regions, op.regions, strict=True)}
        named = dict(zip((a.name for a in op.defn.attrs), attrs, strict=True))
        payload |= {a.name: _ENCODE.get(a.kind, _plain)(named[a.name]) for a in fields(op.defn.short)}
        self.warn(payload, op)
        return self.value({kind.name: payload}, pad)

    def warn(self, payload: object, op: Op) -> None:
        """Warn of the floats that JSON cannot say."""
        if isinstance(payload, float):
            if not math.isfinite(payload):
                message = f"{payload} is written as null, as gpt.rs does; it is lost"
                self.diagnostics.warning("LossyFloat", message, op.loc)
        elif isinstance(payload, (dict, list)):
            for x in payload.values() if isinstance(payload, dict) else payload:
                self.warn(x, op)

    def operand(self, x: Operand, pad: str) -> str:
        if isinstance(x, Value):
            return f'{{\n{pad}{STEP}"Value": {self.ids[x]}\n{pad}}}'
        if isinstance(x, Element):
            return self.value({"TupleElement": {"tuple": self.ids[x.value], "index": x.index}}, pad)
        return f'{{\n{pad}{STEP}"Literal": {self.literal(x, pad + STEP)}\n{pad}}}'

    def literal(self, x: Literal, pad: str) -> str:
        inner = pad + STEP
        data = _array([BYTES[b] for b in all_bytes(x, len(f",\n{inner}{STEP}255")) or b""], inner)
        return f'{{\n{inner}"spec": {self.value(_spec(x.type), inner)},\n{inner}"bytes": {data}\n{pad}}}'

    # ---- values

    def type(self, t: Type, pad: str) -> str:
        found = self.types.get((t, pad))
        if found is None:
            found = self.types[t, pad] = self.tuple(t, pad) if isinstance(t, TupleType) else self.value(_type(t), pad)
        return found

    def tuple(self, t: TupleType, pad: str) -> str:
        inner = pad + STEP
        return f'{{\n{inner}"Tuple": {_array([self.type(e, inner + STEP) for e in t.elements], inner)}\n{pad}}}'

    def value(self, x: Any, pad: str) -> str:
        """A plain value as serde_json's pretty printer writes it, its first line without indent."""
        inner = pad + STEP
        if isinstance(x, dict):
            members = [f"{_string(k)}: {self.value(v, inner)}" for k, v in x.items()]
            return f"{{\n{inner}" + f",\n{inner}".join(members) + f"\n{pad}}}" if x else "{}"
        if isinstance(x, list):
            return _array([self.value(v, inner) for v in x], pad)
        if isinstance(x, float):
            return float_text(x)
        return _string(x) if isinstance(x, str) else json.dumps(x)


def _array(items: list[str], pad: str) -> str:
    inner = pad + STEP
    return f"[\n{inner}" + f",\n{inner}".join(items) + f"\n{pad}]" if items else "[]"


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def float_text(value: float) -> str:
    """A float as serde_json prints it: shortest digits, exponent form under 1e-5 and from 1e16 on; null when not finite."""
    if not math.isfinite(value):
        return "null"
    mantissa, _, exponent = repr(value).partition("e")
    if not exponent:
        return mantissa
    if exponent != "-05":
        return f"{mantissa}e{int(exponent)}"
    sign = "-" if mantissa[0] == "-" else ""
    return f"{sign}0.0000{mantissa.lstrip('-').replace('.', '')}"


def _type(t: Type) -> Any:
    return {"Tensor": _spec(t)} if isinstance(t, TensorType) else None


def _spec(t: TensorType) -> object:
    return {"dtype": RUST_DTYPE[t.dtype], "shape": _shape(t.shape)}


def _shape(dims: tuple[Dim, ...]) -> Any:
    return {"dims": [_dim(d) for d in dims]}


def _dim(d: Dim) -> Any:
    return {"Static": d} if isinstance(d, int) else {"Dynamic": d.name}


def _scalar(x: Scalar) -> Any:
    return {x.kind: {"re": x.value.real, "im": x.value.imag} if isinstance(x.value, complex) else x.value}


def _attrs(entries: tuple[tuple[str, tuple[str, Any]], ...]) -> object:
    return {k: {"kind": kind, "value": _plain(v)} for k, (kind, v) in entries}


def _plain(x: Any) -> Any:
    return list(map(_plain, x)) if isinstance(x, tuple) else x


def _dtype(x: Any) -> str | None:
    return None if x is None else RUST_DTYPE[x]


_ENCODE: dict[str, Callable[[Any], Any]] = {
    "DType": _dtype,
    "DType | None": _dtype,
    "Shape": _shape,
    "NewShape": lambda dims: ["Infer" if d == -1 else {"Explicit": _dim(d)} for d in dims],
    "Scalar": _scalar,
    "Attrs": _attrs,
    "ScatterKind": str.capitalize,
    "WindowKind": str.capitalize,
    "SegmentKind": str.capitalize,
}
