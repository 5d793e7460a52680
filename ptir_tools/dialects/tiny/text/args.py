"""`arg` of a node: how each kind of attribute is read from JSON."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from ptir_tools.core import decimals
from ptir_tools.core import expressions as ex
from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import REQUIRED, Attr, OpDef
from ptir_tools.core.lazy import lazy, regex
from ptir_tools.core.limits import LimitExceeded, Limits
from ptir_tools.core.spelling import attribute_meant, dtype_meant
from ptir_tools.core.typed import TYPE_CHECKING, Any, TypeGuard
from ptir_tools.core.types import Dim, Sym
from ptir_tools.core.violations import OP_NAME, Place, Violation, attribute, require
from ptir_tools.core.violations import key as key_of
from ptir_tools.dialects.jsonc import Json
from ptir_tools.dialects.tiny.immediates import WORDS
from ptir_tools.dialects.tiny.ops.rules import DTYPES, Scalar, dim_text
from ptir_tools.dialects.tiny.ops.view import axis_name

if TYPE_CHECKING:
    import json
else:
    json = lazy("json")

MAX_TEXT = 1000  # characters of an expression, at most
AXIS = regex(r"[^\W\d][\w']*")


# The attributes in the `arg` of an INPUT, which is not an op, and in the `index_map` of a VIEW.
INPUT = (
    Attr("tensor_id", "str", REQUIRED), Attr("dtype", "DType", REQUIRED), Attr("shape", "Shape", REQUIRED),
    Attr("storage", "str", ""),
)  # fmt: skip
INDEX_MAP = (
    Attr("axes", "Names", ()), Attr("map", "Trees", REQUIRED), Attr("guard", "Comparisons", ()), Attr("fill", "Scalar", 0),
)  # fmt: skip


def read_args(defn: OpDef, given: dict[str, Json], limits: Limits) -> dict[str, object]:
    """The attributes of a node from its `arg`. Raises Violation: "InvalidArg", "UnknownDtype"."""
    given = _index_map(given, limits) if defn.short == "VIEW" else given
    return read_listed(defn.short, defn.attrs, given, limits)


def read_listed(uop: str, listed: Sequence[Attr], given: Mapping[str, Json], limits: Limits) -> dict[str, object]:
    """The values that are given for the attributes in `listed`. Raises Violation."""
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


def _read(a: Attr, value: Json, limits: Limits) -> object:
    try:
        return READ[a.kind.removesuffix(" | None")](value, limits)
    except Violation as v:
        at = v.at or attribute(a.name)
        v.at = at._replace(key=a.name) if isinstance(at, Place) and not at.key else at
        v.message = f"{a.name}: {v.message}"
        raise


def _wrong(what: str, value: Json, at: Place | None = None) -> Violation:
    shown = json.dumps(value)
    return Violation("InvalidArg", f"{what} is wanted, not {shown if len(shown) < 40 else shown[:40] + '…'}", at=at)


def _list(value: Json, limits: Limits, what: str) -> list[Json]:
    if not isinstance(value, list):
        raise _wrong(f"a list of {what}", value)
    if len(value) > limits.rank:
        raise LimitExceeded(f"a list of {len(value)} {what}, the limit is {limits.rank}", "--max-rank")
    return value


def _list_of(read: Callable[[Json], object], what: str) -> Callable[[Json, Limits], object]:
    """Reads a list. An error of an entry points at that entry."""

    def entries(value: Json, limits: Limits) -> tuple[object, ...]:
        found: list[object] = []
        for k, x in enumerate(_list(value, limits, what)):
            try:
                found.append(read(x))
            except Violation as v:
                v.at = v.at or attribute("", k)
                raise
        return tuple(found)

    return entries


def is_integer(value: Json) -> TypeGuard[int]:
    """Whether a JSON value is an integer; `true` is not one."""
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


def _dtype(value: Json, limits: Limits) -> DType:
    found = DTYPES.get(value) if isinstance(value, str) else None
    if found is None:
        meant = dtype_meant(str(value), DTYPES)
        help = None if meant else f"the dtypes are {', '.join(DTYPES)}"
        raise Violation("UnknownDtype", f"`{value}` is not a dtype", help=help, instead=meant and f'"{meant}"')
    return found


def _integer(value: Json) -> int:
    if not is_integer(value):
        raise _wrong("an integer", value)
    return value


def _axis(value: Json) -> int | str:
    return value if is_integer(value) else dim_text(ex.to_dim(expression(value)))


def _pair(value: Json) -> tuple[Dim, Dim]:
    if not isinstance(value, list) or len(value) != 2:
        raise _wrong("a pair [lo, hi]", value)
    return read_dim(value[0]), read_dim(value[1])


def _scalar(value: Json, limits: Limits) -> Scalar:
    if isinstance(value, str) and value in WORDS:
        return WORDS[value]
    if not isinstance(value, (bool, int, float)):
        raise _wrong('a number, a bool, "inf", "-inf" or "nan"', value)
    return decimals.narrowing(value) if isinstance(value, float) else value


def _text(value: Json, limits: Limits) -> str:
    if not isinstance(value, str):
        raise _wrong("a string", value)
    return value


def _index_map(given: Mapping[str, Json], limits: Limits) -> dict[str, Any]:
    """VIEW's arg with the contents of its `index_map`: `fill`, and the polynomials of `map` and `guard` over the axes `@k`."""
    arg: dict[str, Any] = dict(given)
    require("index_map" in arg, "InvalidArg", "VIEW needs the arg `index_map`", at="arg")
    require(not {"map", "guard", "fill"} & set(arg), "InvalidArg", "`map`, `guard` and `fill` go inside `index_map`", at="arg")
    inner, shape = arg.pop("index_map"), arg.get("result_shape")
    if not isinstance(inner, dict):
        raise _wrong('index_map: an object {"axes", "map", "guard", "fill"}', inner)
    rank = len(shape) if isinstance(shape, list) else 0
    try:
        found: dict[str, Any] = read_listed("index_map", INDEX_MAP, inner, limits)
        axes = found.pop("axes", None) or [f"i{k}" for k in range(rank)]
        require(len(set(axes)) == len(axes) == rank, "InvalidArg", f"axes names the {rank} axes of result_shape", at="axes")
        names = {text: ex.name(axis_name(i)) for i, text in enumerate(axes)}
        found["map"] = [poly.put(names) for poly in found["map"]]
        found["guard"] = [poly.put(names) for polys in found.get("guard", ()) for poly in polys]
    except ex.NoDivisor as violation:
        raise Violation("NonAffineIndexMap", violation.message, at="index_map") from None
    return arg | found


def _axis_name(value: Json) -> str:
    if not isinstance(value, str) or not AXIS.fullmatch(value):
        raise _wrong("a name", value)
    return value


_TREE: dict[str, Callable[[ex.Poly, ex.Poly], ex.Poly]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv, "mod": operator.mod,
}  # fmt: skip


def _tree(value: Json, depth: int = 0) -> ex.Poly:
    """An entry of a map: a number, an expression, or a tree such as {"add": ["i0", {"mul": [2, "i1"]}]}."""
    if is_integer(value):
        return ex.constant(value)
    if not isinstance(value, dict):
        return expression(value)
    require(depth < ex.MAX_DEPTH, "InvalidArg", f"the expression is nested deeper than {ex.MAX_DEPTH}")
    name, operands = next(iter(value.items())) if len(value) == 1 else ("", None)
    pairwise = name in ("floordiv", "mod", "sub")
    if name not in _TREE or not isinstance(operands, list) or len(operands) < 2 or (pairwise and len(operands) > 2):
        raise _wrong(f"an object with one of {', '.join(_TREE)} and its operands", value)
    return reduce(_TREE[name], [_tree(e, depth + 1) for e in operands])


def _comparison(value: Json) -> list[ex.Poly]:
    """The expression that is not negative if the comparison holds: for `a>=b` it is `a-b`."""
    found = re.fullmatch(r"([^<>=]*)(>=|<=|==|>|<)([^<>=]*)", value) if isinstance(value, str) else None
    if found is None:
        raise _wrong("a comparison such as `2*i0-1>=0`", value)
    left, right, one = expression(found[1]), expression(found[3]), ex.constant(1)
    forms = {">=": [left - right], "<=": [right - left], ">": [left - right - one], "<": [right - left - one]}
    return forms.get(found[2]) or [left - right, right - left]


_INTEGERS = _list_of(_integer, "integers")
# By the annotation of the attribute.
READ: dict[str, Callable[[Any, Limits], object]] = {
    "Shape": _list_of(read_dim, "integers and symbols"), "DType": _dtype, "Ints": _INTEGERS, "Destination": _INTEGERS,
    "Axes": _list_of(_axis, "axes"), "Pads": _list_of(_pair, "pairs"), "Scalar": _scalar, "str": _text,
    "Map": lambda polys, limits: tuple(map(ex.to_dim, polys)),
    "Names": _list_of(_axis_name, "names"), "Trees": _list_of(_tree, "expressions"),
    "Comparisons": _list_of(_comparison, "comparisons"),
}  # fmt: skip
