"""The SPEC of `--input NAME=SPEC` where it is not a file: a number, a list, `iota`, `random(lo,hi)`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ptir_tools.core import arrays, decimals
from ptir_tools.core.diagnostics import UsageError, Violation
from ptir_tools.core.dtypes import CF32, CF64, F32, F64, DType, Kind
from ptir_tools.core.lazy import lazy
from ptir_tools.core.types import MemRefType, ScalarType, TensorType, Type
from ptir_tools.engines.inputs import random_array
from ptir_tools.engines.signature import Port

if TYPE_CHECKING:
    import numpy as np

    from ptir_tools.core.arrays import Array
else:
    np = lazy("numpy")

_RANDOM = re.compile(r"random\(\s*([^,()]+)\s*,\s*([^,()]+)\s*\)")
_WORDS = re.compile(r"\b(?:nan|inf)\b", re.IGNORECASE)
_JSON_WORDS = {"nan": "NaN", "inf": "Infinity"}
_PAIR = re.compile(r"\(([^(),\[\]]+),([^(),\[\]]+)\)")  # a complex number, as text PTIR writes it


def dtype_of(t: Type) -> DType:
    """The element type of a port. Raises UsageError for a type that cannot be given from outside."""
    if not isinstance(t, (TensorType, ScalarType, MemRefType)):
        raise UsageError(f"a value of type {t} cannot be given")
    return t.dtype


def shape_of(port: Port) -> tuple[int, ...]:
    """The shape of a port. Raises Violation("UnboundSymbol") when an extent is no number."""
    t = port.type
    if not isinstance(t, (TensorType, MemRefType)):
        return ()
    if left := [str(d) for d in t.shape if not isinstance(d, int)]:
        message = f"input `{port.name}` has no number for {', '.join(left)}"
        way = "--bind NAME=INT" if isinstance(t, TensorType) else f"--shape {port.name}=INT,…"
        raise Violation("UnboundSymbol", message, help=f"give it with {way}", at=f"%{port.name}:", loc=port.loc)
    return tuple(d for d in t.shape if isinstance(d, int))


def require_shape(port: Port, shape: tuple[int, ...]) -> None:
    """Raise UsageError when an array of `shape` cannot be `port`. A symbol takes any extent."""
    wanted = port.type.shape if isinstance(port.type, (TensorType, MemRefType)) else ()
    if len(wanted) != len(shape) or any(isinstance(d, int) and d != n for d, n in zip(wanted, shape, strict=True)):
        raise UsageError(f"input `{port.name}` is {port.text}, got shape {list(shape)}")


def is_list(spec: str) -> bool:
    """Whether a SPEC is a list of numbers."""
    return spec.startswith("[")


def generated(port: Port, spec: str, position: int, seed: int) -> Array:
    """The array that a SPEC other than a file describes: a number, a list, `iota`, `random`, `random(lo,hi)`. A list alone
    has a shape of its own, which open extents take."""
    dtype = dtype_of(port.type)
    if is_list(spec):
        listed = _from_text(port, spec, dtype)
        require_shape(port, listed.shape)
        return listed
    shape = shape_of(port)
    if spec == "random":
        return random_array(dtype, shape, seed, position)
    if spec == "iota":
        count = math.prod(shape)
        return arrays.narrow(arrays.widen(np.arange(count)), dtype).reshape(shape)
    if (match := _RANDOM.fullmatch(spec)) is not None:
        return _between(port, dtype, shape, match[1], match[2], seed, position)
    return np.broadcast_to(_from_text(port, spec, dtype), shape)


def _between(port: Port, dtype: DType, shape: tuple[int, ...], low: str, high: str, seed: int, position: int) -> Array:
    ends = [_from_text(port, x, dtype) for x in (low, high)]
    first, last = (float(arrays.widen(x)) for x in ends)
    if not first < last:
        raise UsageError(f"random({low},{high}) for input `{port.name}` is empty")
    stream = np.random.Generator(np.random.Philox(key=np.array([seed % 2**64, position], np.uint64)))
    if dtype.is_float:
        return arrays.narrow(stream.uniform(first, last, shape), dtype)
    return arrays.narrow(stream.integers(int(ends[0]), int(ends[1]), shape), dtype)


def _from_text(port: Port, text: str, dtype: DType) -> Array:
    """The value that `text` spells, in `dtype`. Raises UsageError when it is none or `dtype` cannot hold it."""
    try:
        words = _WORDS.sub(lambda m: _JSON_WORDS[m[0].lower()], text.strip())
        value = json.loads(_PAIR.sub(r'{"re": \1, "im": \2}', words), parse_float=decimals.read, object_hook=_complex)
        shape = _shape(value)
    except OverflowError as error:
        raise UsageError(f"input `{port.name}` is {port.text}, which cannot hold {text[:40]}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"input `{port.name}`: `{text[:40]}` is no number or list of numbers") from error
    flat = list(_leaves(value))
    for x in flat:
        if not _representable(x, dtype):
            raise UsageError(f"input `{port.name}` is {port.text}, which cannot hold {str(x).lower()}")
    if dtype.is_integer:
        made = np.array(flat, np.uint64 if dtype.max > 2**63 - 1 else np.int64)
        return arrays.narrow(made, dtype).reshape(shape) if dtype.bits != 64 else made.reshape(shape)
    if dtype.is_complex:
        return arrays.narrow(np.array(flat, np.complex128), dtype).reshape(shape)
    exact = flat if dtype is F64 else [decimals.narrowing(x) for x in flat]
    return arrays.narrow(np.array(exact, np.float64), dtype).reshape(shape)


def _complex(pair: dict[str, Any]) -> complex:
    """The number of a `(re, im)`. Raises ValueError for any other object."""
    parts = list(pair.values())
    if list(pair) != ["re", "im"] or not all(isinstance(x, (int, float)) for x in parts):
        raise ValueError(pair)
    return complex(*parts)


def _shape(value: Any) -> tuple[int, ...]:
    """The shape of nested lists. Raises ValueError when they are ragged or hold anything but numbers."""
    if not isinstance(value, list):
        if not isinstance(value, (int, float, complex)):
            raise ValueError(value)
        return ()
    inner = {_shape(x) for x in value}
    if len(inner) > 1:
        raise ValueError("ragged")
    return (len(value), *(inner.pop() if inner else ()))


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for x in value:
            yield from _leaves(x)
    else:
        yield value


def _representable(x: complex, dtype: DType) -> bool:
    if dtype.kind is Kind.BOOL:
        return x in (0, 1)
    if isinstance(x, bool):
        return False
    if dtype.is_integer:
        return isinstance(x, int) and dtype.min <= x <= dtype.max
    if isinstance(x, complex):
        part = F32 if dtype is CF32 else F64
        return dtype.is_complex and _representable(x.real, part) and _representable(x.imag, part)
    try:
        decimals.nearest(float(x), {CF32: F32, CF64: F64}.get(dtype, dtype))
    except OverflowError:
        return False
    return True
