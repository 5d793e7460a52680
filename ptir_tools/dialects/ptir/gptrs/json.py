"""PTIR as gpt.rs's JSON (`program.json`): the reader."""

from __future__ import annotations

from collections.abc import Callable

from ptir_tools.core.collector import collector_paused
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Format, Options, Program
from ptir_tools.core.ir import Op, Operand, Value
from ptir_tools.core.source import JsonPath, Source, Span, pack_json
from ptir_tools.core.typed import TypeVar
from ptir_tools.core.types import Type
from ptir_tools.dialects import jsonc
from ptir_tools.dialects.jsonc import Json
from ptir_tools.dialects.ptir.gptrs.forms import Malformed, Where, get, one_key, read_attrs, read_type
from ptir_tools.dialects.ptir.gptrs.json_writer import write
from ptir_tools.dialects.ptir.gptrs.serde import Payload, read_literal, read_op
from ptir_tools.dialects.ptir.hints import Hint
from ptir_tools.dialects.ptir.text.assembly import SPEC_VERSION, Assembly, check_version

T = TypeVar("T")


def read(source: Source, diagnostics: Diagnostics, options: Options) -> Program | None:
    """The program in a JSON text; every independent error of it goes to `diagnostics`. Raises LimitExceeded."""
    with collector_paused():
        raw = jsonc.parse(source, diagnostics, limits=options.limits)
        return _Reader(source, diagnostics, options).program(raw) if raw is not None else None


class _Reader:
    def __init__(self, source: Source, diagnostics: Diagnostics, options: Options) -> None:
        self.source, self.diagnostics = source, diagnostics
        self.assembly = Assembly(source, diagnostics, options)
        # What has been decoded before, by the text of the plain value: programs repeat themselves.
        self.known_types: dict[str, Type] = {}
        self.known_ops: dict[str, Payload] = {}

    def malformed(self, bad: Malformed, path: JsonPath) -> None:
        span = self.source.json_span((*path, *bad.path)) if self.source.json_span else None
        instead = None if bad.instead is None else f'"{bad.instead}"'
        self.diagnostics.error(bad.code, bad.message, span, help=bad.help, instead=instead)

    def guarded(self, path: JsonPath, read: Callable[..., T], *arguments: object) -> T | None:
        """What `read` gives, or None after reporting where it is malformed."""
        try:
            return read(*arguments)
        except Malformed as bad:
            self.malformed(bad, path)
            return None

    def array(self, raw: Json, key: str, what: str, path: JsonPath) -> list[Json] | None:
        """The array `raw[key]`, or None after reporting that it is none."""
        found: list[Json] | None = self.guarded(path, get, raw, key, list, what)
        return found

    def object(self, raw: Json, what: str, path: JsonPath) -> dict[str, Json] | None:
        """`raw`, which must be an object; what is none is reported, and its name is not known."""
        if isinstance(raw, dict):
            return raw
        self.malformed(Malformed(f"{what} is an object"), path)
        self.assembly.unnamed = True
        return None

    def program(self, raw: Json) -> Program | None:
        functions = self.array(raw, "functions", "a program", ())
        regions = self.array(raw, "regions", "a program", ())
        entry = self.guarded((), get, raw, "entry", str, "a program")
        if functions is None or regions is None or entry is None or not isinstance(raw, dict):
            return None
        self.version(raw.get("spec_version"))
        self.assembly.program.entry = entry
        self.assembly.wrapped, self.assembly.header = True, self.source.json_loc(("entry",))
        container = self.source.add_container(("functions",))
        for i, function in enumerate(functions):
            if (found := self.object(function, "a function", ("functions", i))) is not None:
                self.function(found, ("functions", i), pack_json(container, i))
        container = self.source.add_container(("regions",))
        for i, region in enumerate(regions):
            if (found := self.object(region, "a region", ("regions", i))) is not None:
                self.region(found, ("regions", i), pack_json(container, i))
        return self.assembly.finish()

    def version(self, version: Json) -> None:
        if version == SPEC_VERSION or self.source.json_span is None:
            return
        at = Span(0, 1) if version is None else self.source.json_span(("spec_version",)) or Span(0, 1)
        check_version(self.diagnostics, version if isinstance(version, str | None) else repr(version), at)

    # ---- blocks

    def function(self, raw: dict[str, Json], path: JsonPath, at: int) -> None:
        name = self.guarded(path, get, raw, "name", str, "a function")
        types = self.types(raw, "parameters", "a function", path)
        ids = self.ids(raw, "parameter_ids", "a function", path)
        if types is not None and ids is not None and len(types) != len(ids):
            message = f"{len(types)} parameters, {len(ids)} parameter_ids"
            self.diagnostics.error("SyntaxError", message, at)
            types = ids = None
        results = self.types(raw, "results", "a function", path)
        params = zip(map(str, ids or ()), types or (), strict=False)
        self.assembly.unnamed |= name is None
        self.assembly.open_function(name or "", params, results or (), at)
        self.assembly.damaged = types is None or ids is None or results is None
        self.body(raw, path)
        returned = self.ids(raw, "result_ids", "a function", path)
        if returned is None or results is None:
            self.assembly.damaged = True
        found = [self.assembly.value(str(n), at) for n in returned or ()]
        listed = self.source.json_loc((*path, "result_ids"))
        self.assembly.returns(found if found or not self.assembly.damaged else [None] * len(results or ()), listed)
        self.hints(raw, path)
        self.assembly.close(at)

    def region(self, raw: dict[str, Json], path: JsonPath, at: int) -> None:
        ident = self.guarded(path, get, raw, "id", int, "a region")
        types = self.types(raw, "parameters", "a region", path)
        results = self.types(raw, "results", "a region", path)
        params = ((str(k), t) for k, t in enumerate(types or ()))
        self.assembly.unnamed |= ident is None
        self.assembly.open_region(f"r{ident}", params, results or (), at)
        self.assembly.damaged = types is None or results is None
        self.body(raw, path)
        self.assembly.returns_last(len(results or ()), self.source.json_loc((*path, "results")))
        self.assembly.close(at)

    def types(self, raw: Json, key: str, what: str, path: JsonPath) -> list[Type] | None:
        items = self.array(raw, key, what, path)
        found = [self.guarded((*path, key, i), read_type, x) for i, x in enumerate(items or ())]
        return None if items is None else _every(found)

    def ids(self, raw: Json, key: str, what: str, path: JsonPath) -> list[int] | None:
        items = self.array(raw, key, what, path)
        for i, n in enumerate(items or ()):
            if type(n) is not int or n < 0:
                self.malformed(Malformed(f"{n!r} is not a value id"), (*path, key, i))
                return None
        return None if items is None else [n for n in items if type(n) is int]

    def body(self, raw: Json, path: JsonPath) -> None:
        instructions = self.array(raw, "body", "a block", path)
        if instructions is None:
            self.assembly.damaged = True
        container = self.source.add_container((*path, "body"))
        for i, x in enumerate(instructions or ()):
            self.instruction(x, (*path, "body", i), pack_json(container, i))

    def instruction(self, raw: Json, path: JsonPath, at: int) -> None:
        ident = self.guarded(path, get, raw, "id", int, "an instruction")
        if ident is None or not isinstance(raw, dict):
            self.assembly.damaged = True
            return
        t = self.guarded((*path, "output"), self.type, raw.get("output"))
        payload = self.guarded((*path, "op"), self.op, raw.get("op"))
        operands = self.operands(raw, path, at)
        if t is None or payload is None or operands is None:
            self.assembly.poison(str(ident), at)
            return
        self.warn(payload.guessed, at)
        op = Op(payload.defn, operands, payload.attrs, (), (), at)
        self.assembly.add(op, str(ident), t)
        if payload.regions:
            self.assembly.pending.append((op, tuple(f"r{n}" for n in payload.regions), at))

    def type(self, raw: Json) -> Type:
        key = repr(raw)
        found = self.known_types.get(key)
        if found is None:
            found = self.known_types[key] = read_type(raw)
        return found

    def op(self, raw: Json) -> Payload:
        if isinstance(raw, dict) and "Constant" in raw:  # too long, and seldom twice
            return read_op(raw)
        key = repr(raw)
        found = self.known_ops.get(key)
        if found is None:
            found = self.known_ops[key] = read_op(raw)
        return found

    def warn(self, guessed: list[str], at: int) -> None:
        for text in guessed:
            self.diagnostics.warning("LossyFloat", text, at, help="gpt.rs writes null for every float that is not finite")

    def operands(self, raw: Json, path: JsonPath, at: int) -> tuple[Operand, ...] | None:
        items = self.array(raw, "operands", "an instruction", path)
        found = [self.guarded((*path, "operands", i), self.operand, x, at) for i, x in enumerate(items or ())]
        whole: list[Operand] | None = _every(found)
        return None if items is None or whole is None else tuple(whole)

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

    def hints(self, raw: dict[str, Json], path: JsonPath) -> None:
        hints = self.array(raw, "hints", "a function", path) if "hints" in raw else ()
        container = self.source.add_container((*path, "hints"))
        for i, x in enumerate(hints or ()):
            if (found := self.object(x, "a hint", (*path, "hints", i))) is not None:
                self.hint(found, (*path, "hints", i), pack_json(container, i))

    def hint(self, raw: dict[str, Json], path: JsonPath, at: int) -> None:
        ident = self.guarded(path, get, raw, "id", int, "a hint")
        kind, policy = (self.guarded(path, get, raw, k, str, "a hint") for k in ("kind", "policy"))
        if ident is None or kind is None or policy is None:
            return
        inputs, exports = (self.named(self.ids(raw, k, "a hint", path), at) for k in ("inputs", "exports"))
        where = Where("attrs", [])
        attrs = self.guarded((*path, "attrs"), read_attrs, raw.get("attrs") or {}, where)
        self.warn(where.guessed, at)
        hint = Hint(id=ident, kind=kind, policy=policy, inputs=inputs, exports=exports, attrs=attrs or (), loc=at)
        self.assembly.begin_hint(hint)
        self.body(raw, path)
        self.assembly.close(at)

    def named(self, ids: list[int] | None, at: int) -> tuple[Value, ...]:
        return tuple(self.assembly.value(str(n), at) for n in ids or ())


def _every(found: list[T | None]) -> list[T] | None:
    """All of a list; None when one is None."""
    whole = [x for x in found if x is not None]
    return whole if len(whole) == len(found) else None


FORMAT = Format("ptir-json", "ptir", read, write)
