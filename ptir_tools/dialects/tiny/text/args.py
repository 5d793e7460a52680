"""`arg` of a node: how each kind of attribute is read from JSON and written back."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from ptir_tools.core import decimals
from ptir_tools.core import expressions as ex
from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import REQUIRED, Attr, OpDef
from ptir_tools.core.lazy import lazy, regex
from ptir_tools.core.limits import LimitExceeded, Limits
from ptir_tools.core.spelling import attribute_meant, dtype_meant
from ptir_tools.core.typed import TYPE_CHECKING, Any, TypeGuard, cast
from ptir_tools.core.types import Dim, Shape, Sym
from ptir_tools.core.violations import OP_NAME, Place, Violation, attribute, require
from ptir_tools.core.violations import key as key_of
from ptir_tools.dialects.jsonc import Json
from ptir_tools.dialects.tiny.immediates import WORDS, word_for
from ptir_tools.dialects.tiny.ops.rules import DTYPES, SPELLED, Axes, Map, Pads, Scalar, dim_text
from ptir_tools.dialects.tiny.ops.view import axis_name

if TYPE_CHECKING:
    import json
else:
    json = lazy("json")

MAX_TEXT = 1000  # characters of one expression
AXIS = regex(r"[^\W\d][\w']*")


# What the `arg` of an INPUT holds, which is no op.
INPUT = (
    Attr("tensor_id", "str", REQUIRED), Attr("dtype", "DType", REQUIRED), Attr("shape", "Shape", REQUIRED),
    Attr("storage", "str", ""),
)  # fmt: skip


def read_args(defn: OpDef, given: dict[str, Json], limits: Limits) -> dict[str, object]:
    """The attributes of a node from its `arg`. Raises Violation: "InvalidArg", "UnknownDtype", "AccDtypeMissing"."""
    given = _flat(given, limits) if defn.short == "VIEW" else given
    if defn.short == "REDUCE" and "dtype" not in given:
        help = "the accumulator's dtype is `dtype`, not `acc_dtype`" if "acc_dtype" in given else 'add "dtype":"fp32"'
        raise Violation("AccDtypeMissing", "REDUCE needs the accumulator's dtype", at=attribute("arg"), help=help)
    return read_listed(defn.short, defn.attrs, given, limits)


def read_listed(uop: str, listed: Sequence[Attr], given: Mapping[str, Any], limits: Limits) -> dict[str, object]:
    """What is given of the attributes that are listed. Raises Violation."""
    names = [a.name for a in listed]
    for key in given:
        if key not in names:
            known = ", ".join(f"`{name}`" for name in names)
            meant = attribute_meant(key, [name for name in names if name not in given])
            message = f"{uop} has no arg `{key}`, only {known}" if known else f"{uop} takes no arg, so no `{key}`"
            raise Violation("InvalidArg", message, at=key_of(key), instead=meant and f'"{meant}"')
    for a in listed:
        needed = a.default is REQUIRED and a.name not in given
        require(not needed, "InvalidArg", f"{uop} needs the arg `{a.name}`", at=OP_NAME)
    return {a.name: _read(a, given[a.name], limits) for a in listed if a.name in given}


def _read(a: Attr, value: Any, limits: Limits) -> object:
    try:
        return READ[a.kind.removesuffix(" | None")](value, limits)
    except Violation as violation:
        v, at = violation, violation.at or attribute(a.name)
        at = at._replace(key=a.name) if isinstance(at, Place) and not at.key else at
        raise Violation(v.code, f"{a.name}: {v.message}", help=v.help, at=at, instead=v.instead) from None


def _wrong(what: str, value: Json, at: Place | None = None) -> Violation:
    shown = json.dumps(value)
    return Violation("InvalidArg", f"{what} is wanted, not {shown if len(shown) < 40 else shown[:40] + '…'}", at=at)


def _list(value: Json, limits: Limits, what: str) -> list[Json]:
    if not isinstance(value, list):
        raise _wrong(f"a list of {what}", value)
    if len(value) > limits.rank:
        raise LimitExceeded(f"a list of {len(value)} {what}, the limit is {limits.rank}", "--max-rank")
    return value


def is_integer(value: Json) -> TypeGuard[int]:
    """Whether a JSON value is an integer; `true` is none."""
    return isinstance(value, int) and not isinstance(value, bool)


def expression(text: Json) -> ex.Poly:
    """The polynomial of an expression in a program's text. Raises Violation("InvalidArg")."""
    if not isinstance(text, str):
        raise _wrong("an expression", text)
    require(len(text) <= MAX_TEXT and "@" not in text, "InvalidArg", f"`{text[:40]}` is not an integer expression")
    return ex.parse(text)


def read_dim(value: Json) -> Dim:
    """An extent: an integer that is not negative, or an expression. Raises Violation("InvalidArg")."""
    found: Dim = value if is_integer(value) else ex.to_dim(expression(value))
    require(isinstance(found, Sym) or 0 <= found < 1 << 63, "InvalidArg", f"{found} is not an extent")
    return found


def read_shape(value: Json, limits: Limits) -> tuple[Dim, ...]:
    """A list of extents. Raises Violation("InvalidArg")."""
    return tuple(_entry(k, read_dim, x) for k, x in enumerate(_list(value, limits, "integers and symbols")))


def _entry(k: int, read: Callable[[Json], Dim], value: Json) -> Dim:
    """What `read` makes of entry `k` of a list. Its violation is about that entry, of whatever the list is given as."""
    try:
        return read(value)
    except Violation as v:
        raise Violation(v.code, v.message, help=v.help, at=v.at or attribute("", k), instead=v.instead) from None


def read_dtype(value: Json, limits: Limits) -> DType:
    """A dtype. Raises Violation("UnknownDtype")."""
    found = DTYPES.get(value) if isinstance(value, str) else None
    if found is None:
        meant = dtype_meant(str(value), DTYPES)
        help = None if meant else f"the dtypes are {', '.join(DTYPES)}"
        message, instead = f"`{value}` is not a dtype", meant and f'"{meant}"'
        raise Violation("UnknownDtype", message, help=help, instead=instead)
    return found


def _read_ints(value: Json, limits: Limits) -> tuple[int, ...]:
    found = tuple(x for x in _list(value, limits, "integers") if is_integer(x))
    if isinstance(value, list) and len(found) < len(value):
        raise _wrong("a list of integers", value)
    return found


def _read_axes(value: Json, limits: Limits) -> Axes:
    return tuple(a if is_integer(a) else dim_text(ex.to_dim(expression(a))) for a in _list(value, limits, "axes"))


def _read_pads(value: Json, limits: Limits) -> Pads:
    pairs = [p for p in _list(value, limits, "pairs") if isinstance(p, list) and len(p) == 2]
    if isinstance(value, list) and len(pairs) < len(value):
        raise _wrong("a list of pairs [lo, hi]", value)
    return tuple((read_dim(low), read_dim(high)) for low, high in pairs)


def _read_scalar(value: Json, limits: Limits) -> Scalar:
    if isinstance(value, str) and value in WORDS:
        return WORDS[value]
    if not isinstance(value, (bool, int, float)):
        raise _wrong('a number, a bool, "inf", "-inf" or "nan"', value)
    return decimals.narrowing(value) if isinstance(value, float) else value


def _read_text(value: Json, limits: Limits) -> str:
    if not isinstance(value, str):
        raise _wrong("a string", value)
    return value


def _read_map(polys: list[ex.Poly], limits: Limits) -> Map:
    return tuple(map(ex.to_dim, polys))


READ: dict[str, Callable[[Any, Limits], object]] = {
    "Shape": read_shape, "DType": read_dtype, "Ints": _read_ints, "Destination": _read_ints, "Axes": _read_axes,
    "Pads": _read_pads, "Scalar": _read_scalar, "str": _read_text, "Map": _read_map,
}  # fmt: skip


def _flat(given: dict[str, Json], limits: Limits) -> dict[str, Any]:
    """VIEW's arg with what its `index_map` has: `fill`, and the polynomials of `map` and `guard` over the axes `@k`."""
    arg: dict[str, Any] = dict(given)
    require("index_map" in arg, "InvalidArg", "VIEW needs the arg `index_map`", at="arg")
    require(not {"map", "guard", "fill"} & set(arg), "InvalidArg", "`map`, `guard` and `fill` go inside `index_map`", at="arg")
    inner = arg.pop("index_map")
    if not isinstance(inner, dict):
        raise _wrong('index_map: an object {"axes", "map", "guard", "fill"}', inner)
    unknown = [k for k in inner if k not in ("axes", "map", "guard", "fill")]
    require(not unknown, "InvalidArg", f"index_map has no `{', '.join(unknown)}`", at="index_map")
    require("map" in inner, "InvalidArg", "index_map needs `map`", at="index_map")
    shape = arg.get("result_shape")
    axes = _axis_names(inner.get("axes"), len(shape) if isinstance(shape, list) else 0, limits)
    names = {text: ex.name(axis_name(i)) for i, text in enumerate(axes)}
    try:
        mapped = [_tree(e).put(names) for e in _list(inner["map"], limits, "expressions")]
        guard = [g.put(names) for e in _list(inner.get("guard", []), limits, "comparisons") for g in _comparison(e)]
    except ex.NoDivisor as violation:
        raise Violation("NonAffineIndexMap", violation.message, at="index_map") from None
    return arg | ({"fill": inner["fill"]} if "fill" in inner else {}) | {"map": mapped, "guard": guard}


def _axis_names(value: Json, rank: int, limits: Limits) -> list[str]:
    if value is None:
        return [f"i{k}" for k in range(rank)]
    listed = _list(value, limits, "names")
    names = [n for n in listed if isinstance(n, str) and AXIS.fullmatch(n)]
    require(
        len(set(names)) == len(listed) == rank,
        "InvalidArg",
        f"axes names each of the {rank} axes of result_shape once",
        at="axes",
    )
    return names


_TREE: dict[str, Callable[[ex.Poly, ex.Poly], ex.Poly]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b,
}  # fmt: skip


def _tree(value: Json, depth: int = 0) -> ex.Poly:
    """An entry of a map: a number, an expression, or a tree such as {"add": ["i0", {"mul": [2, "i1"]}]}."""
    if is_integer(value):
        return ex.constant(value)
    if not isinstance(value, dict):
        return expression(value)
    require(depth < ex.MAX_DEPTH, "InvalidArg", f"the expression is nested deeper than {ex.MAX_DEPTH}")
    (operator, operands) = next(iter(value.items())) if len(value) == 1 else ("", None)
    wanted = _wrong(f"an object with one of {', '.join(_TREE)} and its operands", value)
    if operator not in _TREE or not isinstance(operands, list) or len(operands) < 2:
        raise wanted
    if operator in ("floordiv", "mod", "sub") and len(operands) > 2:
        raise wanted
    first, *rest = [_tree(e, depth + 1) for e in operands]
    for e in rest:
        first = _TREE[operator](first, e)
    return first


def _comparison(value: Json) -> list[ex.Poly]:
    """What must not be negative for the comparison to hold: `a>=b` is `a-b`."""
    if not isinstance(value, str):
        raise _wrong("a comparison such as `2*i0-1>=0`", value, attribute("guard"))
    found = re.fullmatch(r"([^<>=]*)(>=|<=|==|>|<)([^<>=]*)", value)
    if found is None:
        raise _wrong("a comparison such as `2*i0-1>=0`", value, attribute("guard"))
    left, right, one = expression(found[1]), expression(found[3]), ex.constant(1)
    forms = {">=": [left - right], "<=": [right - left], ">": [left - right - one], "<": [right - left - one]}
    return forms.get(found[2]) or [left - right, right - left]


def write_args(defn: OpDef, attrs: dict[str, object]) -> dict[str, object]:
    """`arg` of an op: its attributes in declaration order, those equal to their default left out."""
    defaults = {a.name: a.default for a in defn.attrs}
    kept = {a.name: (a.kind, attrs[a.name]) for a in defn.attrs if not _is_default(attrs[a.name], defaults[a.name])}
    arg = {key: _write(kind, value) for key, (kind, value) in kept.items() if kind != "Map" and key != "fill"}
    return arg | ({"index_map": _write_map(attrs)} if defn.short == "VIEW" else {})


def _is_default(value: object, default: object) -> bool:
    return value is default or (type(value) is type(default) and value == default and str(value) == str(default))


def _write(kind: str, value: object) -> object:
    if isinstance(value, tuple):
        return [_write(kind, v) for v in value]
    if isinstance(value, DType):
        return SPELLED[value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return word_for(value)
    return value.name if isinstance(value, Sym) else value


def _write_map(attrs: dict[str, object]) -> dict[str, object]:
    """`index_map`; axes are i0, i1, …, or named otherwise when one of those is a symbol of the map."""
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
    return inner | ({} if _is_default(fill, 0) else {"fill": _write("Scalar", fill)})
