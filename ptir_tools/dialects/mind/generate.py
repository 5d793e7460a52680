"""Random MIND modules from the declarations of the operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ptir_tools.core import arrays
from ptir_tools.core import generate as core
from ptir_tools.core.builder import single_function
from ptir_tools.core.choices import Choices
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import F32, F64, SI32, SI64, DType
from ptir_tools.core.ir import Attr, Attribute, Literal, OpDef, Operand, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.types import TensorType, tensor
from ptir_tools.dialects.mind import DIALECT
from ptir_tools.dialects.mind.text.attributes import SCALARS

DTYPES = (F32, F64, SI32, SI64)
INPUTS = 6
_SCALARS = {dtype: opcode for opcode, dtype in SCALARS.items()}


def generate(
    choices: Choices,
    *,
    dtypes: Sequence[DType] = DTYPES,
    size: int = 12,
    only: Sequence[str] = (),
    symbols: bool = False,
    faults: bool = False,
) -> Program:
    """A valid module of about `size` operations, of those in `only` (default: all) and those that they need.

    With `faults`, a run may end in an error. `symbols` has no effect: every extent is a number.
    """
    program, builder = single_function(DIALECT)
    g = Growing(
        choices, program, builder, dtypes, [d for d in DIALECT.ops.values() if (d.short in only if only else d.own is None)]
    )
    g.faults = faults
    for _ in range(g.number(1, 3)):
        g.input(tensor(g.one(g.dtypes), g.shape()))
    g.grow(g.number((size + 1) // 2, size))
    g.b.results(*(g.one(g.values[-6:]) for _ in range(g.number(1, 3))))
    program.main.attrs["input_names"] = [p.name for p in program.main.params]
    return program


class Growing(core.Growing):
    """A module while it is generated."""

    def extent(self) -> int:
        """An extent; no input or constant is empty."""
        return self.one((1, 2, 2, 3, 4))

    def fresh(self, t: TensorType) -> Operand:
        """An input or a constant. An empty value is a slice of one."""
        if 0 in t.shape:
            whole = self.of_type(t.with_shape(max(d, 1) for d in t.static_shape))
            self.values.append(part := self.b.op("Slice", whole, starts=(0,) * t.rank, ends=t.shape, steps=(1,) * t.rank))
            return part
        if len(self.program.main.params) < INPUTS and self.choices.flag():
            return self.input(t)
        made = self.constant(t, [self.element(t.dtype) for _ in range(min(t.count, 7))])
        self.values.append(made)
        return made

    def constant(self, t: TensorType, elements: Sequence[object]) -> Value:
        """A constant of these elements, repeated as often as `t` needs."""
        scalar = not t.shape and t.dtype in _SCALARS and self.choices.flag()
        return self.b.op(_SCALARS[t.dtype] if scalar else "ConstTensor", value=literal(t, elements))

    def element(self, dtype: DType) -> float:
        """A number: usually small, sometimes the least or largest of its dtype."""
        special = self.chance(1, 12)
        if dtype.is_float:
            ends = np.finfo(arrays.numpy_dtype(dtype))
            numbers = (-0.0, float(ends.max), float(ends.smallest_subnormal), 0.1)
            return self.one(numbers) if special else self.number(-12, 12) / 4
        return self.one((dtype.min, dtype.max)) if special else self.number(-8, 8)

    def attribute(self, defn: OpDef, a: Attr, types: Sequence[TensorType], named: dict[str, Attribute]) -> Attribute:
        return core.by_kind(REQUIRED, a)(self, types)


def literal(t: TensorType, elements: Sequence[object]) -> Literal:
    """The literal of type `t` of these elements."""
    wide = np.resize(np.array(elements, np.float64 if t.dtype.is_float else np.int64), t.static_shape)
    return arrays.to_literal(arrays.narrow(wide, t.dtype), t)


Types = Sequence[TensorType]


def _axes(g: Growing, types: Types) -> tuple[int, ...]:
    """Axes of the operand, negative ones where the operation takes them; for ExpandDims, new axes, too."""
    return g.axes(types[0].rank)


def _reshaped(g: Growing, types: Types) -> tuple[int, ...]:
    shape = list(g.choices.shuffled(types[0].static_shape))
    if len(shape) > 1 and g.choices.flag():
        shape[:2] = [shape[0] * shape[1]]
    if g.choices.flag():
        shape.insert(g.number(0, len(shape)), 1)
    if shape and g.choices.flag():
        shape[g.number(0, len(shape) - 1)] = -1
    return tuple(shape)


def _literal(g: Growing, types: Types) -> Literal:
    t = tensor(g.one(g.dtypes), g.shape(g.one((0, 0, 1, 2))))
    return literal(t, [g.element(t.dtype) for _ in range(min(t.count, 7))])


REQUIRED: dict[str, Callable[[Growing, Types], Attribute]] = {
    "axes": _axes,
    "new_shape": _reshaped,
    "permutation": lambda g, types: tuple(g.choices.shuffled(range(types[0].rank))),
    "Literal": _literal,
    "bool": lambda g, types: g.choices.flag(),
    "int": lambda g, types: g.number(0, 3),
}
