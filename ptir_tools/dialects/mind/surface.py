"""MIND modules from Python, lowered as the specification's surface language is (Surface language lowering).

    from ptir_tools.dialects.mind.surface import Module

    m = Module()
    x, w = m.variable("x", "f32", [3, 4]), m.variable("w", "f32", [4, 5])
    program = m.program((x @ w + 0.5).relu())

A free variable becomes one `Input`, however often it is used. A literal becomes a `ConstTensor` with the dtype of the other
operand, and an operator becomes its instruction. Everything is validated before it is emitted: a broken rule raises Violation
with the catalogue's code.
"""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core.builder import single_function
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import Attribute, Value
from ptir_tools.core.records import dataclass
from ptir_tools.core.typed import TypeAlias
from ptir_tools.core.types import TensorType, tensor
from ptir_tools.core.violations import Violation, require
from ptir_tools.dialects.mind import DIALECT
from ptir_tools.dialects.mind.check import NO_OUTPUTS
from ptir_tools.dialects.mind.text.attributes import tensor_literal
from ptir_tools.dialects.mind.types import DTYPES, type_text

Literal: TypeAlias = "int | float | Sequence[Literal]"


class Module:
    """A module under construction. Ids are dense and inputs come first, whatever the order in which they were made."""

    def __init__(self) -> None:
        self._program, self._builder = single_function(DIALECT)
        self._variables: dict[str, Expression] = {}

    def variable(self, name: str, dtype: str, shape: Sequence[int] = ()) -> Expression:
        """The free variable `name`. Raises Violation: E4004 for a dtype that MIND does not have, or another type under the
        same name; E3006 for an extent that is not positive."""
        require(dtype in DTYPES, "E4004", f"unknown dtype `{dtype}`; MIND has {', '.join(DTYPES)}")
        require(all(type(d) is int and d > 0 for d in shape), "E3006", f"the extents {list(shape)} are not all positive")
        t = tensor(DTYPES[dtype], shape)
        if (known := self._variables.get(name)) is not None:
            require(known.type is t, "E4004", f"`{name}` is {type_text(known.type)} already, not {type_text(t)}")
            return known
        self._variables[name] = made = Expression(self, self._builder.param(t, f"in{len(self._variables)}"))
        return made

    def constant(self, value: Literal, dtype: str, shape: Sequence[int] | None = None) -> Expression:
        """A ConstTensor; without `shape`, with the shape of the nested lists. Raises Violation("E4005")."""
        return self._constant(value, DTYPES[dtype], shape)

    def _constant(self, value: object, dtype: DType, shape: Sequence[int] | None = None) -> Expression:
        t = tensor(dtype, _extents(value) if shape is None else shape)
        return self.emit("ConstTensor", value=tensor_literal(value, t))

    def emit(self, opcode: str, *operands: Expression, **attributes: Attribute) -> Expression:
        """The instruction `opcode`. Raises Violation when it is not well typed."""
        return Expression(self, self._builder.op(opcode, *(x.value for x in operands), **attributes))

    def program(self, *outputs: Expression) -> Program:
        """The finished module. Raises Violation("E4003") without outputs."""
        require(outputs, "E4003", NO_OUTPUTS)
        self._builder.results(*(x.value for x in outputs))
        function = self._program.main
        function.attrs["input_names"] = list(self._variables)
        for i, v in enumerate([*function.params, *(op.result for op in function.body)]):
            v.name = str(i)
        return self._program


def _extents(value: object) -> tuple[int, ...]:
    """The shape of nested lists, by their first elements."""
    return (len(value), *_extents(value[0])) if isinstance(value, (list, tuple)) and value else ()


@dataclass(slots=True, frozen=True, eq=False)
class Expression:
    """A value of a module. Operators take expressions of the same module and literals."""

    module: Module
    value: Value

    @property
    def type(self) -> TensorType:
        """Its tensor type."""
        t = self.value.type
        assert isinstance(t, TensorType)
        return t

    def _with(self, opcode: str, other: Expression | Literal, *, swapped: bool = False) -> Expression:
        if not isinstance(other, Expression):
            other = self.module._constant(other, self.type.dtype)
        if other.module is not self.module:
            raise Violation("E4001", "the operands are of two modules")
        return self.module.emit(opcode, *((other, self) if swapped else (self, other)))

    def __add__(self, other: Expression | Literal) -> Expression:
        return self._with("Add", other)

    def __radd__(self, other: Literal) -> Expression:
        return self._with("Add", other, swapped=True)

    def __sub__(self, other: Expression | Literal) -> Expression:
        return self._with("Sub", other)

    def __rsub__(self, other: Literal) -> Expression:
        return self._with("Sub", other, swapped=True)

    def __mul__(self, other: Expression | Literal) -> Expression:
        return self._with("Mul", other)

    def __rmul__(self, other: Literal) -> Expression:
        return self._with("Mul", other, swapped=True)

    def __matmul__(self, other: Expression) -> Expression:
        return self._with("MatMul", other)

    def __neg__(self) -> Expression:
        return self.module.emit("Neg", self)

    def relu(self) -> Expression:
        """Relu."""
        return self.module.emit("Relu", self)

    def exp(self) -> Expression:
        """Exp."""
        return self.module.emit("Exp", self)

    def log(self) -> Expression:
        """Log."""
        return self.module.emit("Log", self)

    def dot(self, other: Expression) -> Expression:
        """Dot."""
        return self._with("Dot", other)

    def sum(self, axes: Sequence[int] = (), keepdims: bool = False) -> Expression:
        """Sum; over all axes when none is given."""
        return self.module.emit("Sum", self, axes=tuple(axes), keepdims=keepdims)

    def mean(self, axes: Sequence[int] = (), keepdims: bool = False) -> Expression:
        """Mean; over all axes when none is given."""
        return self.module.emit("Mean", self, axes=tuple(axes), keepdims=keepdims)

    def reshape(self, *shape: int) -> Expression:
        """Reshape; one extent may be -1."""
        return self.module.emit("Reshape", self, new_shape=shape)

    def transpose(self, *permutation: int) -> Expression:
        """Transpose."""
        return self.module.emit("Transpose", self, permutation=permutation)

    def expand_dims(self, *axes: int) -> Expression:
        """ExpandDims."""
        return self.module.emit("ExpandDims", self, axes=axes)

    def squeeze(self, *axes: int) -> Expression:
        """Squeeze."""
        return self.module.emit("Squeeze", self, axes=axes)

    def gather(self, indices: Expression) -> Expression:
        """Gather."""
        return self.module.emit("Gather", self, indices)

    def conv2d(self, filter: Expression, strides: Sequence[int] = (1, 1), padding: object = "Valid") -> Expression:
        """Conv2d; `padding` is "Valid", "Same" or ((top, bottom), (left, right))."""
        return self.module.emit("Conv2d", self, filter, strides=tuple(strides), padding=padding)

    def __getitem__(self, key: object) -> Expression:
        """Index by integers, Slice by slices: one for each axis, all of one kind."""
        keys = key if isinstance(key, tuple) else (key,)
        if all(isinstance(k, int) for k in keys):
            return self.module.emit("Index", self, indices=keys)
        extents = self.type.static_shape
        if len(keys) != len(extents) or not all(isinstance(k, slice) for k in keys):
            raise Violation("E4007", f"Slice takes {len(extents)} ranges for {type_text(self.type)}")
        starts = tuple(k.start or 0 for k in keys)
        ends = tuple(d if k.stop is None else k.stop for k, d in zip(keys, extents, strict=True))
        steps = tuple(1 if k.step is None else k.step for k in keys)
        return self.module.emit("Slice", self, starts=starts, ends=ends, steps=steps)
