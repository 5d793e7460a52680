"""The inputs of `ptir run`: `NAME=SPEC` and files, as arrays that fit the program's parameters."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ptir_tools.cli.exits import unknown_name
from ptir_tools.core import arrayfiles, arrays, symbols
from ptir_tools.core.diagnostics import UsageError, Violation
from ptir_tools.core.dtypes import PTIR_DTYPES, DType, Kind
from ptir_tools.core.ir import Program
from ptir_tools.core.lazy import lazy
from ptir_tools.core.types import MemRefType, ScalarType, TensorType, Type
from ptir_tools.engines.inputs import random_inputs
from ptir_tools.engines.ports import Port, entry, signature

if TYPE_CHECKING:
    import numpy as np

    from ptir_tools.core.arrays import Array
else:
    np = lazy("numpy")

_RANDOM = re.compile(r"random\(\s*([^,()]+)\s*,\s*([^,()]+)\s*\)")
_FILE = re.compile(r"@(?P<path>.*?\.(?:npy|npz|safetensors))(?::(?P<key>.*))?", re.DOTALL)
_WORDS = re.compile(r"\b(?:nan|inf)\b", re.IGNORECASE)
_JSON_WORDS = {"nan": "NaN", "inf": "Infinity"}


@dataclass(slots=True)
class Inputs:
    """What a command line says about inputs: `--input`, `--inputs`, `--random`, `--cast-inputs`, and bindings."""

    given: tuple[tuple[str, str], ...] = ()
    file: str | None = None
    random: int | None = None
    cast: bool = False
    function: str | None = None
    bindings: Mapping[str, int] | None = None
    shapes: Mapping[str, str] | None = None  # PTO: the extents of a memref with `?`

    def arrays(self, program: Program) -> dict[str, Array]:
        """One array per port of `program` that is spoken of, in order of the ports.

        Raises UsageError for what does not fit, OSError for a file, Violation("UnboundSymbol") for an extent that stays open.
        """
        ports = signature(program, self.function)
        wanted = {**self._from_file(ports), **self._from_specs(program, ports)}
        ready = {p.name: fitted(p, x, self.cast) for p in ports if not isinstance(x := wanted.get(p.name, ""), str)}
        numbers = _numbers(program, ports, ready, self.bindings or {})
        for position, p in enumerate(ports):
            if isinstance(spec := wanted.get(p.name), str) and spec != "random":
                ready[p.name] = generated(p, spec, numbers, position, self.random or 0)
        if self.random is not None or "random" in wanted.values():
            drawn = random_inputs(program, self.random or 0, ready, self.function, self.bindings)
            ready |= {n: a for n, a in drawn.items() if self.random is not None or wanted.get(n) == "random"}
        return {p.name: ready[p.name] for p in ports if p.name in ready}

    def _from_specs(self, program: Program, ports: Sequence[Port]) -> dict[str, Array | str]:
        found: dict[str, Array | str] = {}
        for name, spec in self.given:
            port = resolve(program, ports, name, self.function)
            if port.name in found:
                raise UsageError(f"input `{port.name}` is given twice")
            found[port.name] = _from_path(spec) if spec.startswith("@") else spec.strip()
        return found

    def _from_file(self, ports: Sequence[Port]) -> dict[str, Array]:
        if self.file is None:
            return {}
        found = arrayfiles.load_all(self.file)
        known = [p.name for p in ports]
        if unknown := [name for name in found if name not in known]:
            raise unknown_name("input", unknown[0], known)
        return found


def resolve(program: Program, ports: Sequence[Port], name: str, function: str | None) -> Port:
    """The port that `name` means: a position when it is all digits, `%3` a value's name, else the port's name."""
    if name.isdecimal():
        if int(name) >= len(ports):
            raise UsageError(f"no input {name}, there are {len(ports)}")
        return ports[int(name)]
    plain = name.removeprefix("%")
    if name.startswith("%"):
        values = [p.name for p in entry(program, function).params]
        if plain in values and len(values) == len(ports):
            return ports[values.index(plain)]
    if (found := next((p for p in ports if p.name in (plain, name)), None)) is None:
        raise unknown_name("input", name, [p.name for p in ports])
    return found


def _from_path(spec: str) -> Array:
    if (match := _FILE.fullmatch(spec)) is None:
        raise UsageError(f"{spec}: give @file.npy, @file.npz:key or @file.safetensors:key")
    return arrayfiles.load(match["path"], match["key"])


def _numbers(program: Program, ports: Sequence[Port], ready: Mapping[str, Array], bindings: Mapping[str, int]) -> dict[str, int]:
    """The symbols that bindings, the program's `dims` and the arrays at hand determine."""
    numbers: dict[str, int] = {**program.attrs.get("dims", {}), **bindings}
    for p in ports:
        if p.name in ready and isinstance(p.type, TensorType):
            symbols.unify(p.type, p.type.with_shape(ready[p.name].shape), numbers, f"input `{p.name}`")
    return numbers


def dtype_of(t: Type) -> DType:
    """The element type of a port. Raises UsageError for a type that cannot be given from outside."""
    if not isinstance(t, (TensorType, ScalarType, MemRefType)):
        raise UsageError(f"a value of type {t} cannot be given")
    return t.dtype


def shape_of(port: Port, numbers: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of a port, symbols replaced. Raises Violation("UnboundSymbol") when one stays open."""
    t = symbols.substitute(port.type, lambda s: numbers.get(s.name, s))
    if not isinstance(t, (TensorType, MemRefType)):
        return ()
    if left := [str(d) for d in t.shape if not isinstance(d, int)]:
        raise Violation(
            "UnboundSymbol", f"input `{port.name}` has no number for {', '.join(left)}", help="give it with --bind NAME=INT"
        )
    return tuple(d for d in t.shape if isinstance(d, int))


def fitted(port: Port, array: Array, cast: bool = False) -> Array:
    """`array` in the dtype of `port`: as it is, its raw bytes read so, or a wider one whose every value is representable.

    `cast` converts by the cast table instead. Raises UsageError; shapes are checked by the engine.
    """
    dtype = dtype_of(port.type)
    want = arrays.numpy_dtype(dtype)
    if array.dtype.newbyteorder("=") == want:
        return array.astype(want, copy=False)
    if array.dtype.kind == "V" and array.dtype.itemsize == want.itemsize and array.dtype.names is None:
        return np.ascontiguousarray(array).view(want)
    if cast and (source := _dtype_named(array.dtype.name)) is not None:
        return arrays.cast(array, source, dtype)
    unnamed = arrayfiles.widened(np.zeros((), want)).dtype  # what .npy holds this dtype as
    if unnamed != want and (array.dtype.kind == "f") == (unnamed.kind == "f") and array.dtype.kind in "fiu":
        return _exactly(port, array, dtype)
    raise UsageError(f"input `{port.name}` is {port.type}, got an array of {array.dtype}; --cast-inputs converts it")


def _dtype_named(name: str) -> DType | None:
    return next((d for d in PTIR_DTYPES if d.numpy == name), None)


def _exactly(port: Port, array: Array, dtype: DType) -> Array:
    """`array`, of a dtype that holds more, as `dtype`. Raises UsageError when a value would change."""
    narrow = arrays.narrow(arrays.widen(array), dtype)
    back, wide = arrays.widen(narrow), arrays.widen(array)
    same = (back == wide) | ((back != back) & (wide != wide))
    if not same.all():
        bad = wide[~same].flat[0]
        raise UsageError(f"input `{port.name}` is {port.type}, which cannot hold {bad}; --cast-inputs rounds it")
    return narrow


def generated(port: Port, spec: str, numbers: Mapping[str, int], position: int, seed: int) -> Array:
    """The array that a SPEC other than a file describes: a number, a list, `iota`, `random(lo,hi)`."""
    dtype = dtype_of(port.type)
    if spec.startswith("["):
        return _from_text(port, spec, dtype)
    shape = shape_of(port, numbers)
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
    stream = np.random.Generator(np.random.Philox(key=[seed % 2**64, position]))
    if dtype.is_float:
        return arrays.narrow(stream.uniform(first, last, shape), dtype)
    return arrays.narrow(stream.integers(int(ends[0]), int(ends[1]), shape), dtype)


def _from_text(port: Port, text: str, dtype: DType) -> Array:
    """The value that `text` spells, in `dtype`. Raises UsageError when it is none or `dtype` cannot hold it."""
    try:
        value = json.loads(_WORDS.sub(lambda m: _JSON_WORDS[m[0].lower()], text.strip()))
        shape = _shape(value)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"input `{port.name}`: `{text[:40]}` is no number or list of numbers") from error
    flat = list(_leaves(value))
    for x in flat:
        if not _representable(x, dtype):
            raise UsageError(f"input `{port.name}` is {port.type}, which cannot hold {json.dumps(x)}")
    if dtype.is_integer:
        made = np.array(flat, np.uint64 if dtype.max > 2**63 - 1 else np.int64)
        return arrays.narrow(made, dtype).reshape(shape) if dtype.bits != 64 else made.reshape(shape)
    return arrays.narrow(np.array(flat, np.complex128 if dtype.is_complex else np.float64), dtype).reshape(shape)


def _shape(value: Any) -> tuple[int, ...]:
    """The shape of nested lists. Raises ValueError when they are ragged or hold anything but numbers."""
    if not isinstance(value, list):
        if not isinstance(value, (int, float)):
            raise ValueError(value)
        return ()
    inner = {_shape(x) for x in value}
    if len(inner) > 1:
        raise ValueError("ragged")
    return (len(value), *(inner.pop() if inner else ()))


def _leaves(value: Any) -> Any:
    if isinstance(value, list):
        for x in value:
            yield from _leaves(x)
    else:
        yield value


def _representable(x: float, dtype: DType) -> bool:
    if dtype.kind is Kind.BOOL:
        return x in (0, 1)
    if isinstance(x, bool):
        return False
    if dtype.is_integer:
        return isinstance(x, int) and dtype.min <= x <= dtype.max
    if isinstance(x, float) and not math.isfinite(x):
        return True
    try:
        rounded = arrays.narrow(np.array(float(x), np.complex128 if dtype.is_complex else np.float64), dtype)
    except OverflowError:
        return False
    return bool(np.isfinite(arrays.widen(rounded)))
