"""Tiny's canonical JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from itertools import chain

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.ir import Function, Literal, Op, Operand, Value
from ptir_tools.core.types import TensorType
from ptir_tools.dialects.tiny.immediates import value_of, word_for
from ptir_tools.dialects.tiny.legalize import as_bound
from ptir_tools.dialects.tiny.ops.rules import SPELLED
from ptir_tools.dialects.tiny.text.args import write_args


def write(program: Program, diagnostics: Diagnostics, options: Options) -> Iterator[str]:
    """Canonical JSON: inputs, then nodes in order, one to a line; "outputs" where it was given or would otherwise change."""
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
    arg = write_args(op.defn, attrs)
    return node | ({"arg": arg} if arg else {})


def _short_destination(op: Op, axes: tuple[int | None, ...] | None) -> tuple[int | None, ...] | None:
    """The result axes of the operand axes whose extent is not written 1 (the form that is always printed)."""
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
