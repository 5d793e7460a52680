"""Arrays in files: .npy, .npz and .safetensors, read and written without pickle and byte-stable."""

from __future__ import annotations

import contextlib
import errno
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from ptir_tools.core.arrays import Array, narrow, numpy_dtype, widen
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
from ptir_tools.core.files import open_data, require_regular
from ptir_tools.core.lazy import lazy, ml_dtypes, np
from ptir_tools.core.limits import LimitExceeded, require_memory
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.typed import IO, TYPE_CHECKING
from ptir_tools.core.violations import Violation

if TYPE_CHECKING:
    import json
    import zipfile
    from urllib import parse
else:
    json = lazy("json")
    zipfile = lazy("zipfile")
    parse = lazy("urllib.parse")

# Checks key, shape and dtype of an array before its data are read; raises if they do not fit.
Fits = Callable[[str, tuple[int, ...], "np.dtype"], None]
INDEX = ".safetensors.index.json"  # an index of arrays by file, as Hugging Face writes it for large models
ARCHIVES = (".npz", ".safetensors", INDEX)
SUFFIXES = (".npy", *ARCHIVES)
_HEADER = 100_000  # bytes of a .npy header, at most
_SAFE_HEADER = 1 << 24  # bytes of a .safetensors header or of an index, at most
_VERSIONS = {(1, 0): 2, (2, 0): 4, (3, 0): 4}  # versions of .npy, and the bytes of the header's length in each
_PIECE = 1 << 20  # bytes that are unpacked at once
_ALIGNED = 8  # bytes of the length of a .safetensors header, and the alignment of its data
# The names of dtypes in .safetensors.
SAFETENSORS = {
    I1: "BOOL", SI8: "I8", SI16: "I16", SI32: "I32", SI64: "I64", UI8: "U8", UI16: "U16", UI32: "U32", UI64: "U64",
    FP8_E4M3: "F8_E4M3", FP8_E5M2: "F8_E5M2", BF16: "BF16", F16: "F16", F32: "F32", F64: "F64", CF32: "C64",
}  # fmt: skip
_SAFE_DTYPES = {name: dtype.numpy for dtype, name in SAFETENSORS.items()}
# Dtypes that .npy lacks, and wider ones with all their values.
_WIDER = {
    "bfloat16": "float32", "float8_e4m3fn": "float32", "float8_e5m2": "float32", "int4": "int8", "uint4": "uint8",
}  # fmt: skip


def load(path: str, key: str | None = None, fits: Fits | None = None) -> Array:
    """The array in a .npy file, or `key` of a .npz or .safetensors file (which may be left out when there is one alone).

    `fits` gets the header before the data are read. A dtype that .npy lacks is returned as raw bytes (`V2` for bf16). Raises
    UsageError for a missing key or an unknown suffix, and OSError for a file that cannot be read or is damaged.
    """
    if path.endswith(".npy"):
        with open_data(path) as file, _damaged(path):
            return _read_npy(file, os.fstat(file.fileno()).st_size, fits, key or "")
    archive = Archive(path)
    names = list(archive.names)
    if key is None and len(names) == 1:
        key = names[0]
    if key is None or key not in names:
        known = ", ".join(names[:20]) or "nothing"
        raise UsageError(
            f"{path} has no `{key}` (it holds: {known})" if key is not None else f"{path} holds {known}; name one: {path}:KEY"
        )
    return archive.read(key, fits)


def load_all(path: str, fits: Fits | None = None) -> dict[str, Array]:
    """All arrays of a .npz or .safetensors file by key. Raises UsageError and OSError as `load`."""
    archive = Archive(path)
    return {name: archive.read(name, fits) for name in archive.names}


class Archive:
    """A .npz or .safetensors file, or an index of several, whose table of contents is read once. The files of an index are in its
    folder. Raises UsageError for another suffix, OSError."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.members: dict[str, zipfile.ZipInfo] = {}
        self.entries: dict[str, Entry] = {}
        self.shards: dict[str, str] = {}  # by key, the paths of the files of an index
        self.opened: dict[str, Archive] = {}
        if path.endswith(INDEX):
            with open_data(path) as file, _damaged(path):
                self.shards = _shards(file.read(_SAFE_HEADER + 1), os.path.dirname(path))
        elif path.endswith(".npz"):
            with _damaged(path):
                require_regular(path)
                self.zip = zipfile.ZipFile(path)
                self.members = {m.filename.removesuffix(".npy"): m for m in self.zip.infolist()}
        elif path.endswith(".safetensors"):
            with open_data(path) as file, _damaged(path):
                self.data = os.fstat(file.fileno()).st_size
                head = file.read(_ALIGNED)
                if _header_size(head) > _SAFE_HEADER:
                    raise ValueError(f"its header has {_header_size(head)} bytes, more than {_SAFE_HEADER}")
                if not len(head) == _ALIGNED <= _ALIGNED + _header_size(head) <= self.data:
                    raise ValueError("its header is cut short")
                self.start = _ALIGNED + _header_size(head)
                self.entries = _entries(_header(head + file.read(_header_size(head))), self.data - self.start)
        else:
            raise UsageError(f"{path}: arrays are read from {', '.join(SUFFIXES)} files")
        self.names = dict.fromkeys((*self.members, *self.entries, *self.shards)).keys()
        """The keys of the arrays, in the order of the file; asked for by every reference to one."""

    def read(self, key: str, fits: Fits | None = None) -> Array:
        """The array `key`, after `fits` was called with its header. Raises KeyError for an unknown key, OSError."""
        with _damaged(self.path):
            if key in self.shards:
                return self.shard(key).read(key, fits)
            if key in self.members:
                with self.zip.open(self.members[key]) as member:
                    return _read_npy(member, self.members[key].file_size, fits, key)
            with open_data(self.path) as file:
                return self._safe(file, key, fits)

    def shard(self, key: str) -> Archive:
        """The file of an index that has the array `key`. Raises ValueError where it has no such array, OSError."""
        path = self.shards[key]
        if (result := self.opened.get(path)) is None:
            result = self.opened[path] = Archive(path)
        if key not in result.names:
            raise ValueError(f"{os.path.basename(path)} has no `{key}`")
        return result

    def _safe(self, file: IO[bytes], key: str, fits: Fits | None) -> Array:
        entry = self.entries[key]
        dtype = _safe_dtype(entry.dtype)
        want = _nbytes(entry.shape, dtype)
        if fits is not None:
            fits(key, entry.shape, dtype)
        if entry.end - entry.start != want:
            raise ValueError(f"`{key}` has the bytes {entry.start} to {entry.end}, its type {want}")
        require_memory(want)
        file.seek(self.start + entry.start)
        return np.frombuffer(file.read(want), dtype).reshape(entry.shape)


def save(path: str, file: IO[bytes], arrays: Mapping[str, Array]) -> None:
    """Write `arrays` in the format that the suffix of `path` names; .npy takes a single one.

    .npy and .npz widen bf16, fp8 and 4-bit exactly; .safetensors keeps bf16 and fp8. Raises UsageError for an array that the
    format cannot hold.
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
                with archive.open(zipfile.ZipInfo(f"{member_name(name)}.npy"), "w", force_zip64=True) as member:
                    _write_npy(member, widened(array))
    else:
        raise UsageError(f"{path}: arrays are written to {', '.join(SUFFIXES)} files")


def member_name(name: str) -> str:
    """The name of an array in an archive. One that would lead out of the folder where the archive is unpacked, or has control
    characters, is escaped as in a URL."""
    if name.isprintable() and "\\" not in name and ".." not in name.split("/"):
        return name
    return parse.quote(name, safe="")


def widened(array: Array) -> Array:
    """`array` in a dtype that .npy can name, every value kept."""
    wider = _WIDER.get(array.dtype.name)
    return array if wider is None else array.astype(wider)


def as_dtype(array: Array, dtype: DType) -> Array | None:
    """`array`, read from a file, in `dtype`: unchanged, its raw bytes reinterpreted, or narrowed if .npy lacks the dtype. None
    if it has another dtype. Raises ValueError, naming the value, for one that `dtype` cannot represent."""
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
    result: bytes = lazy("safetensors.numpy").save({name: np.require(a, requirements="C") for name, a in ready.items()})
    header = _header(result)
    text = json.dumps({name: header[name] for name in ready}, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    return len(text).to_bytes(_ALIGNED, "little"), text, memoryview(result)[_ALIGNED + _header_size(result) :]


def _shards(data: bytes, folder: str) -> dict[str, str]:
    """The paths of the files of an index by the keys of their arrays. Raises ValueError."""
    if len(data) > _SAFE_HEADER:
        raise ValueError(f"it has more than {_SAFE_HEADER} bytes")
    result: object = json.loads(data, object_pairs_hook=_once)
    table = result.get("weight_map") if isinstance(result, dict) else None
    if not isinstance(table, dict):
        raise ValueError("it has no table `weight_map`")
    for key, name in table.items():
        if not isinstance(name, str) or os.path.basename(name) != name or not name.endswith(".safetensors"):
            raise ValueError(f"the file of `{key}` is not a .safetensors file in its folder")
    return {key: os.path.join(folder, name) for key, name in table.items()}


def _header_size(data: bytes) -> int:
    return int.from_bytes(data[:_ALIGNED], "little")


def _header(data: bytes) -> dict[str, object]:
    """The header of a .safetensors file, after the bytes of its length: dtype, shape and offsets by name, in file order."""
    result: object = json.loads(data[_ALIGNED : _ALIGNED + _header_size(data)], object_pairs_hook=_once)
    if not isinstance(result, dict):
        raise ValueError("its header is not a table")
    return result


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A JSON object. Raises ValueError for a repeated key."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("its header repeats a key")
    return members


class Entry(NamedTuple):
    """An array of a .safetensors file: its dtype as the file names it, and its bytes from `start` to `end`."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def _entries(header: Mapping[str, object], size: int) -> dict[str, Entry]:
    """The arrays of a .safetensors header. Raises ValueError for a malformed entry, or one that shares some of the `size`
    bytes with another."""
    entries: dict[str, Entry] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        known = entry if isinstance(entry, dict) else {}
        dtype, shape, offsets = known.get("dtype"), known.get("shape"), known.get("data_offsets")
        if not (isinstance(dtype, str) and isinstance(shape, list) and isinstance(offsets, list) and len(offsets) == 2):
            raise ValueError(f"the header has no usable entry for `{name}`")
        if not all(type(n) is int for n in (*shape, *offsets)):
            raise ValueError(f"the header has no usable entry for `{name}`")
        start, end = offsets
        if not 0 <= start <= end <= size:
            raise ValueError(f"`{name}` has the bytes {start} to {end} of {size}")
        entries[name] = Entry(dtype, tuple(shape), start, end)
    places = sorted((entry.start, entry.end, name) for name, entry in entries.items() if entry.start != entry.end)
    for (_, end, one), (start, _, other) in pairwise(places):
        if start < end:
            raise ValueError(f"`{one}` and `{other}` share bytes")
    return entries


def _safe_dtype(safe: str) -> np.dtype:
    name = _SAFE_DTYPES.get(safe)
    if name is None:
        raise ValueError(f"unknown dtype {safe}")
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def _write_npy(file: IO[bytes], array: Array) -> None:
    np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)


def _read_npy(file: IO[bytes], size: int, fits: Fits | None, key: str) -> Array:
    """An array of a .npy stream of `size` bytes. Its header is first checked against that size and by `fits`."""
    shape, fortran, dtype = _npy_header(file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    want = _nbytes(shape, dtype)
    if want > size:
        raise ValueError(f"its header says {want} bytes, the file has {size}")
    if fits is not None:
        fits(key, shape, dtype)
    require_memory(want)
    data, filled = np.empty(want, np.uint8), 0
    while filled < want and (piece := file.read(min(want - filled, _PIECE))):
        data[filled : filled + len(piece)] = np.frombuffer(piece, np.uint8)
        filled += len(piece)
    if filled != want:
        raise ValueError(f"it ends after {filled} of {want} bytes")
    data.flags.writeable = False
    return np.frombuffer(data.data, dtype).reshape(shape, order="F" if fortran else "C")


def _npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether the array is in column-major order, and dtype. Raises ValueError."""
    version = np.lib.format.read_magic(file)
    if version not in _VERSIONS:
        raise ValueError(f"its format is version {'.'.join(map(str, version))}")
    length = file.read(_VERSIONS[version])
    size = int.from_bytes(length, "little")
    if size > _HEADER:
        raise ValueError(f"its header has {size} bytes, more than {_HEADER}")
    if len(text := file.read(size)) != size:
        raise ValueError("its header is cut short")
    first = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        shape, fortran, dtype = first(io.BytesIO(length + text), max_header_size=_HEADER)
    except Exception:
        raise ValueError("its header is malformed") from None
    return tuple(map(int, shape)), fortran, dtype


def _nbytes(shape: Sequence[int], dtype: np.dtype) -> int:
    """The bytes of an array. Raises ValueError for a negative extent."""
    count = 1
    for n in shape:
        count *= int(n)
    if min(shape, default=0) < 0:
        raise ValueError(f"its shape is {list(shape)}")
    return count * dtype.itemsize


@contextlib.contextmanager
def _damaged(path: str) -> Iterator[None]:
    """Turns the errors of readers about malformed bytes into an OSError that names the file."""
    try:
        yield
    except (OSError, UsageError, Violation, LimitExceeded):
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise OSError(errno.EINVAL, f"not a readable {os.path.splitext(path)[1]} file: {reason}", path) from error
