"""gpt.rs's operations in the layout of its JSON: plain Python values to ops and literals. `forms` reads their fields."""

from __future__ import annotations

from ptir_tools.core.ir import REQUIRED, Attr, Derived, Literal, OpDef
from ptir_tools.core.records import dataclass
from ptir_tools.core.spelling import nearest
from ptir_tools.core.typed import Any
from ptir_tools.dialects.jsonc import KEY, Json
from ptir_tools.dialects.ptir.gptrs import custom_calls
from ptir_tools.dialects.ptir.gptrs.forms import FORMS, Malformed, Where, get, inside, one_key, read_spec
from ptir_tools.dialects.ptir.gptrs.kinds import KIND, Kind, fields, ops
from ptir_tools.dialects.ptir.text import literals


@dataclass(slots=True)
class Payload:
    """A decoded operation, its regions by name. `guessed` says which floats were null and what they were taken for."""

    defn: OpDef
    attrs: tuple[object, ...]
    regions: tuple[str, ...]
    guessed: list[str]


def read_op(raw: Json) -> Payload:
    """An operation. Raises Malformed."""
    variant, payload = one_key(raw, "an operation")
    kind = KIND.get(variant)
    if kind is None:
        message, meant = f"there is no operation kind `{variant}`", nearest(variant, KIND)
        raise Malformed(message, (variant, KEY), code="UnknownOp", at=variant, instead=meant)
    return inside(variant, _read_payload, kind, payload)


def _read_payload(kind: Kind, payload: Json) -> Payload:
    name = kind.ops.get("") or _sub_kind(kind, payload)
    defn, guessed = ops()[name], list[str]()
    if defn.is_constant:
        return Payload(defn, (read_literal(payload),), (), guessed)
    if kind.struct and payload is not None and not isinstance(payload, dict):
        raise Malformed(f"the payload of {kind.name} is an object")
    raw = payload if kind.struct and isinstance(payload, dict) else {}
    regions = tuple(f"r{get(raw, r, int, kind.name)}" for r in defn.regions)
    given = {a.name for a in fields(name)}
    attrs = tuple(_field(kind, a, raw, guessed) if a.name in given else a.default for a in defn.attrs)
    if name == "custom_call" and (extension := custom_calls.called(attrs[0])) is not None:
        try:
            return Payload(extension, custom_calls.restored(extension, attrs[1]), (), guessed)
        except ValueError as wrong:
            raise Malformed(str(wrong), ("attrs",), code="InvalidAttributeValue") from None
    return Payload(defn, attrs, regions, guessed)


def _sub_kind(kind: Kind, payload: Json) -> str:
    sub = get(payload, kind.field, str, kind.name) if kind.field else payload
    found = kind.ops.get(sub) if isinstance(sub, str) else None
    if found is None:
        message, meant = f"{kind.name} has no kind `{sub}` (it has: {', '.join(kind.ops)})", nearest(str(sub), kind.ops)
        raise Malformed(message, (kind.field,) if kind.field else (), at=str(sub), instead=meant, code="UnknownOp")
    return found


def _field(kind: Kind, attr: Attr, raw: dict[str, Json], guessed: list[str]) -> Any:
    value, optional = raw.get(attr.name), attr.kind.endswith("None")
    if value is None and optional:
        return None
    if attr.name not in raw:
        if attr.default is REQUIRED or isinstance(attr.default, Derived):
            raise Malformed(f"{kind.name} has no field `{attr.name}`", code="MissingAttribute")
        return attr.default
    return inside(attr.name, FORMS[attr.kind].read, value, Where(attr.name, guessed))


def read_literal(raw: Json) -> Literal:
    """`{"spec": …, "bytes": […]}`; a null in place of the bytes is a missing payload. Raises Malformed."""
    t = inside("spec", read_spec, get(raw, "spec", dict, "a literal"))
    data = raw.get("bytes") if isinstance(raw, dict) else None
    if data is None:
        return Literal(t, None)
    try:
        payload = bytes(data) if isinstance(data, list) and {*map(type, data)} <= {int} else None  # type: ignore[arg-type]
    except (ValueError, TypeError):
        payload = None
    if payload is None:
        raise Malformed("`bytes` is not an array of integers from 0 to 255", ("bytes",))
    if not t.is_static:
        return Literal(t, payload)
    wanted = t.dtype.packed_bytes(t.count)
    if len(payload) != wanted:
        raise Malformed(f"a literal of {t} has {wanted} bytes, this one has {len(payload)}", code="LiteralSizeMismatch")
    return literals.literal(t, payload)
