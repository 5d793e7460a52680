"""PTIR as gpt.rs's JSON (`program.json`): the reader."""

from __future__ import annotations

from collections.abc import Callable

from ptir_tools.core.collector import collector_paused
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Format, Options, Program
from ptir_tools.core.ir import Op, OpDef, Operand
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.source import JsonPath, Source, Span, pack_json
from ptir_tools.core.typed import Any, TypeVar
from ptir_tools.core.types import Type
from ptir_tools.dialects import jsonc
from ptir_tools.dialects.jsonc import Json
from ptir_tools.dialects.ptir.gptrs.forms import Malformed, Where, get, one_key, read_attrs, read_type
from ptir_tools.dialects.ptir.gptrs.json_writer import write
from ptir_tools.dialects.ptir.gptrs.lowering import MAX_ID
from ptir_tools.dialects.ptir.gptrs.serde import read_literal, read_op
from ptir_tools.dialects.ptir.hints import Hint
from ptir_tools.dialects.ptir.text.assembly import SPEC_VERSION, Assembly, check_version

T = TypeVar("T")


def read(source: Source, diagnostics: Diagnostics, options: Options) -> Program | None:
    """The program in a JSON text; every independent error of it goes to `diagnostics`. Raises LimitExceeded."""
    with collector_paused():
        raw = jsonc.parse(source, diagnostics, limits=options.limits)
        return _Reader(source, diagnostics, options).program(raw) if raw is not None else None


Members = dict[str, Any]  # of an object, each of the type that `_MEMBERS` says, or None


class _Reader:
    def __init__(self, source: Source, diagnostics: Diagnostics, options: Options) -> None:
        self.source, self.diagnostics = source, diagnostics
        self.assembly = Assembly(source, diagnostics, options)
        self.known: dict[bytes | None, tuple[OpDef, tuple[object, ...], Type]] = {}  # decoded instructions

    def malformed(self, bad: Malformed, path: JsonPath) -> None:
        span = self.source.json_span((*path, *bad.path)) if self.source.json_span else None
        instead = None if bad.instead is None else f'"{bad.instead}"'
        self.diagnostics.error(bad.code, bad.message, span, help=bad.help, instead=instead)

    def guarded(self, path: JsonPath, read: Callable[..., T], *arguments: object) -> T | None:
        """The result of `read`, or None after reporting a malformed value."""
        try:
            return read(*arguments)
        except Malformed as bad:
            self.malformed(bad, path)
            return None
        except LimitExceeded as limit:
            raise limit.at(self.source.json_loc(path)) from None

    def members(self, raw: Json, what: str, path: JsonPath) -> Members | None:
        """The members that `what` has, None in place of one in error; or None when it is no object. What is wrong is reported."""
        if not isinstance(raw, dict):
            self.malformed(Malformed(f"{what} is an object"), path)
            self.assembly.unnamed = True
            return None
        return {key: self.member(raw, key, kind, what, path) for key, kind in _MEMBERS[what].items()}

    def member(self, raw: dict[str, Json], key: str, kind: type | Callable[[Json], object], what: str, path: JsonPath) -> Any:
        """A member of a kind of `get`, or an array whose elements `kind` reads."""
        if key in _OPTIONAL and key not in raw:
            return None
        if isinstance(kind, type):
            return self.guarded(path, get, raw, key, kind, what)
        items: list[Json] | None = self.guarded(path, get, raw, key, list, what)
        found = [self.guarded((*path, key, i), kind, x) for i, x in enumerate(items or ())]
        return None if items is None or any(x is None for x in found) else found

    def each(self, items: list[Json], what: str, path: JsonPath, read: Callable[[Members, JsonPath, int], None]) -> None:
        """Give `read` the members of each object of the array at `path`, and its place."""
        container = self.source.add_container(path)
        for i, x in enumerate(items):
            if (found := self.members(x, what, (*path, i))) is not None:
                read(found, (*path, i), pack_json(container, i))

    def program(self, raw: Json) -> Program | None:
        found = self.members(raw, "a program", ())
        if found is None or None in (found["functions"], found["regions"], found["entry"]):
            return None
        self.version(found["spec_version"])
        self.assembly.program.entry = found["entry"]
        self.assembly.wrapped, self.assembly.header = True, self.source.json_loc(("entry",))
        self.each(found["functions"], "a function", ("functions",), self.function)
        self.each(found["regions"], "a region", ("regions",), self.region)
        return self.assembly.finish()

    def version(self, version: Json) -> None:
        if version == SPEC_VERSION or self.source.json_span is None:
            return
        at = Span(0, 1) if version is None else self.source.json_span(("spec_version",)) or Span(0, 1)
        check_version(self.diagnostics, version if isinstance(version, str | None) else repr(version), at)

    # ---- blocks

    def function(self, found: Members, path: JsonPath, at: int) -> None:
        types, ids, results, returned = (found[k] for k in ("parameters", "parameter_ids", "results", "result_ids"))
        if types is not None and ids is not None and len(types) != len(ids):
            message = f"{len(types)} parameters, {len(ids)} parameter_ids"
            self.diagnostics.error("SyntaxError", message, at)
            types = ids = None
        self.assembly.unnamed |= found["name"] is None
        self.assembly.open_function(found["name"] or "", zip(ids or (), types or (), strict=False), results or (), at)
        self.assembly.damaged = None in (types, ids, results)
        self.body(found["body"], path)
        if returned is None:
            self.assembly.damaged = True
        values = [self.assembly.value(n, at) for n in returned or ()]
        listed = self.source.json_loc((*path, "result_ids"))
        self.assembly.returns(values if values or not self.assembly.damaged else [None] * len(results or ()), listed)
        self.each(found["hints"] or [], "a hint", (*path, "hints"), self.hint)
        self.assembly.close(at)

    def region(self, found: Members, path: JsonPath, at: int) -> None:
        types, results = found["parameters"], found["results"]
        params = ((str(k), t) for k, t in enumerate(types or ()))
        self.assembly.unnamed |= found["id"] is None
        self.assembly.open_region(f"r{found['id']}", params, results or (), at)
        self.assembly.damaged = None in (types, results)
        self.body(found["body"], path)
        self.assembly.returns_last(len(results or ()), self.source.json_loc((*path, "results")))
        self.assembly.close(at)

    def body(self, instructions: list[Json] | None, path: JsonPath) -> None:
        if instructions is None:
            self.assembly.damaged = True
        container = self.source.add_container((*path, "body"))
        for i, x in enumerate(instructions or ()):
            key, at = _said(x), pack_json(container, i)
            if not self.repeated(x, key, at):
                self.instruction(x, key, (*path, "body", i), at)

    def repeated(self, raw: Any, key: bytes | None, at: int) -> bool:
        """Add an instruction that differs from an earlier one only in ids. False if there is none, or an id is not known."""
        try:
            defn, attrs, t = self.known[key]
            name, listed, values = _read_id(raw["id"]), raw["operands"], self.assembly.values
            operands = tuple([values[repr(x["Value"])] for x in listed])
        except (KeyError, TypeError, Malformed):
            return False
        whole = sum(map(len, listed)) == len(operands)
        if whole:
            self.assembly.add(Op(defn, operands, attrs, (), (), at), name, t)
        return whole

    def instruction(self, raw: Json, key: bytes | None, path: JsonPath, at: int) -> None:
        ident = self.guarded(path, get, raw, "id", int, "an instruction")
        if ident is None or not isinstance(raw, dict) or self.guarded((*path, "id"), _read_id, ident) is None:
            self.assembly.damaged = True
            return
        t = self.guarded((*path, "output"), read_type, raw.get("output"))
        payload = self.guarded((*path, "op"), read_op, raw.get("op"))
        operands = self.member(raw, "operands", lambda x: self.operand(x, at), "an instruction", path)
        if t is None or payload is None or operands is None:
            self.assembly.poison(str(ident), at)
            return
        self.warn(payload.guessed, at)
        self.assembly.add(Op(payload.defn, tuple(operands), payload.attrs, (), (), at), str(ident), t, payload.regions)
        if key is not None and not payload.guessed and not payload.regions:
            self.known[key] = payload.defn, payload.attrs, t

    def warn(self, guessed: list[str], at: int) -> None:
        for text in guessed:
            self.diagnostics.warning("LossyFloat", text, at, help="gpt.rs writes null for every float that is not finite")

    def operand(self, raw: Json, at: int) -> Operand:
        variant, value = one_key(raw, "an operand")
        if variant == "Value" and type(value) is int:
            return self.assembly.value(str(value), at)
        if variant == "TupleElement":
            whole, index = (get(value, k, int, "a tuple element") for k in ("tuple", "index"))
            return self.assembly.operand(str(whole), index, at)
        if variant == "Literal":
            return read_literal(value)
        raise Malformed("an operand is Value, TupleElement or Literal")

    def hint(self, found: Members, path: JsonPath, at: int) -> None:
        if None in (found["id"], found["kind"], found["policy"]):
            return
        where = Where("attrs", [])
        attrs = self.guarded((*path, "attrs"), read_attrs, found["attrs"] or {}, where)
        self.warn(where.guessed, at)
        inputs, exports = (tuple(self.assembly.value(n, at) for n in found[k] or ()) for k in ("inputs", "exports"))
        said = {k: found[k] for k in ("id", "kind", "policy")}
        self.assembly.begin_hint(Hint(**said, inputs=inputs, exports=exports, attrs=attrs or (), loc=at))
        self.body(found["body"], path)
        self.assembly.close(at)


def _read_id(raw: Json) -> str:
    """The name of a value, from its id. Raises Malformed."""
    if type(raw) is not int or not 0 <= raw < MAX_ID:
        raise Malformed(f"{raw!r} is not a value id")
    return str(raw)


def _said(raw: Any) -> bytes | None:
    """A key of an instruction without its ids; equal instructions have equal keys. None for a constant or a malformed
    instruction."""
    try:
        return None if "Constant" in raw["op"] else jsonc.key((raw["op"], raw["output"]))
    except (KeyError, TypeError):
        return None


# The members of objects: the type of one, or what reads the elements of an array.
_MEMBERS: dict[str, dict[str, type | Callable[[Json], object]]] = {
    "a program": {"functions": list, "regions": list, "entry": str, "spec_version": object},
    "a function": {
        "name": str, "parameters": read_type, "parameter_ids": _read_id, "results": read_type, "body": list,
        "result_ids": _read_id, "hints": list,
    },
    "a region": {"id": int, "parameters": read_type, "results": read_type, "body": list},
    "a hint": {
        "id": int, "kind": str, "policy": str, "inputs": _read_id, "exports": _read_id, "body": list, "attrs": object,
    },
}  # fmt: skip
_OPTIONAL = ("spec_version", "hints", "attrs")


FORMAT = Format("ptir-json", "ptir", read, write)
