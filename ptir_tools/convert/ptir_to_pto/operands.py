"""Operands: their types, literals, linear indices of elements, and the place where the ops that expand an op are built."""

from __future__ import annotations

from collections.abc import Sequence
from math import copysign, isinf
from struct import pack, unpack

from ptir_tools.convert.emitter import NOT_TRANSLATABLE
from ptir_tools.convert.ptir_to_pto.kernel import unfit
from ptir_tools.convert.ranges import Ranges
from ptir_tools.core import arrays
from ptir_tools.core.dtypes import F32, FP8_E4M3, SI32, SI64, DType
from ptir_tools.core.expressions import constant, of_dim, to_dim
from ptir_tools.core.ir import Literal, Op, Operand, operand_type
from ptir_tools.core.types import Dim, Shape, TensorType, TupleType, Type, tensor
from ptir_tools.core.violations import require
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.dialects.ptir.builder.site import Site
from ptir_tools.dialects.ptir.ops import numerics
from ptir_tools.dialects.ptir.ops import scalars as numbers
from ptir_tools.dialects.pto.targets import Target
from ptir_tools.rewrite.constants import element_of
from ptir_tools.rewrite.expression import Number
from ptir_tools.rewrite.rewriter import Rewriter

INDICES = (SI32, SI64)


def scaled(n: Dim, times: int, more: int = 0) -> Dim:
    """`n * times + more`, a symbol where `n` is one. Raises Violation."""
    return to_dim(of_dim(n) * constant(times) + constant(more))


def tensor_of(x: Operand) -> TensorType:
    """The type of an operand. Raises Violation for a tuple."""
    t = operand_type(x)
    require(isinstance(t, TensorType), NOT_TRANSLATABLE, "a tuple is not a tile")
    assert isinstance(t, TensorType)
    return t


def dtype_of(x: Operand) -> DType:
    """The element type of an operand. Raises Violation for a tuple."""
    return tensor_of(x).dtype


def shape_of(x: Operand) -> Shape:
    """The extents of an operand. Raises Violation for what no tile holds."""
    t = tensor_of(x)
    require(not (reason := unfit(t)), NOT_TRANSLATABLE, reason)
    return t.shape


def parts_of(t: Type) -> Sequence[Type]:
    """The types of the elements of a tuple; of another type itself."""
    return t.elements if isinstance(t, TupleType) else (t,)


def unraveled(at: int, shape: Sequence[int]) -> list[int]:
    """The index vector of the linear index `at`."""
    index = []
    for n in reversed(shape):
        index.append(at % n)
        at //= n
    return index[::-1]


def raveled(where: Sequence[int], shape: Sequence[int]) -> int:
    """The linear index of the index vector `where`."""
    at = 0
    for i, n in zip(where, shape, strict=True):
        at = at * n + i
    return at


def filled(n: float, t: TensorType) -> Literal:
    """One number for all elements; an integer wraps to the dtype."""
    if t.dtype.is_float:
        data = arrays.pack(numbers.element(numbers.Scalar(numbers.FLOAT, n), t.dtype).reshape(1), t.dtype)
    else:
        data = (int(n) % (1 << t.dtype.bits)).to_bytes(t.dtype.size, "little")
    return Literal(t, data, bool(t.shape))


def integer(n: int, dtype: DType, shape: Shape = ()) -> Literal:
    """A literal integer."""
    return filled(n, tensor(dtype, shape))


def integer_of(x: Operand) -> int | None:
    """The value of an integer literal."""
    literal = x if isinstance(x, Literal) else None
    data = element_of(literal)
    if literal is None or data is None or not literal.type.dtype.is_integer:
        return None
    return int.from_bytes(data, "little", signed=True)


def accumulator(dtype: DType) -> DType:
    """The element type in which sums are taken."""
    return F32 if dtype.is_float and dtype.bits < 64 else dtype


def nearest_f32(x: float) -> float:
    """The number, rounded to f32."""
    result: float = unpack("<f", pack("<f", x))[0]
    return result


def identity_of(short: str, dtype: DType) -> bytes:
    """The identity element of `sum`, `prod`, `max` or `min`."""
    n = numerics.identity(short, dtype)
    if dtype is FP8_E4M3 and isinf(n):
        n = copysign(448.0, n)  # it has no infinity
    return filled(n, tensor(dtype)).data or b""


class Place(Site):
    """The place before an op that is expanded. Numbers are splat literals."""

    def __init__(self, root: Op, rw: Rewriter, target: Target, ranges: Ranges) -> None:
        super().__init__(root, rw)
        self.target = target
        self.ranges = ranges

    def filled(self, value: Number, t: TensorType) -> Tensor:
        """One number for all elements; an integer wraps to the dtype."""
        assert not isinstance(value, complex)
        return self(filled(value, t))

    def table(self, values: Sequence[object], dtype: DType, name: str) -> Tensor:
        """Constants of f32 or si32; a literal where all are equal."""
        code = "<f" if dtype.is_float else "<i"
        literal = Literal(tensor(dtype, (len(values),)), b"".join(pack(code, v) for v in values))
        if element_of(literal) is not None:
            return self(literal)
        result = self.rw.materialize_constant(self.root, literal)
        result.name = name
        return self(result)


def cast(x: Tensor, dtype: DType) -> Tensor:
    """`x` converted to other elements."""
    return x if x.dtype is dtype and not isinstance(x.operand, Literal) else x.cast(dtype)


def transposed(x: Tensor, perm: Sequence[int]) -> Tensor:
    """`x` with its axes reordered."""
    return x if list(perm) == sorted(perm) else x.transpose(perm)
