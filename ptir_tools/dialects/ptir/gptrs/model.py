"""A program of this dialect as gpt.rs's data model holds it; `values` has its encodings. Fields are in gpt.rs's order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ptir_tools.core.ir import Element, Literal, Op, Operand
from ptir_tools.core.ir import Value as IrValue
from ptir_tools.core.limits import LimitExceeded, current
from ptir_tools.dialects.ptir.gptrs.forms import attributes, field_value, spec_of, type_of
from ptir_tools.dialects.ptir.gptrs.kinds import KIND, SPELLED, fields
from ptir_tools.dialects.ptir.gptrs.lowering import Block, written
from ptir_tools.dialects.ptir.gptrs.values import Id, Newtype, Stream, Struct, Value, Variant
from ptir_tools.dialects.ptir.hints import Hint
from ptir_tools.dialects.ptir.text import literals
from ptir_tools.dialects.ptir.text.assembly import SPEC_VERSION

_HINT_KINDS = ("ElementwiseDag", "DotEpilogue", "ReductionChain")
_POLICIES = ("Optional", "Preferred", "Required")
_OPERANDS = ("Value", "TupleElement", "Literal")


class Model:
    """Makes the values. `width` is how long one byte of a literal is where it is written."""

    def __init__(self, regions: Mapping[str, int], width: int = 1, canonical: bool = False) -> None:
        self.regions, self.width, self.canonical = regions, width, canonical
        self.ids: dict[IrValue, int] = {}  # of the block at hand

    # ---- blocks

    def program(self, entry: str, functions: Sequence[Block], regions: Sequence[Block]) -> Struct:
        """The complete program. If `canonical`, functions and hints are named by their positions."""
        names = {b.name: f"f{i}" if self.canonical else b.name for i, b in enumerate(functions)}
        return Struct("Program", {
            "spec_version": SPEC_VERSION, "entry": names.get(entry, entry),
            "functions": Stream(lambda b: self.function(b, names[b.name]), functions),
            "regions": Stream(self.region, regions),
        })  # fmt: skip

    def function(self, b: Block, name: str) -> Struct:
        """A function. The parts made until the next block belong to it."""
        self.ids = b.ids
        return Struct("Function", {
            "name": name, "parameters": [type_of(p.type) for p in b.params], "parameter_ids": self.values(b.params),
            "results": list(map(type_of, b.result_types)), "body": Stream(self.instruction, b.body),
            "hints": Stream(self.hint, list(enumerate(b.hints))), "result_ids": self.values(b.results),
        })  # fmt: skip

    def region(self, b: Block) -> Struct:
        """A region, likewise."""
        self.ids = b.ids
        return Struct("Region", {
            "id": self.regions[b.name], "parameters": [type_of(p.type) for p in b.params],
            "body": Stream(self.instruction, b.body), "results": list(map(type_of, b.result_types)),
        })  # fmt: skip

    def hint(self, numbered: tuple[int, Hint]) -> Struct:
        """A hint, next to its position."""
        position, h = numbered
        return Struct("Hint", {
            "id": Id(position if self.canonical else h.id), "kind": Variant(h.kind, _HINT_KINDS),
            "policy": Variant(h.policy, _POLICIES), "inputs": self.values(h.inputs), "exports": self.values(h.exports),
            "body": Stream(self.instruction, h.body), "attrs": attributes(h.attrs),
        })  # fmt: skip

    def values(self, values: Iterable[IrValue]) -> list[Value]:
        """The ids of values."""
        return [Id(self.ids[v]) for v in values]

    def instruction(self, op: Op) -> Value:
        """An op of the current block."""
        result = op.results[0]
        operands: Value = [self.operand(x) for x in op.operands]
        made, t = self.operation(op, written(op)), type_of(result.type)
        return Struct("Instruction", {"id": Id(self.ids[result]), "op": made, "operands": operands, "output": t})

    def operand(self, x: Operand) -> Variant:
        """An operand."""
        if isinstance(x, IrValue):
            return Variant("Value", _OPERANDS, Id(self.ids[x]))
        if isinstance(x, Element):
            return Variant("TupleElement", _OPERANDS, Struct("", {"tuple": Id(self.ids[x.value]), "index": x.index}))
        return Variant("Literal", _OPERANDS, self.literal(x))

    # ---- operations

    def operation(self, op: Op, attrs: tuple[object, ...]) -> Variant:
        """The variant of gpt.rs's `Operation`, of an op whose attributes are `written`."""
        kind, sub = SPELLED[op.defn.short]
        if op.defn.is_constant:
            return Variant(kind.name, KIND, self.literal(op.attrs[0]))
        if not kind.struct:
            return Variant(kind.name, KIND, Variant(sub, kind.ops) if sub else ())
        members: dict[str, Value] = {kind.field: Variant(sub, kind.ops)} if kind.field else {}
        for name, r in zip(op.defn.regions, op.regions, strict=True):
            members[name] = Newtype("RegionId", self.regions[r.name])
        named = dict(zip((a.name for a in op.defn.attrs), attrs, strict=True))
        members |= {a.name: field_value(a.kind, named[a.name]) for a in fields(op.defn.short)}
        return Variant(kind.name, KIND, Struct(kind.struct, members))

    def literal(self, x: Literal) -> Struct:
        """A literal with all its bytes. Raises LimitExceeded for a splat that is too long when it is written in full."""
        data = x.data or b""
        if x.data is not None and x.splat:
            if (length := x.type.nbytes * self.width) > current().literal_bytes:
                message = f"a constant of {x.type.nbytes} bytes takes {length} in full, the limit is {current().literal_bytes}"
                raise LimitExceeded(message, "--max-literal-bytes")
            data = literals.repeat(x.type, x.data)
        return Struct("TensorLiteral", {"spec": spec_of(x.type), "bytes": data})
