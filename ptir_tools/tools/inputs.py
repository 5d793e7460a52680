"""Inputs of a run: from `NAME=SPEC`, files and random streams to arrays that fit the program's parameters.

A SPEC is `@file.npy`, `@file.npz:key`, `@file.safetensors:key`, a number, a list, `iota`, `random` or `random(lo,hi)`.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from ptir_tools.core import arrays, decimals, symbols
from ptir_tools.core.arrays import Array
from ptir_tools.core.diagnostics import UsageError, unknown_name
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import CF32, CF64, F32, F64, PTIR_DTYPES, DType, Kind
from ptir_tools.core.ir import Literal
from ptir_tools.core.lazy import lazy, np, regex
from ptir_tools.core.limits import require_memory
from ptir_tools.core.records import dataclass, replace
from ptir_tools.core.typed import TYPE_CHECKING, Any
from ptir_tools.core.types import Dim, NumericType, ShapedType, TensorType, Type, is_memory
from ptir_tools.core.violations import Violation
from ptir_tools.engines.inputs import random_array, random_inputs
from ptir_tools.engines.memory import addressed
from ptir_tools.engines.signature import Port, entry, given_extents, signature

if TYPE_CHECKING:
    import json

    from ptir_tools.core import arrayfiles
else:
    arrayfiles = lazy("ptir_tools.core.arrayfiles")
    json = lazy("json")

CONST_POOL = "const_pool"
_FILE = regex(r"@(?P<path>.*?\.(?:npy|npz|safetensors(?:\.index\.json)?))(?::(?P<key>.*))?", re.DOTALL)
_RANDOM = regex(r"random\(\s*([^,()]+)\s*,\s*([^,()]+)\s*\)")
_WORDS = regex(r"\b(?:nan|inf)\b", re.IGNORECASE)
_JSON_WORDS = {"nan": "NaN", "inf": "Infinity"}
_PAIR = regex(r"\(([^(),\[\]]+),([^(),\[\]]+)\)")  # a complex number, as text PTIR writes it


@dataclass(slots=True)
class Inputs:
    """The input options of a command line: `--input`, `--inputs`, `--random`, `--special`, `--cast-inputs`, and bindings."""

    given: tuple[tuple[str, str], ...] = ()
    files: tuple[str, ...] = ()
    random: int | None = None
    cast: bool = False
    function: str | None = None
    bindings: Mapping[str, int] | None = None
    shapes: Mapping[str, Sequence[int | None]] | None = None  # PTO: the extents of a memref with `?`
    special: bool = False
    weights: tuple[str, ...] = ()

    def arrays(self, program: Program) -> dict[str, Array]:
        """One array per port of `program` that the options give, in order of the ports. Raises UsageError for an array that
        does not fit, OSError for a file, Violation("UnboundSymbol") for an extent without a number."""
        ports = signature(program, self.function)
        specs = self._specs(program, ports)
        known = {p.name: p for p in ports}
        read = {n: a for n, a in (self._from_weights(known) | self._from_files(known)).items() if n not in specs}
        files = read | {n: self._from_path(known[n], s) for n, s in specs.items() if s.startswith("@")}
        ready = {p.name: fitted(p, files[p.name], self.cast) for p in ports if p.name in files}
        for position, p in enumerate(ports):
            if is_list(spec := specs.get(p.name, "")):
                ready[p.name] = generated(replace(p, type=self._shaped(p, p.type)), spec, position, 0)
        shaped = {p.name: self._shaped(p, p.type) for p in ports if p.name in (self.shapes or ())}
        shaped |= {
            p.name: p.type.with_shape(ready[p.name].shape) for p in ports if p.name in ready and isinstance(p.type, ShapedType)
        }
        numbers = _numbers(program, ports, shaped, self.bindings or {})
        main, code = entry(program, self.function), program.dialect.codes.extent
        symbols.derive(main, numbers, code)
        ready = given_extents(ports, numbers, {*(self.bindings or ()), *main.attrs.get(symbols.DERIVED, ())}) | ready
        lookup = symbols.lookup_in(program, numbers)
        wanted = {p.name: specs.get(p.name, "random") for p in ports if p.name in specs or self.random is not None}
        static = [replace(p, type=self._shaped(p, symbols.substitute(p.type, lookup))) for p in ports]
        require_memory(sum(_nbytes(p) for p in static if p.name in wanted and p.name not in ready))
        for position, p in enumerate(static):
            if p.name in wanted and p.name not in ready and (wanted[p.name] != "random" or is_memory(p.type)):
                ready[p.name] = generated(p, wanted[p.name], position, self.random or 0)
        if "random" in wanted.values():
            drawn = random_inputs(program, self.random or 0, ready, self.function, self.bindings, self.special)
            ready |= {n: a for n, a in drawn.items() if n in wanted}
        return {p.name: ready[p.name] for p in ports if p.name in ready}

    def _shaped(self, port: Port, t: Type) -> Type:
        """`t`, with the extents that `--shape` gives."""
        given = (self.shapes or {}).get(port.name)
        if given is None or not (isinstance(t, ShapedType) and t.is_memory):
            return t  # other extents are replaced when the program is read
        if len(given) != len(t.shape):
            text = ",".join("*" if n is None else str(n) for n in given)
            raise UsageError(f"--shape {port.name}={text} does not fit {port.text}")
        extents = tuple(d if n is None else n for d, n in zip(t.shape, given, strict=True))
        result = t.with_shape(extents)
        require_shape(port, extents)
        return result

    def _specs(self, program: Program, ports: Sequence[Port]) -> dict[str, str]:
        """The SPECs of `--input`, by port name."""
        specs: dict[str, str] = {}
        for name, spec in self.given:
            port = resolve(program, ports, name, self.function)
            if port.name in specs:
                raise UsageError(f"input `{port.name}` is given twice")
            specs[port.name] = spec.strip()
        return specs

    def _from_files(self, ports: Mapping[str, Port]) -> dict[str, Array]:
        """The arrays of the files of `--inputs`, each of them an input's."""
        read: dict[str, Array] = {}

        def fits(name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
            if name not in ports:
                raise unknown_name("input", name, ports)
            if name in read:
                raise UsageError(f"input `{name}` is given twice")
            self._header_fits(ports[name], shape, dtype)

        for path in self.files:
            archive = arrayfiles.Archive(path)
            for name in archive.names:
                read[name] = archive.read(name, fits)
        return read

    def _from_weights(self, ports: Mapping[str, Port]) -> dict[str, Array]:
        """The arrays of the files of `--weights` with the name of an input; the first file that has one is used."""
        given: dict[str, Array] = {}
        for path in self.weights:
            archive = arrayfiles.Archive(path)
            for name in (n for n in archive.names if n in ports and n not in given):
                given[name] = archive.read(name, lambda name, shape, dtype: self._header_fits(ports[name], shape, dtype))
        return given

    def _from_path(self, port: Port, spec: str) -> Array:
        if (match := _FILE.fullmatch(spec)) is None:
            raise UsageError(f"{spec}: give @file.npy, @file.npz:key or @file.safetensors:key")
        return arrayfiles.load(match["path"], match["key"], lambda _, shape, dtype: self._header_fits(port, shape, dtype))

    def _header_fits(self, port: Port, shape: tuple[int, ...], dtype: np.dtype) -> None:
        """Check the header of an array in a file before its data are read. Raises UsageError, LimitExceeded."""
        require_shape(port, shape)
        converted(port, np.empty(0, dtype), self.cast)
        require_memory(math.prod(shape) * dtype.itemsize)


def resolve(program: Program, ports: Sequence[Port], name: str, function: str | None) -> Port:
    """The port that `name` means: a position when it is all digits, `%3` a value's name, else the port's name."""
    if name.isdecimal():
        if int(name) >= len(ports):
            raise UsageError(f"no input {name}, there are {len(ports)}")
        return ports[int(name)]
    plain = name.removeprefix("%")
    params = [p.name for p in entry(program, function).params]
    spelled = dict(zip(params, ports, strict=True)) if len(params) == len(ports) else {}  # as text PTIR has them
    if name.startswith("%") and plain in spelled:
        return spelled[plain]
    if (result := next((p for p in ports if p.name in (plain, name)), spelled.get(plain))) is None:
        raise unknown_name("input", name, [p.name for p in ports])
    return result


def _nbytes(port: Port) -> int:
    return addressed(dtype_of(port.type), shape_of(port))


def _numbers(program: Program, ports: Sequence[Port], shaped: Mapping[str, Type], bindings: Mapping[str, int]) -> dict[str, int]:
    """The symbols that bindings, the program's `dims` and the types of some ports, by name and with numbers, determine."""
    numbers: dict[str, int] = {**program.attrs.get("dims", {}), **bindings}
    for p in ports:
        if p.name in shaped:
            symbols.unify(p.type, shaped[p.name], numbers, f"input `{p.name}`", program.dialect.codes.extent)
    return numbers


def fitted(port: Port, array: Array, cast: bool = False) -> Array:
    """`array` in the dtype of `port`: unchanged, its raw bytes reinterpreted, or narrowed if every value is representable.

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
        result = arrayfiles.as_dtype(array, dtype)
    except ValueError as bad:
        raise UsageError(f"input `{port.name}` is {port.text}, which cannot hold {bad}; --cast-inputs rounds it") from None
    if result is None:
        raise UsageError(f"input `{port.name}` is {port.text}, got an array of {array.dtype}; --cast-inputs converts it")
    return result


def _dtype_named(name: str) -> DType | None:
    return next((d for d in PTIR_DTYPES if d.numpy == name), None)


def dtype_of(t: Type) -> DType:
    """The element type of a port. Raises UsageError for a type that a caller cannot give."""
    if not isinstance(t, NumericType):
        raise UsageError(f"a value of type {t} cannot be given")
    return t.dtype


def shape_of(port: Port) -> tuple[int, ...]:
    """The shape of a port. Raises Violation("UnboundSymbol") when an extent is not a number."""
    t = port.type
    if not isinstance(t, ShapedType):
        return ()
    if left := [str(d) for d in t.shape if not isinstance(d, int)]:
        message = f"input `{port.name}` has no number for {', '.join(left)}"
        way = "--bind NAME=INT" if isinstance(t, TensorType) else f"--shape {port.name}=INT,…"
        raise Violation("UnboundSymbol", message, help=f"give it with {way}", at=f"%{port.name}:", loc=port.loc)
    return tuple(d for d in t.shape if isinstance(d, int))


def _fits(port: Port, dtype: str, shape: tuple[int, ...], kind: np.dtype) -> None:
    require_shape(port, shape)


def require_shape(port: Port, shape: tuple[Dim, ...]) -> None:
    """Raise UsageError when an array of `shape` cannot be `port`. A symbol takes any extent."""
    wanted = port.type.shape if isinstance(port.type, ShapedType) else ()
    if len(wanted) != len(shape) or any(isinstance(d, int) and d != n for d, n in zip(wanted, shape, strict=True)):
        raise UsageError(f"input `{port.name}` is {port.text}, got shape {list(shape)}")


def is_list(spec: str) -> bool:
    """Whether a SPEC is a list of numbers."""
    return spec.startswith("[")


def generated(port: Port, spec: str, position: int, seed: int) -> Array:
    """The array of a SPEC that is not a file: a number, a list, `iota`, `random`, `random(lo,hi)`. Only a list has its own
    shape, which symbolic extents take."""
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


def _file_meant(port: Port, text: str) -> str | None:
    """The help for a text that looks like a file name."""
    named = text.partition(":")[0].endswith((".npy", ".npz", ".safetensors")) or os.path.exists(text)
    return f"an array in a file is given with @: --input {port.name}=@{text}" if named else None


def _from_text(port: Port, text: str, dtype: DType) -> Array:
    """The value of `text` in `dtype`. Raises UsageError for an invalid text, or a value that `dtype` cannot represent."""
    try:
        words = _WORDS.sub(lambda m: _JSON_WORDS[m[0].lower()], text.strip())
        value = json.loads(_PAIR.sub(r'{"re": \1, "im": \2}', words), parse_float=decimals.read, object_hook=_complex)
        shape = _shape(value)
    except OverflowError as error:
        raise UsageError(f"input `{port.name}` is {port.text}, which cannot hold {text[:40]}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"input `{port.name}`: `{text[:40]}` is not a number or list of numbers", _file_meant(port, text)
        ) from error
    flat = list(_leaves(value))
    for x in flat:
        if not _representable(x, dtype):
            raise UsageError(f"input `{port.name}` is {port.text}, which cannot hold {str(x).lower()}")
    if dtype.is_integer:
        result = np.array(flat, np.uint64 if dtype.max > 2**63 - 1 else np.int64)
        return arrays.narrow(result, dtype).reshape(shape) if dtype.bits != 64 else result.reshape(shape)
    if dtype.is_complex:
        return arrays.narrow(np.array(flat, np.complex128), dtype).reshape(shape)
    exact = flat if dtype is F64 else [decimals.narrowing(x) for x in flat]
    return arrays.narrow(np.array(exact, np.float64), dtype).reshape(shape)


def _complex(pair: dict[str, float]) -> complex:
    """The number of a `(re, im)`. Raises ValueError for any other object."""
    parts = list(pair.values())
    if list(pair) != ["re", "im"] or not all(isinstance(x, (int, float)) for x in parts):
        raise ValueError(pair)
    return complex(*parts)


def _shape(value: object) -> tuple[int, ...]:
    """The shape of nested lists. Raises ValueError if they are ragged or contain anything but numbers."""
    if not isinstance(value, list):
        if not isinstance(value, (int, float, complex)):
            raise ValueError(value)
        return ()
    inner = {_shape(x) for x in value}
    if len(inner) > 1:
        raise ValueError("ragged")
    return (len(value), *(inner.pop() if inner else ()))


def _leaves(value: object) -> Iterator[Any]:
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


def constants(path: str, program: Program) -> dict[str, Literal]:
    """The values of INPUTs in storage "const_pool" of the Tiny graph `program` that the file holds.

    Raises OSError, and UsageError for one that does not fit.
    """
    archive, storage = arrayfiles.Archive(path), program.main.attrs.get("storage", {})
    pool = {p.name for p in program.main.params if storage.get(p.name) == CONST_POOL}
    literals = {}
    for port, p in zip(signature(program), program.main.params, strict=True):
        if p.name in pool and port.name in archive.names and isinstance(port.type, TensorType):
            array = archive.read(port.name, partial(_fits, port))
            literals[port.name] = arrays.to_literal(fitted(port, array), port.type)
    return literals
