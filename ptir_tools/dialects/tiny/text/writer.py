"""Tiny's canonical JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from itertools import chain

from ptir_tools.core import expressions as ex
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import Function, Literal, Op, OpDef, Operand, Value
from ptir_tools.core.typed import cast
from ptir_tools.core.types import Shape, Sym, TensorType
from ptir_tools.dialects.tiny.immediates import value_of, word_for
from ptir_tools.dialects.tiny.legalize import as_bound
from ptir_tools.dialects.tiny.ops.rules import SPELLED, Map
from ptir_tools.dialects.tiny.ops.view import axis_name


def write(program: Program, diagnostics: Diagnostics, options: Options) -> Iterator[str]:
    """Canonical JSON: inputs, then nodes in order, one to a line; "outputs" only if it was given, or if reading would otherwise
    give others."""
    program = as_bound(program)
    function = program.main
    ids = {v.name for v in function.params} | {v.name for op in function.body for v in op.results}
    tags = function.attrs.get("tags", {})
    nodes = chain(map(partial(_input, function), range(len(function.params))), (_node(op, ids) for op in function.body))
    yield '{\n  "uops":['
    for i, node in enumerate(nodes):
        if (tag := tags.get(node["id"])) is not None:
            node["tag"] = tag
        yield ("," if i else "") + "\n    " + _line(node)
    yield "\n  ]" if ids else "]"
    names = [x.name for x in function.results if isinstance(x, Value)]
    used = {v.name for op in function.body for v in op.values()}
    sinks = [op.result.name for op in function.body if op.result.name not in used]
    if program.attrs.get("outputs") or names != sinks:
        yield ',\n  "outputs":' + _dumps(names)
    if dims := program.attrs.get("dims"):
        yield ',\n  "dims":' + _dumps(dims)
    yield "\n}\n"


_dumps = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(", ", ":")).encode


def _line(node: dict[str, object]) -> str:
    return "{" + ", ".join(f'"{k}":{_dumps(v)}' for k, v in node.items()) + "}"


def _input(function: Function, index: int) -> dict[str, object]:
    v = function.params[index]
    names = function.attrs.get("input_names", [])
    shape = [d if isinstance(d, int) else d.name for d in v.type.shape] if isinstance(v.type, TensorType) else []
    dtype = SPELLED[v.type.dtype] if isinstance(v.type, TensorType) else ""
    arg = {"tensor_id": names[index] if index < len(names) else v.name, "dtype": dtype, "shape": shape}
    if storage := function.attrs.get("storage", {}).get(v.name):
        arg["storage"] = storage
    return {"id": v.name, "uop": "INPUT", "arg": arg}


def _node(op: Op, ids: set[str]) -> dict[str, object]:
    attrs = op.defn.named(op.attrs)
    if op.defn.short == "EXPAND":
        attrs["broadcast_dimensions"] = _short_destination(op, attrs["broadcast_dimensions"])
    node = {"id": op.result.name, "uop": op.defn.short, "src": [_source(x, ids) for x in op.operands]}
    arg = _arg(op.defn, attrs)
    return node | ({"arg": arg} if arg else {})


def _short_destination(op: Op, axes: tuple[int | None, ...] | None) -> tuple[int | None, ...] | None:
    """The result axes of the operand axes whose extent is not written 1 (this form is always printed)."""
    t = op.operands[0].type if isinstance(op.operands[0], Value) else None
    if axes is None or not isinstance(t, TensorType) or len(axes) != t.rank:
        return axes
    return tuple(a for a, d in zip(axes, t.shape, strict=True) if d != 1)


def _source(x: Operand, ids: set[str]) -> int | float | str | None:
    if isinstance(x, Literal):
        value = value_of(x)
        finite = not isinstance(value, float) or value - value == 0
        return value if finite else word_for(float(value), ids)
    return x.name if isinstance(x, Value) else ""


def _arg(defn: OpDef, attrs: dict[str, object]) -> dict[str, object]:
    """`arg` of an op: its attributes in declaration order, those equal to their default left out."""
    defaults = {a.name: a.default for a in defn.attrs}
    kept = {a.name: (a.kind, attrs[a.name]) for a in defn.attrs if not _is_default(attrs[a.name], defaults[a.name])}
    arg = {key: _plain(kind, value) for key, (kind, value) in kept.items() if kind != "Map" and key != "fill"}
    return arg | ({"index_map": _index_map(attrs)} if defn.short == "VIEW" else {})


def _is_default(value: object, default: object) -> bool:
    return value is default or (type(value) is type(default) and value == default and str(value) == str(default))


def _plain(kind: str, value: object) -> object:
    if isinstance(value, tuple):
        return [_plain(kind, v) for v in value]
    if isinstance(value, DType):
        return SPELLED[value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return word_for(value)
    return value.name if isinstance(value, Sym) else value


def _index_map(attrs: dict[str, object]) -> dict[str, object]:
    """`index_map`; axes are i0, i1, …, or have other names if one of these is a symbol of the map."""
    polys = {key: [ex.of_dim(d) for d in cast("Map", attrs[key])] for key in ("map", "guard")}
    used = {n for ps in polys.values() for p in ps for n in p.names()}
    rank = len(cast("Shape", attrs["result_shape"]))
    letter = next(c for c in ("i", "j", "axis", "axis_") if not any(f"{c}{k}" in used for k in range(rank)))
    names = {axis_name(k): ex.name(f"{letter}{k}") for k in range(rank)}
    inner: dict[str, object] = {} if letter == "i" else {"axes": [f"{letter}{k}" for k in range(rank)]}
    inner["map"] = [str(p.put(names)) for p in polys["map"]]
    if polys["guard"]:
        inner["guard"] = [f"{p.put(names)}>=0" for p in polys["guard"]]
    fill = attrs["fill"]
    return inner | ({} if _is_default(fill, 0) else {"fill": _plain("Scalar", fill)})
