"""How each op is in text: the order of its operands, and what the types after the colon are those of.

A form is `operands : types` or `operands : types -> results`. Operands are groups of the declaration: `m[i]` are the group
`i` as subscripts of `m`, `m[i][j]` two lists of them, `x?` may be left out, `xs*` are many. An attribute may be an operand, too.
Types name an operand group or an attribute that holds a result type; one type without an arrow that is an attribute's is the
result's and every operand's.
"""

from __future__ import annotations

import re
from functools import cache

from ptir_tools.core.ir import OpDef
from ptir_tools.core.records import dataclass


@dataclass(slots=True, frozen=True)
class Form:
    """A form, taken apart. `subscripts` maps an operand to the groups of its lists of subscripts."""

    operands: tuple[str, ...]
    types: tuple[str, ...]
    results: tuple[str, ...] | None
    subscripts: dict[str, tuple[str, ...]]
    optional: frozenset[str]
    many: frozenset[str]


_SAME = "a, b : to"
_ARROW = "x : x -> to"
_WITH_VECTOR = "a, b : a, b -> to"

_FORMS: dict[str, str] = {
    "tile.load": "source[indices] : source, to",
    "tile.store": "tile, target[indices] : target, tile",
    "tile.store.fp": "tile, scale, target[indices] : tile, scale, target",
    "tile.extract": "x[indices] : x -> to",
    "tile.assign": "tile, address : tile, address",
    "tile.expands": "x : x, to",
    "tile.ci": "x : to",
    "tile.cmp": "a, b : a -> to",
    "tile.cmps": "a, b : a -> to",
    "tile.addsc": "a, b, c : to, b",
    "tile.subsc": "a, b, c : to, b",
    "tile.axpy": "a, b, c : to, c",
    "tile.muladddst": "a, b, c : to",
    "tile.fusedmuladd": "a, b, c : to",
    "tile.fusedmuladdrelu": "a, b, c : to",
    "tile.adddeqrelu": "a, b, c : a, c -> to",
    "tile.partargmax": "a, ai, b, bi : a, ai -> to, order",
    "tile.partargmin": "a, ai, b, bi : a, ai -> to, order",
    "tile.tri": "x : x, to",
    "tile.print": "tile : tile",
    "tile.prefetch": "source[indices] : source",
    "tile.insert": "x[indices], into : x, into -> to",
    "tile.insert.fp": "x[indices], scale, into : x, scale, into -> to",
    "tile.concat": "a, b : a, b -> to",
    "tile.sel": "a, b, c : to",
    "tile.sels": "a, b, mode : to",
    "tile.addc": "a, b, c : to",
    "tile.subc": "a, b, c : to",
    "tile.mov.fp": "x, scale : x, scale -> to",
    "tile.gather": "x, indices? : x -> to",
    "tile.gatherb": "x, offsets : x -> to",
    "tile.scatter": "x, indices : x, indices -> to",
    "tile.sort32": "x : x -> to, order",
    "tile.mrgsort": "xs* : xs* -> to, counts",
    "memref.subview": "source[offsets][sizes][steps] : source to to",
    "cmpi": "predicate, a, b : a",
    "cmpf": "predicate, a, b : a",
    "select": "condition, a, b : a",
}
_PRODUCTS = {
    "": "a, b",
    ".acc": "c, a, b",
    ".bias": "a, b, bias",
    ".mx": "a, sa, b, sb",
    ".mx.acc": "c, a, sa, b, sb",
    ".mx.bias": "a, sa, b, sb, bias",
}
_FORMS |= {f"tile.{name}{kind}": f"{x} : {x} -> to" for name in ("matmul", "gemv") for kind, x in _PRODUCTS.items()}
_ARROWS = ("abs", "neg", "cvt", "trans", "reshape", "fillpad", "fillpad.inplace", "fillpad.expand")
_PARTIAL = ("partadd", "partmul", "partmax", "partmin")


def _text(d: OpDef) -> str:
    if (own := _FORMS.get(d.short)) is not None:
        return own
    kind, _, name = d.short.partition(".")
    if kind != "tile":
        return "x : x to to" if len(d.groups) == 1 else "a, b : a"
    if name in _PARTIAL:
        return "a, b : a -> to"
    arrow = name.startswith(("mov.", "row", "col")) or name in _ARROWS
    if len(d.groups) == 3:  # one operand, valid, wait
        return _ARROW if arrow else "x : to"
    if arrow:
        return _WITH_VECTOR
    return "a, b : a, b" if name in _TILE_SCALAR else _SAME


_TILE_SCALAR = (
    "adds", "subs", "muls", "divs", "maxs", "mins", "rems", "fmods", "pows", "ands", "ors", "xors", "shls", "shrs", "lrelu",
)  # fmt: skip


@cache
def form_of(d: OpDef) -> Form:
    """The form of a declared op."""
    operands, _, types = _text(d).partition(" : ")
    left, arrow, right = types.replace(" to ", " -> ").partition(" -> ")
    flags = operands.split(", ")
    names = {f.partition("[")[0].rstrip("?*"): tuple(re.findall(r"\[(\w+)\]", f)) for f in flags}
    return Form(
        tuple(names),
        tuple(t.rstrip("*") for t in left.split(", ")),
        tuple(right.split(", ")) if arrow else None,
        {name: groups for name, groups in names.items() if groups},
        frozenset(f[:-1] for f in flags if f.endswith("?")),
        frozenset(f[:-1] for f in flags if f.endswith("*")),
    )


# Attributes that are written `key = #dotted<VALUE>`; all others are plain numbers, words and booleans.
OPAQUE = {
    "cmpMode": "#pto.cmp",
    "rmode": "#pto.round_mode",
    "maskPattern": "#pto.mask_pattern",
    "pad": "#pto.pad",
    "atomic": "#pto.atomic",
}
# Attributes of a declaration that the text says elsewhere.
ELSEWHERE = frozenset({"to", "order", "counts", "event", "segments", "predicate", "value", "callee", "opcode"})

# Names that mean the same op: those of `arith` are those of `pto`.
ALIASES = {
    "divi": "divsi", "remi": "remsi", "mini": "minsi", "maxi": "maxsi", "shri": "shrsi", "cmp": "cmpi",
    "index_castui": "index_cast", "min": "minsi", "max": "maxsi",
}  # fmt: skip


def short_name(text: str) -> str:
    """The declared name of the op that a text calls `text`: `pto.tile.add` is `tile.add`, `arith.addi` is `addi`."""
    prefix, _, rest = text.partition(".")
    if prefix not in ("pto", "arith"):
        return "func.call" if text == "call" else text
    return ALIASES.get(rest, rest)


def text_name(short: str) -> str:
    """How an op is spelled: everything but `scf` and `func` is in `pto`."""
    return short if short.startswith(("scf.", "func.")) else f"pto.{short}"
