"""How the fields of gpt.rs's data are read and written, a form for each kind of field.

A field is read from plain values in the layout of gpt.rs's JSON. The reader of dumps makes the same plain values of what Rust
prints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ptir_tools.core.dtypes import DType
from ptir_tools.core.limits import LimitExceeded, current
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.source import JsonPath
from ptir_tools.core.spelling import nearest
from ptir_tools.core.typed import Any, TypeVar
from ptir_tools.core.types import Dim, TensorType, TupleType, Type, sym, tensor, tuple_of
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.jsonc import Json
from ptir_tools.dialects.ptir.gptrs.kinds import DTYPE_OF, RUST_DTYPE
from ptir_tools.dialects.ptir.gptrs.values import Newtype, Some, Struct, Value, Variant
from ptir_tools.dialects.ptir.ops import scalars
from ptir_tools.dialects.ptir.ops.kinds import ATTR_KINDS, ENUMERATIONS, Attrs, AttrValue
from ptir_tools.dialects.ptir.ops.scalars import Scalar

T = TypeVar("T")
_EXTENTS, _NEW_EXTENTS, _TYPES = ("Static", "Dynamic"), ("Explicit", "Infer"), ("Tensor", "Tuple")


class Malformed(Violation):
    """A plain value is not what gpt.rs writes there. `path` leads from the decoded value to the place."""

    def __init__(self, message: str, path: JsonPath = (), code: str = "SyntaxError", **more: Any) -> None:
        super().__init__(code, message, **more)
        self.path = path


class Where(NamedTuple):
    """The attribute that is read, by name, and what is guessed of its operation."""

    name: str
    guessed: list[str]

    def wrong(self, wanted: str) -> Malformed:
        """The attribute is something else."""
        return Malformed(f"`{self.name}` is {wanted}", code="InvalidAttributeValue")


def inside(step: str | int, read: Callable[..., T], *arguments: object) -> T:
    """The result of `read`. The path of a Malformed that it raises is extended by `step`."""
    try:
        return read(*arguments)
    except Malformed as bad:
        bad.path = (step, *bad.path)
        raise


def one_key(raw: Json, what: str) -> tuple[str, Json]:
    """The variant and payload of an externally tagged enum. Raises Malformed."""
    if isinstance(raw, str):
        return raw, None
    if not isinstance(raw, dict) or len(raw) != 1:
        raise Malformed(f"{what} is a name or an object of one key")
    return next(iter(raw.items()))


def get(raw: Json, key: str, kind: type[T], what: str) -> T:
    """A field of an object. Raises Malformed when it is missing or of another kind."""
    if not isinstance(raw, dict):
        raise Malformed(f"{what} is an object")
    if key not in raw:
        raise Malformed(f"{what} has no field `{key}`")
    value = raw[key]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise Malformed(f"`{key}` is not {_KIND_TEXT[kind]}", (key,))
    return value


_KIND_TEXT: dict[type, str] = {int: "an integer", str: "a string", list: "an array", dict: "an object"}


# ---- types


def read_type(raw: Json, depth: int = 0) -> Type:
    """A value type. Raises Malformed, and LimitExceeded for a tuple nested too deep."""
    variant, payload = one_key(raw, "a type")
    if variant == "Tensor":
        return inside("Tensor", read_spec, payload)
    if variant != "Tuple":
        raise Malformed(f"there is no type `{variant}`", help="types are Tensor and Tuple")
    if depth >= current().nesting:
        raise LimitExceeded(f"types nested deeper than {current().nesting}", "--max-nesting")
    if not isinstance(payload, list):
        raise Malformed("a tuple type is an array", ("Tuple",))
    parts: list[Type] = []
    for i, x in enumerate(payload):  # one call a level: `inside` would take three
        try:
            parts.append(read_type(x, depth + 1))
        except Malformed as bad:
            bad.path = ("Tuple", i, *bad.path)
            raise
    return tuple_of(parts)


def type_of(t: Type) -> Variant:
    """The variant of gpt.rs's `ValueType`."""
    if isinstance(t, TupleType):
        return Variant("Tuple", _TYPES, list(map(type_of, t.elements)))
    return Variant("Tensor", _TYPES, spec_of(t) if isinstance(t, TensorType) else None)


def spec_of(t: TensorType) -> Struct:
    """The value of a `TensorSpec`."""
    return Struct("TensorSpec", {"dtype": dtype_of(t.dtype), "shape": shape_of(t.shape)})


def _each(read: Callable[..., T], items: list[Json], *arguments: object) -> tuple[T, ...]:
    return tuple([inside(i, read, x, *arguments) for i, x in enumerate(items)])


def read_spec(raw: Json) -> TensorType:
    """`{"dtype": …, "shape": …}`. Raises Malformed."""
    dtype = inside("dtype", read_dtype, get(raw, "dtype", str, "a tensor type"))
    return tensor(dtype, inside("shape", read_shape, get(raw, "shape", dict, "a tensor type")))


def read_dtype(raw: Json, at: Where | None = None) -> DType:
    """A dtype in Rust's spelling. Raises Malformed."""
    found = DTYPE_OF.get(raw) if isinstance(raw, str) else None
    if found is None:
        meant = nearest(str(raw), DTYPE_OF)
        raise Malformed(f"there is no dtype `{raw}`", code="DTypeNotSupported", at=str(raw), instead=meant)
    return found


def dtype_of(d: DType) -> Variant:
    """The value of a dtype."""
    return Variant(RUST_DTYPE[d], DTYPE_OF)


def read_shape(raw: Json, at: Where | None = None) -> tuple[Dim, ...]:
    """`{"dims": […]}`. Raises Malformed."""
    return inside("dims", _each, _extent, get(raw, "dims", list, "a shape"))


def shape_of(dims: Iterable[Dim]) -> Struct:
    """The value of a `Shape`."""
    return Struct("Shape", {"dims": list(map(extent_of, dims))})


def _extent(raw: Json) -> Dim:
    variant, value = one_key(raw, "an extent")
    if variant == "Static" and type(value) is int:
        if value < 0:
            raise Malformed(f"{value} is a negative extent", code="NegativeDimension")
        return value
    if variant == "Dynamic" and isinstance(value, str):
        return sym(value)
    raise Malformed('an extent is {"Static": 2} or {"Dynamic": "N"}')


def extent_of(d: Dim) -> Variant:
    """The value of an extent."""
    return Variant("Static", _EXTENTS, d) if isinstance(d, int) else Variant("Dynamic", _EXTENTS, Newtype("DimSymbol", d.name))


# ---- attributes


def _fitting(fits: Callable[[Any], bool], wanted: str) -> Callable[[Any, Where], Any]:
    """Reads a value that is as it is to be."""

    def read(raw: Any, at: Where) -> Any:
        if not fits(raw):
            raise at.wrong(wanted)
        return raw

    return read


_signed = _fitting(lambda x: type(x) is int and -(2**63) <= x < 2**63, "an integer of 64 bits")
_unsigned = _fitting(lambda x: type(x) is int and 0 <= x < 2**64, "an integer, not negative")
_boolean = _fitting(lambda x: isinstance(x, bool), "true or false")
_string = _fitting(lambda x: isinstance(x, str), "a string")


def _list(element: Callable[..., T], wanted: str, size: int | None = None) -> Callable[[Json, Where], tuple[T, ...]]:
    def read(raw: Json, at: Where) -> tuple[T, ...]:
        if not isinstance(raw, list) or (size is not None and len(raw) != size):
            raise at.wrong(wanted)
        return _each(element, raw, at)

    return read


def _float(raw: Json, at: Where, lost: float = float("nan")) -> float:
    if raw is None:
        at.guessed.append(f"`{at.name}` has a null in place of a float; it is taken for {lost}")
        return lost
    if isinstance(raw, bool) or not isinstance(raw, (int, float)):
        raise at.wrong("a number")
    return float(raw)


def _new_extent(raw: Json, at: Where) -> Dim:
    variant, value = one_key(raw, "an extent")
    if variant == "Infer":
        return -1
    if variant != "Explicit":
        raise Malformed('a new extent is "Infer" or {"Explicit": …}')
    return inside("Explicit", _extent, value)


def _new_extent_of(d: Dim) -> Variant:
    return Variant("Infer", _NEW_EXTENTS) if d == -1 else Variant("Explicit", _NEW_EXTENTS, extent_of(d))


def _scalar(raw: Json, at: Where) -> Scalar:
    kind, value = one_key(raw, "a scalar")
    if kind == scalars.COMPLEX:
        parts = [value.get(k) for k in ("re", "im")] if isinstance(value, dict) else ["", ""]
        return Scalar(kind, complex(*(inside(kind, _float, p, at) for p in parts)))
    if kind == scalars.FLOAT:
        return Scalar(kind, inside(kind, _float, value, at, float("-inf")))
    if kind == scalars.I1 and isinstance(value, bool):
        return Scalar(kind, value)
    if kind in (scalars.SIGNED, scalars.UNSIGNED):
        return Scalar(kind, inside(kind, _signed if kind == scalars.SIGNED else _unsigned, value, at))
    wanted = 'a scalar: {"Float": 0.5}, {"Signed": -3}, {"Unsigned": 3}, {"I1": true}, {"Complex": {"re": 1.0, "im": 0.0}}'
    raise at.wrong(wanted)


def _scalar_of(x: Scalar) -> Variant:
    if isinstance(x.value, complex):
        return Variant(x.kind, scalars.KINDS, Struct(x.kind, {"re": x.value.real, "im": x.value.imag}))
    return Variant(x.kind, scalars.KINDS, x.value)


def read_attrs(raw: Json, at: Where) -> Attrs:
    """Attributes of a custom call or a hint. Raises Malformed."""
    if not isinstance(raw, dict):
        raise at.wrong("an object")
    return tuple(sorted((key, inside(key, _attr_value, value, at)) for key, value in raw.items()))


def _attr_value(raw: Json, at: Where) -> tuple[str, AttrValue]:
    kind = get(raw, "kind", str, "an attribute")
    if kind not in ATTR_KINDS:
        raise Malformed(f"there is no attribute kind `{kind}`", ("kind",), help=f"the kinds are {', '.join(ATTR_KINDS)}")
    read: Callable[[Any, Where], Any] = _ELEMENTS[ATTR_KINDS[kind]]
    if kind.endswith("Array"):
        read = _list(read, f"an array, as {kind} says")
    return kind, inside("value", read, raw.get("value") if isinstance(raw, dict) else None, at)


_ELEMENTS: dict[type, Callable[[Any, Where], Any]] = {bool: _boolean, int: _signed, float: _float, str: _string}


def attributes(entries: Attrs) -> dict[str, Value]:
    """The attributes of a custom call or a hint."""
    found: dict[str, Value] = {}
    for key, (kind, value) in entries:
        found[key] = Variant(kind, ATTR_KINDS, list(value) if isinstance(value, tuple) else value, tagged=True)
    return found


class Form(NamedTuple):
    """How a kind of field is read from JSON, and as which value it is written."""

    read: Callable[[Json, Where], object]
    value: Callable[[Any], Value] | None = None  # None: unchanged


def _enumeration(*known: str) -> Form:
    spelled = [k.capitalize() for k in known]
    read = _fitting(lambda x: x in spelled, f"one of {', '.join(spelled)}")
    return Form(lambda raw, at: read(raw, at).lower(), lambda value: Variant(value.capitalize(), spelled))


# By the annotation of the attribute.
FORMS: dict[str, Form] = {
    "int": Form(_signed),
    "int | None": Form(_unsigned),
    "bool": Form(_boolean),
    "str": Form(_string),
    "float": Form(_float),
    "DType": Form(read_dtype, dtype_of),
    "DType | None": Form(read_dtype, dtype_of),
    "tuple[int, ...]": Form(_list(_unsigned, "an array of integers"), list),
    "tuple[tuple[int, int], ...]": Form(_list(_list(_unsigned, "an array of pairs", 2), "an array of pairs"), list),
    "Shape": Form(read_shape, shape_of),
    "NewShape": Form(_list(_new_extent, "an array of extents"), lambda dims: list(map(_new_extent_of, dims))),
    "Scalar": Form(_scalar, _scalar_of),
    "Attrs": Form(read_attrs, attributes),
    **{name: _enumeration(*known) for name, known in ENUMERATIONS.items()},
}


def field_value(kind: str, value: Any) -> Value:
    """The value of a field of that kind."""
    if value is None:
        return None
    made: Value = make(value) if (make := FORMS[kind].value) is not None else value
    return Some(made) if kind.endswith("None") else made
