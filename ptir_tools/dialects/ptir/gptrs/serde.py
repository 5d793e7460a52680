"""gpt.rs's payloads in the layout of its JSON: plain Python values to attributes and types. The dump's reader makes the
same plain values of what Rust prints, so that every field is decoded here alone."""

from __future__ import annotations

from collections.abc import Callable

from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import REQUIRED, Attr, Literal, OpDef
from ptir_tools.core.limits import LIMITS, LimitExceeded
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.source import JsonPath
from ptir_tools.core.spelling import nearest
from ptir_tools.core.typed import Any, NoReturn, TypeVar
from ptir_tools.core.types import Dim, TensorType, Type, sym, tensor, tuple_of
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.jsonc import KEY
from ptir_tools.dialects.ptir.gptrs import carried
from ptir_tools.dialects.ptir.gptrs.kinds import DTYPE_OF, KIND, Kind, fields, ops
from ptir_tools.dialects.ptir.ops import scalars
from ptir_tools.dialects.ptir.ops.kinds import ATTR_KINDS, ENUMERATIONS
from ptir_tools.dialects.ptir.ops.scalars import Scalar
from ptir_tools.dialects.ptir.text import literals

T = TypeVar("T")


class Malformed(Violation):
    """A plain value is not what gpt.rs writes there. `path` leads from the decoded value to the place."""

    def __init__(
        self,
        message: str,
        path: JsonPath = (),
        code: str = "SyntaxError",
        help: str | None = None,
        wrong: str | None = None,
        meant: str | None = None,
    ) -> None:
        super().__init__(code, message, help=help, at=wrong, instead=meant)
        self.path = path


@dataclass(slots=True)
class Payload:
    """A decoded operation. `guessed` says which floats were null and what they were taken for."""

    defn: OpDef
    attrs: tuple[Any, ...]
    regions: tuple[int, ...]
    guessed: list[str] = field(default_factory=list)


def _fail(message: str, *path: str | int, **more: Any) -> NoReturn:
    raise Malformed(message, path, **more)


def inside(step: str | int, read: Callable[..., T], *arguments: object) -> T:
    """What `read` gives; a Malformed it raises is one step further in."""
    try:
        return read(*arguments)
    except Malformed as bad:
        bad.path = (step, *bad.path)
        raise


def one_key(raw: object, what: str) -> tuple[str, object]:
    """The variant and payload of an externally tagged enum. Raises Malformed."""
    if isinstance(raw, str):
        return raw, None
    if not isinstance(raw, dict) or len(raw) != 1:
        _fail(f"{what} is a name or an object of one key")
    return next(iter(raw.items()))


def get(raw: Any, key: str, kind: type, what: str) -> Any:
    """A field of an object. Raises Malformed when it is missing or of another kind."""
    if not isinstance(raw, dict):
        _fail(f"{what} is an object")
    if key not in raw:
        _fail(f"{what} has no field `{key}`")
    value = raw[key]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        _fail(f"`{key}` is not {_KIND_TEXT[kind]}", key)
    return value


_KIND_TEXT = {int: "an integer", str: "a string", list: "an array", dict: "an object"}


# ---- types


def read_type(raw: object, depth: int = 0) -> Type:
    """A value type. Raises Malformed, and LimitExceeded for a tuple nested too deep."""
    variant, payload = one_key(raw, "a type")
    if variant == "Tensor":
        return inside("Tensor", read_spec, payload)
    if variant != "Tuple":
        _fail(f"there is no type `{variant}`", help="types are Tensor and Tuple")
    if depth >= LIMITS.nesting:
        raise LimitExceeded(f"types nested deeper than {LIMITS.nesting}", "--max-nesting")
    if not isinstance(payload, list):
        _fail("a tuple type is an array", "Tuple")
    parts: list[Type] = []
    for i, x in enumerate(payload):
        try:
            parts.append(read_type(x, depth + 1))
        except Malformed as bad:
            bad.path = ("Tuple", i, *bad.path)
            raise
    return tuple_of(parts)


def read_spec(raw: object) -> TensorType:
    """`{"dtype": …, "shape": …}`. Raises Malformed."""
    name = get(raw, "dtype", str, "a tensor type")
    dtype = inside("dtype", read_dtype, name)
    return tensor(dtype, inside("shape", read_shape, get(raw, "shape", dict, "a tensor type")))


def read_dtype(raw: object) -> DType:
    """A dtype in Rust's spelling. Raises Malformed."""
    found = DTYPE_OF.get(raw) if isinstance(raw, str) else None
    if found is None:
        meant = nearest(str(raw), DTYPE_OF)
        _fail(f"there is no dtype `{raw}`", code="DTypeNotSupported", wrong=str(raw), meant=meant)
    return found


def read_shape(raw: object) -> tuple[Dim, ...]:
    """`{"dims": […]}`. Raises Malformed."""
    dims = get(raw, "dims", list, "a shape")
    return inside("dims", lambda: tuple([inside(i, _dim, d) for i, d in enumerate(dims)]))


def _dim(raw: object) -> Dim:
    variant, value = one_key(raw, "an extent")
    if variant == "Static" and type(value) is int:
        if value < 0:
            _fail(f"{value} is a negative extent", code="NegativeDimension")
        return value
    if variant == "Dynamic" and isinstance(value, str):
        return sym(value)
    _fail('an extent is {"Static": 2} or {"Dynamic": "N"}')


# ---- operations


def read_op(raw: object) -> Payload:
    """An operation. Raises Malformed."""
    variant, payload = one_key(raw, "an operation")
    kind = KIND.get(variant)
    if kind is None:
        meant = nearest(variant, KIND)
        _fail(f"there is no operation kind `{variant}`", variant, KEY, code="UnknownOp", wrong=variant, meant=meant)
    return inside(variant, _read_payload, kind, payload)


def _read_payload(kind: Kind, payload: object) -> Payload:
    name = kind.ops.get("") or _sub_kind(kind, payload)
    made = Payload(ops()[name], (), ())
    if name == "constant":
        made.attrs = (read_literal(payload),)
        return made
    raw = payload if isinstance(payload, dict) and kind.struct else {}
    if kind.struct and raw is not payload and payload is not None:
        _fail(f"the payload of {kind.name} is an object")
    made.regions = tuple(get(raw, r, int, kind.name) for r in made.defn.regions)
    given = {a.name for a in fields(name)}
    made.attrs = tuple(_field(kind, a, raw, made) if a.name in given else a.default for a in made.defn.attrs)
    if name == "custom_call" and (extension := carried.called(made.attrs[0])) is not None:
        try:
            made.defn, made.attrs = extension, carried.restored(extension, made.attrs[1])
        except ValueError as wrong:
            _fail(str(wrong), "attrs", code="InvalidAttributeValue")
    return made


def _sub_kind(kind: Kind, payload: object) -> str:
    path = (kind.field,) if kind.field else ()
    sub = get(payload, kind.field, str, kind.name) if kind.field else payload
    found = kind.ops.get(sub) if isinstance(sub, str) else None
    if found is None:
        meant = nearest(str(sub), kind.ops)
        message = f"{kind.name} has no kind `{sub}` (it has: {', '.join(kind.ops)})"
        _fail(message, *path, wrong=str(sub), meant=meant, code="UnknownOp")
    return found


def _field(kind: Kind, attr: Attr, raw: dict[str, object], made: Payload) -> object:
    value = raw.get(attr.name)
    if value is None:
        if attr.kind.endswith("None"):
            return None
        if attr.name not in raw and (attr.default is REQUIRED or callable(getattr(attr.default, "rule", None))):
            _fail(f"{kind.name} has no field `{attr.name}`", code="MissingAttribute")
        if attr.name not in raw:
            return attr.default
    return inside(attr.name, _READ.get(attr.kind, _enumerated), value, attr, made)


def _wrong(attr: Attr, wanted: str) -> NoReturn:
    _fail(f"`{attr.name}` is {wanted}", code="InvalidAttributeValue")


def _integer(raw: object, attr: Attr, made: Payload) -> int:
    if type(raw) is not int or not -(2**63) <= raw < 2**63:
        _wrong(attr, "an integer of 64 bits")
    return raw


def _unsigned(raw: object, attr: Attr, made: Payload) -> int:
    if type(raw) is not int or not 0 <= raw < 2**64:
        _wrong(attr, "an integer, not negative")
    return raw


def _unsigned_list(raw: object, attr: Attr, made: Payload) -> tuple[int, ...]:
    if not isinstance(raw, (list, bytes)):
        _wrong(attr, "an array of integers")
    return tuple([inside(i, _unsigned, x, attr, made) for i, x in enumerate(raw)])


def _pairs(raw: object, attr: Attr, made: Payload) -> tuple[tuple[int, int], ...]:
    if not isinstance(raw, list) or not all(isinstance(x, (list, bytes)) and len(x) == 2 for x in raw):
        _wrong(attr, "an array of pairs")
    pairs = [inside(i, _unsigned_list, x, attr, made) for i, x in enumerate(raw)]
    return tuple((a, b) for a, b in pairs)


def _of(kind: type, wanted: str) -> Callable[[Any, Attr, Payload], Any]:
    def read(raw: object, attr: Attr, made: Payload) -> Any:
        if type(raw) is not kind:
            _wrong(attr, wanted)
        return raw

    return read


def _float(raw: object, attr: Attr, made: Payload, lost: float = float("nan")) -> float:
    if raw is None:
        made.guessed.append(f"`{attr.name}` has a null in place of a float; it is taken for {lost}")
        return lost
    if isinstance(raw, bool) or not isinstance(raw, (int, float)):
        _wrong(attr, "a number")
    return float(raw)


def _new_shape(raw: object, attr: Attr, made: Payload) -> tuple[Dim, ...]:
    if not isinstance(raw, list):
        _wrong(attr, "an array of extents")
    return tuple([inside(i, _new_extent, x) for i, x in enumerate(raw)])


def _new_extent(raw: object) -> Dim:
    variant, value = one_key(raw, "an extent")
    if variant == "Infer":
        return -1
    if variant != "Explicit":
        _fail('a new extent is "Infer" or {"Explicit": …}')
    return inside("Explicit", _dim, value)


def _scalar(raw: object, attr: Attr, made: Payload) -> Scalar:
    kind, value = one_key(raw, "a scalar")
    if kind == scalars.COMPLEX:
        parts = [value.get(k) for k in ("re", "im")] if isinstance(value, dict) else ["", ""]
        return Scalar(kind, complex(*(inside(kind, _float, p, attr, made) for p in parts)))
    if kind == scalars.FLOAT:
        return Scalar(kind, inside(kind, _float, value, attr, made, float("-inf")))
    if kind == scalars.I1 and isinstance(value, bool):
        return Scalar(kind, value)
    if kind in (scalars.SIGNED, scalars.UNSIGNED):
        return Scalar(kind, inside(kind, _integer if kind == scalars.SIGNED else _unsigned, value, attr, made))
    _wrong(attr, 'a scalar: {"Float": 0.5}, {"Signed": -3}, {"Unsigned": 3}, {"I1": true}, {"Complex": {"re": 1.0, "im": 0.0}}')


def _enumerated(raw: object, attr: Attr, made: Payload) -> str:
    known = [k.capitalize() for k in ENUMERATIONS[attr.kind]]
    if raw not in known:
        _wrong(attr, f"one of {', '.join(known)}")
    return str(raw).lower()


def read_attrs(raw: object, attr: Attr, made: Payload) -> tuple[tuple[str, tuple[str, Any]], ...]:
    """Attributes of a custom call or a hint. Raises Malformed."""
    if not isinstance(raw, dict):
        _wrong(attr, "an object")
    return tuple(sorted((key, inside(key, _attr_value, value, attr, made)) for key, value in raw.items()))


def _attr_value(raw: Any, attr: Attr, made: Payload) -> tuple[str, object]:
    kind, value = get(raw, "kind", str, "an attribute"), raw.get("value")
    if kind not in ATTR_KINDS:
        _fail(f"there is no attribute kind `{kind}`", "kind", help=f"the kinds are {', '.join(ATTR_KINDS)}")
    if not kind.endswith("Array"):
        return kind, inside("value", _element, ATTR_KINDS[kind], value, attr, made)
    if not isinstance(value, (list, bytes)):
        _fail(f"{kind} is an array", "value")
    return kind, inside("value", lambda: tuple([_element(ATTR_KINDS[kind], v, attr, made) for v in value]))


def _element(kind: type, raw: object, attr: Attr, made: Payload) -> object:
    if kind is float:
        return _float(raw, attr, made)
    if kind is int:
        return _integer(raw, attr, made)
    if type(raw) is not kind:
        _wrong(attr, f"not of the kind it says: {raw!r} is not {kind.__name__}")
    return raw


_READ: dict[str, Callable[[Any, Attr, Payload], Any]] = {
    "int": _integer,
    "int | None": _unsigned,
    "bool": _of(bool, "true or false"),
    "str": _of(str, "a string"),
    "float": _float,
    "DType": lambda raw, attr, made: read_dtype(raw),
    "DType | None": lambda raw, attr, made: read_dtype(raw),
    "tuple[int, ...]": _unsigned_list,
    "tuple[tuple[int, int], ...]": _pairs,
    "Shape": lambda raw, attr, made: read_shape(raw),
    "NewShape": _new_shape,
    "Scalar": _scalar,
    "Attrs": read_attrs,
}


# ---- literals


def read_literal(raw: Any) -> Literal:
    """`{"spec": …, "bytes": […]}`; a null in place of the bytes is a missing payload. Raises Malformed."""
    t = inside("spec", read_spec, get(raw, "spec", dict, "a literal"))
    data = raw.get("bytes")
    if data is None:
        return Literal(t, None)
    try:
        payload = bytes(data) if isinstance(data, (list, bytes)) else None
    except (ValueError, TypeError):
        payload = None
    if payload is None:
        _fail("`bytes` is not an array of integers from 0 to 255", "bytes")
    if not t.is_static:
        return Literal(t, payload)
    wanted = t.dtype.packed_bytes(t.count)
    if len(payload) != wanted:
        _fail(f"a literal of {t} has {wanted} bytes, this one has {len(payload)}", code="LiteralSizeMismatch")
    return literals.literal(t, payload)
