"""Random Tiny graphs from the declarations of the UOps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ptir_tools.core import expressions as ex
from ptir_tools.core import generate as core
from ptir_tools.core.builder import single_function
from ptir_tools.core.choices import Choices
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Program, clone
from ptir_tools.core.dtypes import BF16, F16, F32, I1, SI32, DType
from ptir_tools.core.ir import ELEMENTWISE, Attr, Attribute, Element, Literal, Op, OpDef, Operand, Value, operand_type
from ptir_tools.core.types import Dim, Shape, Sym, TensorType, tensor
from ptir_tools.core.verify import verify
from ptir_tools.dialects.tiny import DIALECT
from ptir_tools.dialects.tiny.immediates import immediate
from ptir_tools.dialects.tiny.ops.reduce import KINDS
from ptir_tools.dialects.tiny.ops.rules import FLOATS, dim_text

DTYPES = (F32, F16, BF16, SI32, I1)
SYMBOLS = ("N", "K", "2*N", "K+1")
INPUTS = 6


def generate(
    choices: Choices,
    *,
    dtypes: Sequence[DType] = DTYPES,
    size: int = 12,
    only: Sequence[str] = (),
    symbols: bool = True,
    faults: bool = False,
    implicit: bool = True,
) -> Program:
    """A valid graph of about `size` nodes, of the UOps in `only` (default: all) and those that they need.

    With `symbols`, extents may be expressions. With `implicit`, operands may lack the EXPAND or CAST that profile `seed` adds.
    `faults` has no effect: a graph that verifies runs.
    """
    program, builder = single_function(DIALECT)
    g = Growing(choices, program, builder, dtypes, [d for d in DIALECT.ops.values() if not only or d.short in only])
    g.symbols, g.implicit = symbols, implicit
    for _ in range(g.number(1, 3)):
        g.input(tensor(g.one(g.dtypes), g.extents()))
    program.main.attrs["input_names"] = [p.name for p in program.main.params]
    g.grow(g.number((size + 1) // 2, size))
    program.main.attrs["input_names"] = [p.name for p in program.main.params]
    used = {v for op in program.main.body for v in op.values()}
    sinks = [op.result for op in program.main.body if op.result not in used]
    named = not sinks or g.chance(1, 3)
    outputs = [x for x in g.values if isinstance(x, Value)]
    g.b.results(*(dict.fromkeys(g.one(outputs) for _ in range(g.number(1, 3))) if named else sinks))
    program.attrs["outputs"] = named
    return program


class Growing(core.Growing):
    """A graph while it is generated."""

    symbols = True
    implicit = True

    def extents(self) -> Shape:
        """The extents of an input."""
        shape: list[Dim] = list(self.shape(self.one((0, 1, 1, 2, 2, 3))))
        if self.symbols and self.chance(1, 4):
            shape = [ex.to_dim(ex.parse(self.one(SYMBOLS))) if self.chance(1, 3) else d for d in shape]
        return tuple(shape)

    def fresh(self, t: TensorType) -> Operand:
        """An input, or another value converted. If there are many inputs already, another value of the shape."""
        alike = self.tensors(lambda u: u.shape == t.shape)
        if alike and (len(self.program.main.params) >= INPUTS or self.choices.flag()):
            made = self.b.op("CAST", self.one(alike), to=t.dtype)
            self.values.append(made)
            return made
        return self.input(t)

    def sibling(self, t: TensorType) -> Operand:
        """A value or, sometimes, an immediate."""
        return immediate(self.number_of(t.dtype), t.dtype) if self.chance(1, 3) else self.of_type(t)

    def number_of(self, dtype: DType) -> float:
        """A number of `dtype`: usually small, sometimes the least or largest, or not finite."""
        if dtype is I1:
            return self.choices.flag()
        if not dtype.is_float:
            return self.one((dtype.min, dtype.max)) if self.chance(1, 12) else self.number(-4, 4)
        if self.chance(1, 12):
            return self.one((float("inf"), float("-inf"), float("nan"), 2.0**-20, 60000.0))
        return self.number(-4, 4) if self.choices.flag() else self.one((0.5, -1.25, -0.0, 0.1))

    def map(self, texts: Sequence[str]) -> tuple[Dim, ...]:
        """Expressions of a map or guard."""
        return tuple(ex.to_dim(ex.parse(t)) for t in texts)

    def append(self, defn: OpDef, draft: core.Draft) -> Op | None:
        """Append a draft. Sometimes one operand then lacks its EXPAND or CAST."""
        numbers = [x for x in draft.groups if isinstance(x, Literal)]
        types = [self.type(x) for x in draft.groups if isinstance(x, (Value, Element))]
        if len(numbers) > 1 or any(all(x.type.dtype is not t.dtype for t in types) for x in numbers):
            return None  # an immediate has the dtype of a value next to it
        made = super().append(defn, draft)
        if made is not None and self.implicit and len(made.operands) > 1 and ELEMENTWISE in defn.traits and self.chance(1, 3):
            self.shorten(made)
        return made

    def shorten(self, op: Op) -> None:
        """Replace an operand by a smaller or narrower value, if the normalizer corrects it, in at most REACH ops."""
        if len(self.b.block.body) > core.REACH:
            return
        i = self.number(0, len(op.operands) - 1)
        x, before = op.operands[i], op.operands
        if not isinstance(x, Value):
            return
        t = self.type(x)
        shape = tuple(1 if self.choices.flag() else d for d in t.shape)
        dtype = self.one([d for d in FLOATS if d.bits <= t.dtype.bits]) if t.dtype.is_float else t.dtype
        wanted = tensor(dtype, shape)
        known = [v for v in self.values if isinstance(v, Value) and v.type is wanted and v.op is not op]
        inputs = set(self.program.main.params)
        body = self.program.main.body
        there = [v for v in known if v in inputs or (v.op is not None and v.op in body[: body.index(op)])]
        y = self.one(there) if there else self.input(wanted) if len(inputs) < INPUTS else None
        if y is None:
            return
        op.operands = (*before[:i], y, *before[i + 1 :])
        copy = clone(self.program)
        copy.main.results = list(copy.main.body[-1].results)
        if not verify(copy, Diagnostics()) or operand_type(copy.main.results[0]) is not op.result.type:
            op.operands = before

    def attribute(self, defn: OpDef, a: Attr, types: Sequence[TensorType], named: dict[str, Attribute]) -> Attribute:
        return core.by_kind(REQUIRED, a)(self, types)

    def candidates(
        self, a: Attr, default: object, types: Sequence[TensorType], named: dict[str, Attribute]
    ) -> Sequence[Attribute]:
        found = CANDIDATES.get(a.kind)
        return [] if found is None else found(self, named.get("dtype", types[0].dtype if types else F32))


Types = Sequence[TensorType]


def _axes(g: Growing, types: Types) -> tuple[int | str, ...]:
    """Axes, counted from either end, or named by their extent."""
    shape, names = types[0].shape, [dim_text(d) for d in types[0].shape]
    found: list[int | str] = []
    for a in g.some(range(len(shape))):
        by_name = isinstance(shape[a], Sym) and names.count(names[a]) == 1 and g.choices.flag()
        found.append(names[a] if by_name else a - len(shape) if g.chance(1, 6) else a)
    return tuple(found)


def _reshaped(g: Growing, types: Types) -> Shape:
    """A shape with neighbors merged, or axes of 1 inserted or removed."""
    flat = [d for d in types[0].shape if d != 1]
    if len(flat) > 1 and g.choices.flag():
        i = g.number(0, len(flat) - 2)
        flat[i : i + 2] = [ex.to_dim(ex.product(flat[i : i + 2]))]
    for _ in range(g.number(0, 2)):
        flat.insert(g.number(0, len(flat)), 1)
    return tuple(flat)


REQUIRED: dict[str, Callable[[Growing, Types], Attribute]] = {
    "axes": _axes,
    "op": lambda g, types: g.one(KINDS),
    "perm": lambda g, types: tuple(g.choices.shuffled(range(types[0].rank))),
    "result_shape": _reshaped,
    "DType": lambda g, types: g.one(g.dtypes),
    "int": lambda g, types: g.number(0, 3),
}

CANDIDATES: dict[str, Callable[[Growing, DType], Sequence[Attribute]]] = {
    "Scalar": lambda g, dtype: [g.number_of(dtype) for _ in range(3)],
    "Scalar | None": lambda g, dtype: [g.number_of(dtype) for _ in range(3)],
    "bool": lambda g, dtype: (True, False),
    "int": lambda g, dtype: range(-4, 5),
}
