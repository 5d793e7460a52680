"""Scalar literals of attributes (`pad_value`), with the kinds that gpt.rs's JSON and dump give them."""

from __future__ import annotations

import struct

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import DType, Kind
from ptir_tools.core.lazy import np
from ptir_tools.core.records import dataclass

I1, SIGNED, UNSIGNED, FLOAT, COMPLEX = "I1", "Signed", "Unsigned", "Float", "Complex"
KINDS = (I1, SIGNED, UNSIGNED, FLOAT, COMPLEX)

_NATURAL = {Kind.BOOL: I1, Kind.INT: SIGNED, Kind.UINT: UNSIGNED, Kind.FLOAT: FLOAT, Kind.COMPLEX: COMPLEX}
_ZERO: dict[str, bool | int | float | complex] = {I1: False, SIGNED: 0, UNSIGNED: 0, FLOAT: 0.0, COMPLEX: 0j}


@dataclass(slots=True, frozen=True, eq=False)
class Scalar:
    """A number with its kind: `value` is a bool, int, float or complex. Equal scalars have the same kind and bits."""

    kind: str
    value: bool | int | float | complex

    @property
    def key(self) -> tuple[str, object]:
        """A key that is equal for equal kinds and bits: -0.0 is not 0.0, a NaN equals itself."""
        v = self.value
        if self.kind == COMPLEX:
            c = complex(v)
            return self.kind, struct.pack("<dd", c.real, c.imag)
        return self.kind, struct.pack("<d", v) if isinstance(v, float) else v

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scalar) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def natural_kind(dtype: DType) -> str:
    """The kind that a scalar for a tensor of `dtype` has unless the text says another."""
    return _NATURAL[dtype.kind]


def natural_zero(dtype: DType) -> Scalar:
    """Zero of the kind natural to `dtype`."""
    kind = natural_kind(dtype)
    return Scalar(kind, _ZERO[kind])


def representable(scalar: Scalar, dtype: DType) -> bool:
    """Whether an element of `dtype` can be the scalar. An integer dtype needs an integer in its range, i1 a boolean, 0 or 1, a
    real dtype no imaginary part. Floats round."""
    v = scalar.value
    if isinstance(v, complex):
        return dtype.is_complex or (dtype.is_float and v.imag == 0)
    if dtype.is_float or dtype.is_complex:
        return True
    if isinstance(v, float) and not v.is_integer():
        return False
    return int(v) in (0, 1) if dtype.kind is Kind.BOOL else dtype.min <= int(v) <= dtype.max


def element(scalar: Scalar, dtype: DType) -> Array:
    """The scalar as a 0-d array of `dtype`, rounded or wrapped to it."""
    if dtype.is_float or dtype.is_complex:
        value = complex(scalar.value)
        wide = np.asarray(value, np.complex128) if dtype.is_complex else np.asarray(value.real, np.float64)
        return arrays.narrow(wide, dtype)
    return arrays.narrow(np.asarray(int(scalar.value.real), np.uint64 if scalar.kind == UNSIGNED else np.int64), dtype)
