"""The text form of each op: the order of its operands, and the meaning of the types after the colon.

A form is `operands : types` or `operands : types -> results`. Operands are groups of the declaration. `m[i]` is `m` with the
group `i` as subscripts, `m[i][j]` has two lists of them, `x?` may be left out, and `xs*` are many. An attribute may be an
operand, too. Each type names an operand group, or an attribute that holds a result type. If the only type is such an attribute,
it is the type of the result and of every operand.
"""

from __future__ import annotations

import re
from functools import cache

from ptir_tools.core.ir import OpDef
from ptir_tools.core.records import dataclass


@dataclass(slots=True, frozen=True)
class Form:
    """A parsed form. `subscripts` maps an operand to the groups of its lists of subscripts."""

    operands: tuple[str, ...]
    types: tuple[str, ...]
    results: tuple[str, ...] | None
    subscripts: dict[str, tuple[str, ...]]
    optional: frozenset[str]
    many: frozenset[str]


# By form, the ops that have it.
_FORMS: dict[str, str] = {
    "source[indices] : source, to": "tile.load",
    "tile, target[indices] : target, tile": "tile.store",
    "tile, scale, target[indices] : tile, scale, target": "tile.store.fp",
    "x[indices] : x -> to": "tile.extract tile.extract.vec",
    "tile, address : tile, address": "tile.assign",
    "x : x, to": "tile.expands tile.tri",
    "x : to": "tile.ci",
    " : to": "tile.undef tile.pop subblock block_idx",
    "": "fifo.open fifo.free",
    "x : x -> to": "tile.abs tile.neg tile.cvt tile.trans tile.reshape tile.fillpad tile.fillpad.inplace tile.fillpad.expand",
    "a, b : a -> to": "tile.cmp tile.cmps tile.partadd tile.partmul tile.partmax tile.partmin",
    "a, b : a, b": "tile.adds tile.subs tile.muls tile.divs tile.maxs tile.mins tile.rems tile.fmods tile.pows tile.ands "
    "tile.ors tile.xors tile.shls tile.shrs tile.lrelu",
    "a, b : a, b -> to": "tile.matmul tile.gemv tile.concat",
    "a, b, c : to": "tile.addc tile.subc tile.muladddst tile.fusedmuladd tile.fusedmuladdrelu tile.sel",
    "a, b, c : to, b": "tile.addsc tile.subsc",
    "a, b, c : to, c": "tile.axpy",
    "a, b, c : a, c -> to": "tile.adddeqrelu",
    "a, b, mode : to": "tile.sels",
    "a, ai, b, bi : a, ai -> to, order": "tile.partargmax tile.partargmin",
    "tile : tile": "tile.print tile.push",
    "source[indices] : source": "tile.prefetch",
    "x[indices], into : x, into -> to": "tile.insert",
    "x[indices], scale, into : x, scale, into -> to": "tile.insert.fp",
    "x, scale : x, scale -> to": "tile.mov.fp",
    "x, indices? : x -> to": "tile.gather",
    "x, offsets : x -> to": "tile.gatherb",
    "x, indices : x, indices -> to": "tile.scatter",
    "x : x -> to, order": "tile.sort32",
    "xs* : xs* -> to, counts": "tile.mrgsort",
    "c, a, b : c, a, b -> to": "tile.matmul.acc tile.gemv.acc",
    "a, b, bias : a, b, bias -> to": "tile.matmul.bias tile.gemv.bias",
    "a, sa, b, sb : a, sa, b, sb -> to": "tile.matmul.mx tile.gemv.mx",
    "c, a, sa, b, sb : c, a, sa, b, sb -> to": "tile.matmul.mx.acc tile.gemv.mx.acc",
    "a, sa, b, sb, bias : a, sa, b, sb, bias -> to": "tile.matmul.mx.bias tile.gemv.mx.bias",
    "source[offsets][sizes][steps] : source to to": "memref.subview",
    "predicate, a, b : a": "cmpi cmpf",
    "condition, a, b : a": "select",
}
_OWN = {op: form for form, ops in _FORMS.items() for op in ops.split()}


def _text(d: OpDef) -> str:
    if (own := _OWN.get(d.short)) is not None:
        return own
    kind, _, name = d.short.partition(".")
    if kind != "tile":
        return "x : x to to" if len(d.groups) == 1 else "a, b : a"
    one, arrow = len(d.groups) == 3, name.startswith(("mov.", "row", "col"))  # the others are valid and wait
    if one:
        return "x : x -> to" if arrow else "x : to"
    return "a, b : a, b -> to" if arrow else "a, b : to"


@cache
def form_of(d: OpDef) -> Form:
    """The form of a declared op."""
    operands, _, types = _text(d).partition(" : ")
    left, arrow, right = types.replace(" to ", " -> ").partition(" -> ")
    flags = operands.split(", ") if operands else []
    names = {f.partition("[")[0].rstrip("?*"): tuple(re.findall(r"\[(\w+)\]", f)) for f in flags}
    return Form(
        tuple(names),
        tuple(t.rstrip("*") for t in left.split(", ") if t),
        tuple(right.split(", ")) if arrow else None,
        {name: groups for name, groups in names.items() if groups},
        frozenset(f[:-1] for f in flags if f.endswith("?")),
        frozenset(f[:-1] for f in flags if f.endswith("*")),
    )


# Attributes of a declaration that the text says elsewhere.
ELSEWHERE = frozenset({"to", "order", "counts", "event", "segments", "predicate", "value", "callee", "opcode"})

# Names that mean the same op: those of `arith` are those of `pto`.
ALIASES = {
    "divi": "divsi", "remi": "remsi", "mini": "minsi", "maxi": "maxsi", "shri": "shrsi", "cmp": "cmpi",
    "index_castui": "index_cast", "min": "minsi", "max": "maxsi",
}  # fmt: skip


def short_name(text: str) -> str:
    """The declared name of the op that is spelled `text`: `pto.tile.add` is `tile.add`, `arith.addi` is `addi`."""
    prefix, _, rest = text.partition(".")
    if prefix not in ("pto", "arith"):
        return "func.call" if text == "call" else text
    return ALIASES.get(rest, rest)
