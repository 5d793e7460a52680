"""Helpers of type rules: checks of dtypes, axes and extents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from math import prod

from ptir_tools.core.dtypes import F32, F64, PTIR_DTYPES, SI32, SI64, DType, Kind
from ptir_tools.core.ir import Attribute, Derived
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.typed import TypeVar
from ptir_tools.core.types import UNKNOWN, Dim, Shape, Sym, TensorType, dims_text
from ptir_tools.core.violations import Place, Violation, free_axis, operand, require
from ptir_tools.core.violations import attribute as place

R = TypeVar("R")


def rule(infer: Callable[..., R]) -> Callable[..., R]:
    """Make `infer` a type rule of tensors: it refuses an operand that is a tuple or has a dtype outside the contract.

    Raises Violation: "OperandTypeMismatch", "DTypeNotSupported".
    """

    @wraps(infer)
    def checked(*types: object, **attrs: object) -> R:
        for i, t in enumerate(flatten_types(types)):
            if not isinstance(t, TensorType):
                raise Violation("OperandTypeMismatch", f"operand {i} is {t}, expected a tensor", at=operand(i))
            require(t.dtype in PTIR_DTYPES, "DTypeNotSupported", f"{t.dtype} is not a dtype of PTIR", at=operand(i))
        return infer(*types, **attrs)

    return checked


def flatten_types(types: Iterable[object]) -> Iterable[object]:
    """The operand types, with groups flattened."""
    for t in types:
        if isinstance(t, tuple):
            yield from t
        elif t is not None:
            yield t


class Among(NamedTuple):
    """A set of dtypes and its name in messages."""

    text: str
    dtypes: frozenset[DType]


def _among(text: str, *kinds: Kind) -> Among:
    return Among(text, frozenset(d for d in PTIR_DTYPES if d.kind in kinds))


FLOATS = _among("a float", Kind.FLOAT)
INTEGERS = _among("an integer", Kind.INT, Kind.UINT)
BITS = _among("an integer or i1", Kind.BOOL, Kind.INT, Kind.UINT)
INEXACT = _among("a float or complex", Kind.FLOAT, Kind.COMPLEX)
SIGNED = _among("a signed integer, float or complex", Kind.INT, Kind.FLOAT, Kind.COMPLEX)
SIGNED_REAL = _among("a signed integer or float", Kind.INT, Kind.FLOAT)
COMPLEX = _among("a complex number", Kind.COMPLEX)
PARTS = Among("f32 or f64", frozenset((F32, F64)))
ORDERED = _among("an integer or float", Kind.INT, Kind.UINT, Kind.FLOAT)
NUMERIC = _among("any dtype but i1", Kind.INT, Kind.UINT, Kind.FLOAT, Kind.COMPLEX)
ANY = _among("any dtype", *Kind)
BOOLEANS = _among("i1", Kind.BOOL)
COMPARED = _among("any dtype that is not complex", Kind.BOOL, Kind.INT, Kind.UINT, Kind.FLOAT)
INDICES = Among("si32 or si64", frozenset((SI32, SI64)))


FIRST = operand(0)


def want(dtype: DType, among: Among, what: str = "the operand", at: str | Place = FIRST) -> None:
    """Raise Violation("DTypeNotSupported") unless `dtype` is one of `among`."""
    require(dtype in among.dtypes, "DTypeNotSupported", f"{what} is {dtype}, expected {among.text}", at=at)


def attribute(condition: object, message: str, at: str | Place | None = None) -> None:
    """Raise Violation("InvalidAttributeValue") unless `condition` holds."""
    require(condition, "InvalidAttributeValue", message, at=at)


def axis_of(axis: int, rank: int, at: str = "axis", entry: int = 0, named: Sequence[int] = ()) -> int:
    """`axis` in [0, rank); a negative one counts from the end. Raises Violation("InvalidAttributeValue") outside, which proposes
    an axis that is not `named`."""
    if not -rank <= axis < rank:
        message = f"{at}: {axis} is not an axis of a tensor of rank {rank}"
        raise Violation("InvalidAttributeValue", message, at=place(at, entry), instead=free_axis(named, rank))
    return axis % rank


def axes_of(axes: Sequence[int], rank: int, at: str) -> tuple[int, ...]:
    """Distinct axes in [0, rank), in the given order. Raises Violation("InvalidAttributeValue")."""
    found = tuple(axis_of(a, rank, at, i, axes) for i, a in enumerate(axes))
    if len(set(found)) < len(found):
        second = next(i for i, a in enumerate(found) if a in found[:i])
        attribute(False, f"{at} {list(axes)} names an axis twice", place(at, second))
    return found


def same_dtype(a: TensorType, b: TensorType, code: str = "OperandDTypeMismatch", of: tuple[int, int] = (0, 1)) -> None:
    """Raise Violation(`code`) when the dtypes differ: PTIR has no promotion. `of` are the indices of the two operands."""
    if a.dtype is b.dtype:
        return
    first, second = map(operand, of)
    message = f"operand dtypes differ: {a.dtype} and {b.dtype}"
    cast = f"cast({{}}) -> {b.with_dtype(a.dtype)}"
    raise Violation(code, message, help="insert a cast", at=second, labels=[(first, f"is {a}")], through=cast)


def agree(a: Dim, b: Dim, code: str, what: str, at: str | Place | None = None) -> None:
    """Raise Violation unless the extents are equal: `code` when both are numbers, else "DynamicDimensionMismatch"."""
    if a is b or a == b or a is UNKNOWN or b is UNKNOWN:
        return
    symbolic = isinstance(a, Sym) or isinstance(b, Sym)
    raise Violation("DynamicDimensionMismatch" if symbolic else code, f"{what}: {a} and {b}", at=at)


def same_shape(a: TensorType, b: TensorType, code: str = "OperandShapeMismatch", of: tuple[int, int] = (0, 1)) -> None:
    """Raise Violation unless the shapes are equal. `of` are the indices of the two operands."""
    if a.shape == b.shape:
        return
    help = "make the shapes equal with broadcast_to" if _broadcast(a.shape, b.shape) else None
    first, second = map(operand, of)
    at, labels, through = second, [(first, f"is {a}")], None
    if fits := [t for t, other in ((a, b), (b, a)) if help and _broadcast(other.shape, t.shape, exactly=True)]:
        target = fits[0]
        if target is b:
            at, labels = first, [(second, f"is {b}")]
        shape = ", ".join(dims_text((d,)) for d in target.shape)
        through = f"broadcast_to({{}}) result_shape[{shape}] -> {(b if target is a else a).with_shape(target.shape)}"
    if a.rank != b.rank:
        raise Violation(code, f"operand shapes differ: {a} and {b}", help=help, at=at, labels=labels, through=through)
    for axis, (m, n) in enumerate(zip(a.shape, b.shape, strict=True)):
        try:
            agree(m, n, code, f"operand shapes differ at axis {axis}")
        except Violation as v:
            raise Violation(v.code, f"{v.message} ({a} and {b})", help=help, at=at, labels=labels, through=through) from None


def _broadcast(a: Shape, b: Shape, exactly: bool = False) -> bool:
    """Whether two shapes, aligned at their last axes, can be broadcast to a common shape; `exactly`: to `b`."""
    pairs = zip(reversed(a), reversed(b), strict=False)
    return all(m == n or (m == 1 if exactly else 1 in (m, n)) for m, n in pairs) and (not exactly or len(a) <= len(b))


def extents(shape: Shape, at: str) -> Shape:
    """`shape`, after a check of every number in it."""
    for i, d in enumerate(shape):
        if isinstance(d, int):
            require(d >= 0, "NegativeDimension", f"{at} has the negative extent {d}", at=place(at, i))
            require(d <= SI64.max, "IntegerPromotionExceedsSi64", f"the extent {d} does not fit si64", at=place(at, i))
    return shape


def counts(values: Sequence[int], rank: int, at: str, least: int = 0) -> None:
    """One number of at least `least` per axis. Raises Violation("InvalidAttributeValue")."""
    attribute(len(values) == rank, f"{at} has {len(values)} entries, the rank is {rank}", at)
    low = next((i for i, v in enumerate(values) if v < least), None)
    attribute(low is None, f"{at} {list(values)} has an entry under {least}", place(at, low or 0))


def static(*dims: Dim) -> bool:
    """Whether all extents are numbers."""
    return all(isinstance(d, int) for d in dims)


def elements(shape: Shape) -> tuple[int, list[Sym]]:
    """The product of the numbers of a shape, and its symbols, sorted by name."""
    return prod(d for d in shape if isinstance(d, int)), sorted((d for d in shape if isinstance(d, Sym)), key=lambda s: s.name)


def default_accum(dtype: DType) -> DType:
    """The accumulator of `dtype` when none is given: f32 for floats up to 32 bits, else the dtype itself."""
    return F32 if dtype.is_float and dtype.bits <= 32 else dtype


def accumulator(dtype: DType, accum: DType | None, out: DType | None = None) -> DType:
    """The dtype of a reduction's result. The accumulator must hold every value of the operand's dtype.

    Raises Violation: "InvalidAccumDTypeOverride", or "DTypeNotSupported" when a complex sum would become real.
    """
    if accum is not None:
        message = f"accum_dtype {accum} cannot hold every {dtype}"
        require(dtype_holds(accum, dtype), "InvalidAccumDTypeOverride", message, at="accum_dtype")
    out = out or dtype
    real = not out.is_complex and dtype.is_complex
    require(not real, "DTypeNotSupported", f"out_dtype {out} would drop the imaginary part of {dtype}", at="out_dtype")
    return out


def dtype_holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is one of `wide`, both of one kind (signed and unsigned integers are one kind)."""
    if wide is narrow:
        return True
    if wide.is_integer and narrow.is_integer:
        return wide.min <= narrow.min and wide.max >= narrow.max
    return wide.kind is narrow.kind and wide.bits > narrow.bits


def repeated_default(like: str, value: object) -> Attribute:
    """The default of an attribute: `value` once for each entry of the attribute `like`."""
    return Derived(lambda named, types: (value,) * len(named[like]))
