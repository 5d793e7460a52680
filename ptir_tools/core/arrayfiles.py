"""Arrays in files: .npy, .npz and .safetensors, read and written without pickle and byte-stable."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any

from ptir_tools.core.arrays import narrow, numpy_dtype, widen
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.dtypes import (
    BF16,
    CF32,
    F16,
    F32,
    F64,
    FP8_E4M3,
    FP8_E5M2,
    I1,
    SI8,
    SI16,
    SI32,
    SI64,
    UI8,
    UI16,
    UI32,
    UI64,
    DType,
)  # fmt: skip
from ptir_tools.core.lazy import lazy

if TYPE_CHECKING:
    import zipfile

    import ml_dtypes
    import numpy as np
    import safetensors

    from ptir_tools.core.arrays import Array
else:
    ml_dtypes = lazy("ml_dtypes")
    np = lazy("numpy")
    safetensors = lazy("safetensors")
    zipfile = lazy("zipfile")

SUFFIXES = (".npy", ".npz", ".safetensors")
_HEADER = 100_000  # bytes of a .npy header that are read
_ALIGNED = 8  # the length of a .safetensors header is so many bytes, and data begin at a multiple of it
# What .safetensors calls the dtypes that it has.
SAFETENSORS = {
    I1: "BOOL", SI8: "I8", SI16: "I16", SI32: "I32", SI64: "I64", UI8: "U8", UI16: "U16", UI32: "U32", UI64: "U64",
    FP8_E4M3: "F8_E4M3", FP8_E5M2: "F8_E5M2", BF16: "BF16", F16: "F16", F32: "F32", F64: "F64", CF32: "C64",
}  # fmt: skip
_SAFE_DTYPES = {name: dtype.numpy for dtype, name in SAFETENSORS.items()}
# What .npy has no name for, and the dtype that holds all its values.
_WIDER = {
    "bfloat16": "float32", "float8_e4m3fn": "float32", "float8_e5m2": "float32", "int4": "int8", "uint4": "uint8",
}  # fmt: skip


def load(path: str, key: str | None = None) -> Array:
    """The array in a .npy file, or `key` of a .npz or .safetensors file (which may be left out when there is one alone).

    What .npy cannot name comes as raw bytes (`V2` for bf16). Raises UsageError for a missing key or an unknown suffix, and
    OSError for a file that cannot be read or is damaged.
    """
    if path.endswith(".npy"):
        with open(path, "rb") as file, _damaged(path):
            return _read_npy(file, os.fstat(file.fileno()).st_size)
    found = load_all(path, key)
    if key is None and len(found) == 1:
        return next(iter(found.values()))
    if key is None or key not in found:
        known = ", ".join(keys(path)[:20]) or "nothing"
        raise UsageError(
            f"{path} has no `{key}` (it holds: {known})" if key is not None else f"{path} holds {known}; name one: {path}:KEY"
        )
    return found[key]


def load_all(path: str, only: str | None = None) -> dict[str, Array]:
    """All arrays of a .npz or .safetensors file by key (or `only` that one). Raises UsageError and OSError as `load`."""
    if path.endswith(".npz"):
        with open(path, "rb") as file, _damaged(path), zipfile.ZipFile(file) as archive:
            members = [m for m in archive.infolist() if only is None or m.filename.removesuffix(".npy") == only]
            return {m.filename.removesuffix(".npy"): _read_npy(archive.open(m), m.file_size) for m in members}
    if path.endswith(".safetensors"):
        with open(path, "rb") as file:
            data = file.read()
        with _damaged(path):
            found = dict(_deserialize(data))
            return {name: _from_safe(found[name]) for name in _header(data) if name in found and only in (None, name)}
    raise UsageError(f"{path}: arrays are read from {', '.join(SUFFIXES)} files")


def keys(path: str) -> list[str]:
    """The keys of a .npz or .safetensors file, in its order."""
    return list(load_all(path))


def save(path: str, file: IO[bytes], arrays: Mapping[str, Array]) -> None:
    """Write `arrays` in the format that the suffix of `path` names; .npy takes a single one.

    .npy and .npz widen bf16, fp8 and 4-bit exactly; .safetensors keeps bf16 and fp8. Raises UsageError for what the format
    cannot hold.
    """
    if path.endswith(".npy"):
        if len(arrays) != 1:
            raise UsageError(f"{path}: a .npy file takes one array, there are {len(arrays)}; write .npz or .safetensors")
        _write_npy(file, widened(next(iter(arrays.values()))))
    elif path.endswith(".safetensors"):
        file.writelines(_safe_bytes(path, arrays))
    elif path.endswith(".npz"):
        with zipfile.ZipFile(file, "w") as archive:
            for name, array in arrays.items():
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                    _write_npy(member, widened(array))
    else:
        raise UsageError(f"{path}: arrays are written to {', '.join(SUFFIXES)} files")


def widened(array: Array) -> Array:
    """`array` in a dtype that .npy can name, every value kept."""
    wider = _WIDER.get(array.dtype.name)
    return array if wider is None else array.astype(wider)


def as_dtype(array: Array, dtype: DType) -> Array | None:
    """`array`, as a file gave it, in `dtype`: as it is, its raw bytes read so, or narrowed where .npy cannot name the dtype.

    None when it is of another dtype. Raises ValueError, naming the value, for one that `dtype` does not hold.
    """
    want = numpy_dtype(dtype)
    if array.dtype.newbyteorder("=") == want:
        return array.astype(want, copy=False)
    if array.dtype.kind == "V" and array.dtype.itemsize == want.itemsize and array.dtype.names is None:
        return np.ascontiguousarray(array).view(want)
    unnamed = widened(np.zeros((), want)).dtype
    if unnamed == want or (array.dtype.kind == "f") != (unnamed.kind == "f") or array.dtype.kind not in "fiu":
        return None
    wide = widen(array)
    held = narrow(wide, dtype)
    back = widen(held)
    same = (back == wide) | ((back != back) & (wide != wide))
    if not same.all():
        raise ValueError(wide[~same].flat[0])
    return held


def _safe_bytes(path: str, arrays: Mapping[str, Array]) -> tuple[bytes | memoryview, ...]:
    """The parts of a .safetensors file. Its header has the order of `arrays`; the data are sorted so that all are aligned."""
    ready = {name: widened(a) if a.dtype.name in ("int4", "uint4") else a for name, a in arrays.items()}
    for name, a in ready.items():
        if a.dtype.name not in _SAFE_DTYPES.values():
            raise UsageError(f"{path}: .safetensors cannot hold {name}, which is {a.dtype.name}")
    made: bytes = lazy("safetensors.numpy").save({name: np.require(a, requirements="C") for name, a in ready.items()})
    header = _header(made)
    text = json.dumps({name: header[name] for name in ready}, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    return len(text).to_bytes(_ALIGNED, "little"), text, memoryview(made)[_ALIGNED + _header_size(made) :]


def _header_size(data: bytes) -> int:
    return int.from_bytes(data[:_ALIGNED], "little")


def _header(data: bytes) -> dict[str, Any]:
    """The header of a .safetensors file, whose first bytes tell its length: name to dtype, shape and place, in its order."""
    found: dict[str, Any] = json.loads(data[_ALIGNED : _ALIGNED + _header_size(data)])
    return found


def _deserialize(data: bytes) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = safetensors.deserialize(data)  # type: ignore[no-untyped-call]
    return found


def _from_safe(t: Mapping[str, Any]) -> Array:
    name = _SAFE_DTYPES.get(t["dtype"])
    if name is None:
        raise ValueError(f"unknown dtype {t['dtype']}")
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    return np.frombuffer(bytes(t["data"]), dtype).reshape(t["shape"])


def _write_npy(file: IO[bytes], array: Array) -> None:
    np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)


def _read_npy(file: IO[bytes], size: int) -> Array:
    """An array of a .npy stream of `size` bytes, after its header was held to that size."""
    version = np.lib.format.read_magic(file)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = header(file, max_header_size=_HEADER)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    count = 1
    for n in shape:
        count *= int(n)
    want = count * dtype.itemsize
    if min(shape, default=0) < 0 or want > size:
        raise ValueError(f"its header tells of {want} bytes, the file has {size}")
    data = file.read(want)
    if len(data) != want:
        raise ValueError(f"it ends after {len(data)} of {want} bytes")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")


@contextlib.contextmanager
def _damaged(path: str) -> Iterator[None]:
    """What readers raise about bytes that make no sense, as an OSError that names the file."""
    try:
        yield
    except (OSError, UsageError):
        raise
    except Exception as error:
        raise OSError(errno.EINVAL, f"not a readable {os.path.splitext(path)[1]} file: {error}", path) from error
