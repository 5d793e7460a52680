"""The inputs of `ptir run`, from `NAME=SPEC`, files and random streams, as arrays that fit the program's parameters."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ptir_tools.cli.exits import unknown_name
from ptir_tools.cli.specs import dtype_of, generated, is_list, require_shape, shape_of
from ptir_tools.core import arrayfiles, arrays, symbols
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.dtypes import PTIR_DTYPES, DType
from ptir_tools.core.ir import Program
from ptir_tools.core.lazy import lazy
from ptir_tools.core.limits import LIMITS, Limits
from ptir_tools.core.types import MemRefType, TensorType, Type, memref
from ptir_tools.engines.inputs import random_inputs
from ptir_tools.engines.memory import addressed, require_memory
from ptir_tools.engines.signature import Port, entry, signature

if TYPE_CHECKING:
    import numpy as np

    from ptir_tools.core.arrays import Array
else:
    np = lazy("numpy")

_FILE = re.compile(r"@(?P<path>.*?\.(?:npy|npz|safetensors))(?::(?P<key>.*))?", re.DOTALL)


@dataclass(slots=True)
class Inputs:
    """What a command line says about inputs: `--input`, `--inputs`, `--random`, `--cast-inputs`, and bindings."""

    given: tuple[tuple[str, str], ...] = ()
    files: tuple[str, ...] = ()
    random: int | None = None
    cast: bool = False
    function: str | None = None
    bindings: Mapping[str, int] | None = None
    shapes: Mapping[str, str] | None = None  # PTO: the extents of a memref with `?`
    limits: Limits = LIMITS

    def arrays(self, program: Program) -> dict[str, Array]:
        """One array per port of `program` that is spoken of, in order of the ports.

        Raises UsageError for what does not fit, OSError for a file, Violation("UnboundSymbol") for an extent that stays open.
        """
        ports = signature(program, self.function)
        specs = self._specs(program, ports)
        known = {p.name: p for p in ports}
        files = self._from_files(known) | {n: self._from_path(known[n], s) for n, s in specs.items() if s.startswith("@")}
        ready = {p.name: fitted(p, files[p.name], self.cast) for p in ports if p.name in files}
        for position, p in enumerate(ports):
            if is_list(spec := specs.get(p.name, "")):
                ready[p.name] = generated(replace(p, type=self._shaped(p, p.type)), spec, position, 0)
        numbers = _numbers(program, ports, ready, self.bindings or {})
        lookup = symbols.lookup_in(program, numbers)
        wanted = {p.name: specs.get(p.name, "random") for p in ports if p.name in specs or self.random is not None}
        static = [replace(p, type=self._shaped(p, symbols.substitute(p.type, lookup))) for p in ports]
        require_memory(sum(_nbytes(p) for p in static if p.name in wanted and p.name not in ready), self.limits)
        for position, p in enumerate(static):
            if p.name in wanted and p.name not in ready and (wanted[p.name] != "random" or isinstance(p.type, MemRefType)):
                ready[p.name] = generated(p, wanted[p.name], position, self.random or 0)
        if "random" in wanted.values():
            drawn = random_inputs(program, self.random or 0, ready, self.function, self.bindings, self.limits)
            ready |= {n: a for n, a in drawn.items() if n in wanted}
        return {p.name: ready[p.name] for p in ports if p.name in ready}

    def _shaped(self, port: Port, t: Type) -> Type:
        """`t`, with the extents that `--shape` gives."""
        if (text := (self.shapes or {}).get(port.name)) is None:
            return t
        extents = tuple(int(n) for n in text.split(",") if n.strip().isdecimal())
        if not isinstance(t, MemRefType) or len(extents) != len(t.shape) or text.count(",") != len(extents) - 1:
            raise UsageError(f"--shape {port.name}={text} does not fit {port.text}")
        made = memref(t.dtype, extents, t.space, t.layout, t.strides, t.offset)
        require_shape(port, extents)
        return made

    def _specs(self, program: Program, ports: Sequence[Port]) -> dict[str, str]:
        """What `--input` says, by the port's name."""
        found: dict[str, str] = {}
        for name, spec in self.given:
            port = resolve(program, ports, name, self.function)
            if port.name in found:
                raise UsageError(f"input `{port.name}` is given twice")
            found[port.name] = spec.strip()
        return found

    def _from_files(self, ports: Mapping[str, Port]) -> dict[str, Array]:
        """The arrays of the files of `--inputs`, each of them an input's."""
        found: dict[str, Array] = {}

        def fits(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
            if name not in ports:
                raise unknown_name("input", name, ports)
            if name in found:
                raise UsageError(f"input `{name}` is given twice")
            self._header_fits(ports[name], shape, dtype)

        for path in self.files:
            archive = arrayfiles.Archive(path)
            for name in archive.names:
                found[name] = archive.read(name, fits)
        return found

    def _from_path(self, port: Port, spec: str) -> Array:
        if (match := _FILE.fullmatch(spec)) is None:
            raise UsageError(f"{spec}: give @file.npy, @file.npz:key or @file.safetensors:key")
        return arrayfiles.load(match["path"], match["key"], lambda _, shape, dtype: self._header_fits(port, shape, dtype))

    def _header_fits(self, port: Port, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Raise what is wrong with an array of a file before its data are read. Raises UsageError, LimitExceeded."""
        require_shape(port, shape)
        converted(port, np.empty(0, dtype), self.cast)
        require_memory(math.prod(shape) * dtype.itemsize, self.limits)


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


def _nbytes(port: Port) -> int:
    return addressed(dtype_of(port.type), shape_of(port))


def _numbers(program: Program, ports: Sequence[Port], ready: Mapping[str, Array], bindings: Mapping[str, int]) -> dict[str, int]:
    """The symbols that bindings, the program's `dims` and the arrays at hand determine."""
    numbers: dict[str, int] = {**program.attrs.get("dims", {}), **bindings}
    for p in ports:
        if p.name in ready and isinstance(p.type, TensorType):
            symbols.unify(
                p.type, p.type.with_shape(ready[p.name].shape), numbers, f"input `{p.name}`", program.dialect.codes.extent
            )
    return numbers


def fitted(port: Port, array: Array, cast: bool = False) -> Array:
    """`array` in the dtype of `port`: as it is, its raw bytes read so, or a wider one whose every value is representable.

    `cast` converts by the cast table instead. Raises UsageError.
    """
    require_shape(port, array.shape)
    return converted(port, array, cast)


def converted(port: Port, array: Array, cast: bool = False) -> Array:
    """As `fitted`, for an array of any shape."""
    dtype = dtype_of(port.type)
    want = arrays.numpy_dtype(dtype)
    if cast and array.dtype.newbyteorder("=") != want and (source := _dtype_named(array.dtype.name)) is not None:
        return arrays.cast(array, source, dtype)
    try:
        found = arrayfiles.as_dtype(array, dtype)
    except ValueError as bad:
        raise UsageError(f"input `{port.name}` is {port.text}, which cannot hold {bad}; --cast-inputs rounds it") from None
    if found is None:
        raise UsageError(f"input `{port.name}` is {port.text}, got an array of {array.dtype}; --cast-inputs converts it")
    return found


def _dtype_named(name: str) -> DType | None:
    return next((d for d in PTIR_DTYPES if d.numpy == name), None)
