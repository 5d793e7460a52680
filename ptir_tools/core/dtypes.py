"""Element types. One universe for all dialects; each dialect spells them its own way."""

from enum import StrEnum

from ptir_tools.core.records import dataclass


class Kind(StrEnum):
    """The meaning of an element's bits."""

    BOOL = "bool"
    INT = "int"
    UINT = "uint"
    FLOAT = "float"
    COMPLEX = "complex"
    INDEX = "index"


@dataclass(slots=True, frozen=True, eq=False)
class DType:
    """An element type: `name` is PTIR's spelling, `numpy` that of NumPy or ml_dtypes. Equal dtypes are the same object.

    `precision` is how many significant bits a float has, or a part of a complex number; every integer up to 2**precision is one.
    """

    name: str
    kind: Kind
    bits: int
    numpy: str
    precision: int = 0

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name

    @property
    def size(self) -> int:
        """Bytes of one element in memory (a 4-bit value takes one while computing)."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind is Kind.FLOAT

    @property
    def is_complex(self) -> bool:
        return self.kind is Kind.COMPLEX

    @property
    def is_integer(self) -> bool:
        """Signed or unsigned, not i1."""
        return self.kind in (Kind.INT, Kind.UINT, Kind.INDEX)

    @property
    def is_signed(self) -> bool:
        return self.kind in (Kind.INT, Kind.INDEX)

    @property
    def min(self) -> int:
        """Smallest value of an integer dtype."""
        return -(1 << (self.bits - 1)) if self.is_signed else 0

    @property
    def max(self) -> int:
        """Largest value of an integer dtype."""
        return (1 << (self.bits - 1)) - 1 if self.is_signed else (1 << self.bits) - 1

    def packed_bytes(self, count: int) -> int:
        """Bytes of `count` elements in a literal or a file: 4-bit values go two to a byte."""
        return (count * 4 + 7) // 8 if self.bits == 4 else count * self.size


I1 = DType("i1", Kind.BOOL, 1, "bool")
SI4 = DType("si4", Kind.INT, 4, "int4")
UI4 = DType("ui4", Kind.UINT, 4, "uint4")
SI8 = DType("si8", Kind.INT, 8, "int8")
UI8 = DType("ui8", Kind.UINT, 8, "uint8")
SI16 = DType("si16", Kind.INT, 16, "int16")
UI16 = DType("ui16", Kind.UINT, 16, "uint16")
SI32 = DType("si32", Kind.INT, 32, "int32")
UI32 = DType("ui32", Kind.UINT, 32, "uint32")
SI64 = DType("si64", Kind.INT, 64, "int64")
UI64 = DType("ui64", Kind.UINT, 64, "uint64")
FP8_E4M3 = DType("fp8_e4m3", Kind.FLOAT, 8, "float8_e4m3fn", 4)
FP8_E5M2 = DType("fp8_e5m2", Kind.FLOAT, 8, "float8_e5m2", 3)
BF16 = DType("bf16", Kind.FLOAT, 16, "bfloat16", 8)
F16 = DType("f16", Kind.FLOAT, 16, "float16", 11)
F32 = DType("f32", Kind.FLOAT, 32, "float32", 24)
F64 = DType("f64", Kind.FLOAT, 64, "float64", 53)
CF32 = DType("cf32", Kind.COMPLEX, 64, "complex64", 24)
CF64 = DType("cf64", Kind.COMPLEX, 128, "complex128", 53)
INDEX = DType("index", Kind.INDEX, 64, "int64")

# The 19 of the PTIR contract, in the contract's order; `index` belongs to PTO alone.
PTIR_DTYPES: tuple[DType, ...] = (
    I1, SI4, UI4, SI8, UI8, SI16, UI16, SI32, UI32, SI64, UI64, FP8_E4M3, FP8_E5M2, BF16, F16, F32, F64, CF32, CF64,
)  # fmt: skip

_CODES = {
    I1: "?", SI8: "b", UI8: "B", SI16: "h", UI16: "H", SI32: "i", UI32: "I", SI64: "q", UI64: "Q", F16: "e", F32: "f", F64: "d",
    INDEX: "q",
}  # fmt: skip


def struct_code(dtype: DType) -> str | None:
    """The `struct` format of an element, or None when there is none (bf16, fp8, 4-bit, complex)."""
    return _CODES.get(dtype)


_HOLDS = {
    FP8_E4M3: {FP8_E4M3, BF16, F16, F32, F64},
    FP8_E5M2: {FP8_E5M2, BF16, F16, F32, F64},
    BF16: {BF16, F32, F64},
    F16: {F16, F32, F64},
    F32: {F32, F64},
    F64: {F64},
}


def lossless(source: DType, target: DType) -> bool:
    """Whether a cast from `source` to `target` keeps every value."""
    if source is target or source.kind is Kind.BOOL:
        return True
    if target.kind is Kind.BOOL or (source.is_complex and not target.is_complex):
        return False
    if source.is_complex:
        return source.bits <= target.bits
    if target.is_complex:
        return lossless(source, F32 if target.bits == 64 else F64)
    if source.is_float:
        return target in _HOLDS[source]
    if target.is_float:
        return source.bits - source.is_signed <= target.precision
    return target.min <= source.min and source.max <= target.max
