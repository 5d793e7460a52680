"""Builds a MIND module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ptir_tools.convert.emitter import NOT_TRANSLATABLE, Emit
from ptir_tools.convert.naming import spelled
from ptir_tools.convert.ranges import Range, Ranges
from ptir_tools.core.arrays import Array, from_literal, numpy_dtype, pack, to_literal
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import F32, I1, SI32, DType
from ptir_tools.core.evaluate import Context, evaluate
from ptir_tools.core.ir import Attribute, Literal, Op, Operand, Value, exact, operand_type
from ptir_tools.core.lazy import np
from ptir_tools.core.limits import current
from ptir_tools.core.records import dataclass
from ptir_tools.core.types import TensorType, Type, tensor
from ptir_tools.core.violations import Violation, require
from ptir_tools.dialects.mind.building import NAMES as OPS
from ptir_tools.dialects.mind.text.attributes import SCALARS
from ptir_tools.dialects.mind.types import NAMES
from ptir_tools.dialects.ptir.composites.express import FUNCTIONS, PAIRS, PERIODIC
from ptir_tools.rewrite.expression import Number, Term
from ptir_tools.rewrite.vocabulary import tensor_type

_SCALAR_OPCODES = {dtype: opcode for opcode, dtype in SCALARS.items()}
_LOSSY = "--lossy translates it, within 4 units of the last place of 1"

# Help texts for ops that cannot be translated.
HELP: dict[str, str] = {
    "layer_norm": "`ptir opt -p decompose` makes it smaller ops, as --lossy does",
    "tanh": _LOSSY,
    "erf": _LOSSY,
    **dict.fromkeys([*FUNCTIONS, *PERIODIC, *PAIRS], "--lossy makes a formula of it"),
    "cond": "a cond becomes a choice if its branches cannot fail and all extents are known",
    "while": "Core v1 has no control flow",
    "scan": "a scan of known length is unrolled; give the extent with --bind",
    "extract_patches": "with a dot_general by a constant or reshaped filter it is a Conv2d",
}


@dataclass(slots=True, eq=False)
class Broadcast:
    """A broadcast of `narrow` that is emitted only where an operation does not broadcast by itself; then it is `made`."""

    result: Value  # of the source
    narrow: Term
    made: Term | None = None


Read = Term | Broadcast | Literal  # an operand of a rule


class MindEmit(Emit["Term | Broadcast"]):
    """Builds a MIND module. A PTIR value becomes a term of MIND, or a broadcast that is not emitted yet."""

    dialect, title, help, names = "mind", "MIND", HELP, OPS
    arrays: dict[Value, Array | None]  # source values that follow from constants alone, computed on demand
    inner: dict[object, Value]  # operations of formulas, by what they compute: each is there once
    spans: dict[Operand, Range]  # what is known of the integers of an operation: the least and the greatest
    renamed: set[Value]  # those that have the name of a result, of which there is one

    def spelled(self, name: str) -> str:
        """`name` spelled for MIND."""
        return spelled(name)

    def run(self) -> Program:
        """The module; what MIND cannot express is reported."""
        self.arrays, self.inner, self.renamed, self.spans = {}, {}, set(), {}
        self.ranges = Ranges(self.source)
        self.parameters()
        self.program.main.attrs["input_names"] = list(
            self.source.attrs.get("input_names") or [p.name for p in self.source.params]
        )
        self.body(self.source)
        self.results()
        return self.program

    def parameter(self, p: Value, label: str) -> Term:
        """An Input. Raises Violation where MIND has no such type."""
        self.require_fit(p.type)
        t = tensor_type(p)
        require(0 not in t.shape, NOT_TRANSLATABLE, "an extent is 0")
        if t.dtype is not I1:
            return Term(self, self.builder.param(t, self.name_of(p)))
        self.note(f"input `{label}` is i32, 0 for false and 1 for true", self.place)
        flags = Term(self, self.builder.param(t.with_dtype(SI32), self.name_of(p)))
        self.spans[flags.operand] = (0, 1)
        return flags

    def require_fit(self, t: Type) -> None:
        """Raise Violation unless MIND has the type `t`."""
        require(isinstance(t, TensorType), NOT_TRANSLATABLE, "MIND has no tuples")
        assert isinstance(t, TensorType)
        require(
            t.dtype in NAMES or t.dtype is I1,
            NOT_TRANSLATABLE,
            f"MIND has no {t.dtype}; it has f32, f64, si32, si64",
        )
        require(t.is_static, NOT_TRANSLATABLE, f"{t} has symbolic extents; give them with --bind")

    def translated(self, op: Op) -> Term | Broadcast:
        """The translation of the result of `op`: a constant if it or its operands have no elements."""
        if not op.regions and len(op.results) == 1 and (result := self._of_nothing(op)) is not None:
            return self.constant(result, self.name)
        made = super().translated(op)
        known = self.ranges.of(op.result) if len(op.results) == 1 else None
        if known is not None and isinstance(made, Term):
            self.spans[made.operand] = known
        return made

    def _of_nothing(self, op: Op) -> Literal | None:
        """The result of an op that reads no elements or gives none; None for any other."""
        t = op.results[0].type
        operands = [operand_type(x) for x in op.operands]
        if not all(isinstance(s, TensorType) and s.is_static for s in (t, *operands)):
            return None
        assert isinstance(t, TensorType)
        if t.dtype not in (*NAMES, I1):
            return None
        if 0 in t.shape:
            return Literal(t, b"")
        if not operands or not all(0 in s.shape for s in operands if isinstance(s, TensorType)):
            return None
        nothing = [np.empty(s.static_shape, numpy_dtype(s.dtype)) for s in operands if isinstance(s, TensorType)]
        return to_literal(evaluate(op, nothing, Context())[0], t)

    def results(self) -> None:
        """Set the outputs when all of them are there."""
        try:
            require(bool(self.source.results), NOT_TRANSLATABLE, "a MIND module has an output")
            if all(isinstance(x, Literal) or self.values.get(x) is not None for x in self.source.results):  # type: ignore[arg-type]
                self.builder.results(*map(self.result, self.source.results))
        except Violation as violation:
            self.refuse_results(violation)

    def result(self, x: Operand) -> Value:
        """A result under its name; a Reshape to the same shape where no operation has the name. Raises Violation."""
        require(tensor_type(x).dtype is not I1, NOT_TRANSLATABLE, "MIND has no i1")
        if isinstance(x, Literal):
            self.require_fit(x.type)
            return value_of(self.constant(x, name=self.fresh.between("output")))
        v = self.value(self.read(x))
        assert isinstance(x, Value)
        name = self.name_of(x)
        if value_of(v).name == name or 0 in v.shape:
            return value_of(v)
        made = self.builder.op("Reshape", v.operand, new_shape=v.shape, name=name)
        self.values[x] = Term(self, made)
        return made

    # Operations

    def built(self, name: str, operands: Sequence[Operand], attrs: Mapping[str, Attribute]) -> Value:
        """An operation that is not the last, under a new name, or an equal one that is there."""
        key = (name, *map(id, operands), *((k, exact(attrs[k])) for k in sorted(attrs)))
        if (known := self.inner.get(key)) is None or known in self.renamed:
            known = self.inner[key] = self(name, *operands, **attrs)
        return known

    def number(self, x: Number, dtype: DType) -> Value:
        """A scalar constant."""
        literal = Literal(tensor(dtype), pack(numpy_dtype(dtype).type(x), dtype))
        return self.built(_SCALAR_OPCODES.get(dtype, "ConstTensor"), (), {"value": literal})

    def last(self, short: str, *operands: Term, **attrs: Attribute) -> Term:  # type: ignore[override]
        """The operation that gives the result, under its name."""
        return Term(self, super().last(short, *(x.operand for x in operands), **attrs))

    def rename(self, x: Term) -> None:
        """Give `x` the name of the result."""
        value_of(x).name = self.builder.name(self.name)
        self.renamed.add(value_of(x))

    # Operands

    def value(self, x: Read) -> Term:
        """`x` in its own shape: a broadcast is made now."""
        if isinstance(x, Literal):
            return self.constant(x)
        if isinstance(x, Term):
            return x
        if x.made is None:
            assert isinstance(x.result.type, TensorType)
            ones = self.constant(filled(x.result.type.with_dtype(x.narrow.dtype), 1))
            self.note("the broadcast becomes a product with ones", x.result.op.loc if x.result.op else None)
            product = self.builder.op("Mul", x.narrow.operand, ones.operand, name=self.name_of(x.result))
            x.made = Term(self, product)
        return x.made

    def narrow(self, x: Read) -> Term:
        """`x` without its broadcast, for operations that broadcast by themselves."""
        if isinstance(x, Literal):
            return self.constant(Literal(tensor(x.type.dtype), x.data) if x.splat else x)
        return x.narrow if isinstance(x, Broadcast) else x

    def affords(self, t: TensorType) -> None:
        """Raises Violation where a constant would be too big: a module has every element of it."""
        require(t.nbytes <= current().literal_bytes, NOT_TRANSLATABLE, "the constant would be too big")

    def constant(self, literal: Literal, name: str = "") -> Term:
        """A constant: of its own opcode where it is a scalar of i64, f32 or f64; an empty one is a Slice. Raises Violation."""
        require(literal.data is not None, NOT_TRANSLATABLE, "the payload of the constant is not in the file")
        self.affords(literal.type)
        if literal.type.dtype is I1:  # a mask
            literal = to_literal(from_literal(literal).astype(np.float32), literal.type.with_dtype(F32))
        name = name or self.fresh.between(self.name)
        if 0 in literal.type.shape:  # no constant is empty, but a window of one is
            whole = self.constant(filled(literal.type.with_shape(max(d, 1) for d in literal.type.static_shape), 0))
            zeros, ends = (0,) * literal.type.rank, literal.type.static_shape
            attrs: dict[str, Attribute] = {"starts": zeros, "ends": ends, "steps": (1,) * literal.type.rank}
            return Term(self, self.builder.op("Slice", whole.operand, **attrs, name=name))
        opcode = "ConstTensor" if literal.type.shape else _SCALAR_OPCODES.get(literal.type.dtype, "ConstTensor")
        return Term(self, self.builder.op(opcode, value=literal, name=name))


def value_of(x: Term) -> Value:
    """The value that a term is."""
    assert isinstance(x.operand, Value)
    return x.operand


def filled(t: TensorType, value: int) -> Literal:
    """A literal of type `t` whose elements are all `value`."""
    return Literal(t, pack(numpy_dtype(t.dtype).type(value), t.dtype), splat=True)
