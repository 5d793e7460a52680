"""Recognition of other projects' files by their content: formats without a reader here, and ONNX and StableHLO, which have one.

A format that gets a reader loses its row in `FOREIGN`; its `FormatEntry` recognizes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ptir_tools.core.lazy import regex
from ptir_tools.core.records import NamedTuple


class Foreign(NamedTuple):
    """A format that has no reader here: its usual name, whether a file is in it, and what the user can do.

    `begins` gets the first bytes of the file, at most `FIRST_BYTES`, and the size of the whole.
    """

    name: str
    begins: Callable[[bytes, int], bool]
    help: str


FIRST_BYTES = 1 << 14
_VARINT, _LENGTH, _FIXED32, _FIXED64 = 0, 2, 5, 1  # wire types of protobuf
_MODEL_FIELDS = {1: _VARINT, 2: _LENGTH, 3: _LENGTH, 4: _LENGTH, 5: _VARINT, 6: _LENGTH, 7: _LENGTH, 8: _LENGTH, 14: _LENGTH,
                 20: _LENGTH, 25: _LENGTH, 26: _LENGTH}  # fmt: skip


def _magic(*marks: bytes, at: int = 0) -> Callable[[bytes, int], bool]:
    return lambda data, size: data[at:].startswith(marks)


def _text(pattern: str) -> Callable[[bytes, int], bool]:
    """What begins so after blanks and comments of any kind."""
    found = rf"(?:\s|\ufeff|//[^\n]*(?:\n|\Z)|[#;](?!\w*loc\b|map\d*\b)[^\n]*(?:\n|\Z))*(?:{pattern})"
    return lambda data, size: re.match(found, data.decode("utf-8", "replace")) is not None


_MLIR = r"(?:\s|\ufeff|//[^\n]*(?:\n|\Z))*(?:module\b|func\.func\b|#\w+\s*=|!\w+\s*=|\"builtin\.module\"|%\S+\s*=\s*\"?(?:{})\.)"


def _holds(words: str) -> Callable[[bytes, int], bool]:
    """MLIR text with an op of one of these dialects, and none of PTO."""

    def begins(data: bytes, size: int) -> bool:
        text = data.decode("utf-8", "replace")
        used = re.search(rf"(?:^|[\s\"(=@])(?:{words})\.\w", text) and not re.search(r"\bpto\.", text)
        return bool(used) and re.match(_MLIR.format(words), text) is not None

    return begins


_MLIR_BEGINS = regex(r'[!#][\w.$]+\s*=|module\b|func\.func\b|"?builtin\.module\b|%[\w$.-][^=\n]*=\s*"?(?:stablehlo|chlo)\.')
_MLIR_OP = regex(r'(?:^|=|\{)[^\S\n]*"?(?!(?:func|builtin|module|jax|sdy)\.)([a-z]\w*)\.(?![\w.]*\s*=)[a-z]', re.MULTILINE)
_LOOKED_AT = 1 << 16  # characters, which have the first op


def is_stablehlo(text: str, at: int) -> bool:
    """Whether a text is MLIR whose first op is of StableHLO or of VHLO, its versioned form, or nearly so called. MLIR without ops
    counts if it has functions on tensors."""
    if _MLIR_BEGINS.match(text, at) is None:
        return False
    first = _MLIR_OP.search(text, at, at + _LOOKED_AT)
    if first is None:
        return "tensor<" in text[at : at + _LOOKED_AT]
    return first[1] in ("chlo", "vhlo", "hlo") or first[1].startswith("stable")


def is_onnx(data: bytes) -> bool:
    """Whether `data` is an ONNX model, a ModelProto: its known fields in a row, the IR version or the producer first.

    A graph that is cut short is left to the reader, which says so.
    """
    data, size = data[:FIRST_BYTES], len(data)
    at, seen = 0, list[int]()
    while at < len(data) and 7 not in seen:
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if at < 0 or _MODEL_FIELDS.get(number) != wire:
            return False
        seen.append(number)
        value, at = _varint(data, at)
        cut_short = wire == _LENGTH and value > size - at
        if at < 0 or (cut_short and number != 7):
            return False
        at += value if wire == _LENGTH else 0
    return bool(seen) and seen[0] in (1, 2, 3) and (7 in seen or (8 in seen and at <= size))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(a number, where it ends); the place is negative when there is none."""
    value = shift = 0
    while at < len(data) and shift < 64:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at
    return 0, -1


def _safetensors(data: bytes, size: int) -> bool:
    return len(data) > 9 and int.from_bytes(data[:8], "little") <= size - 8 and data[8:9] == b"{"


def _zipped(*names: bytes) -> Callable[[bytes, int], bool]:
    """A zip archive in which the first files are called so."""
    return lambda data, size: data.startswith(b"PK\x03\x04") and any(name in data for name in names)


_WEIGHTS = "it holds arrays and no program: text PTIR reads it in constants, dense<@FILE:KEY>; `ptir run` takes it with --inputs"
# The first that a file begins like says what it is.
FOREIGN: list[Foreign] = [
    Foreign("MLIR of MHLO", _holds("mhlo"), "convert it to StableHLO, which is read: stablehlo-opt"),
    Foreign(
        "MLIR of other dialects",
        _holds("tosa|linalg|tensor|math|torch|memref|affine|llvm|vector|gpu|tt|ttir|iree|hal|flow|util|ml_program|emitc"),
        "lower or raise it to StableHLO, which `--from stablehlo` reads",
    ),
    Foreign("HLO text of XLA", _text(r"HloModule\b"), "export StableHLO instead: jax.jit(f).lower(x).as_text()"),
    Foreign("a safetensors file", _safetensors, _WEIGHTS),
    Foreign("a GGUF file", _magic(b"GGUF"), "it holds weights and no program: convert them to safetensors"),
    Foreign("a NumPy array", _magic(b"\x93NUMPY"), _WEIGHTS),
    Foreign(
        "a PyTorch file",
        _zipped(b"/data.pkl", b"/byteorder", b".data/serialization_id", b"/constants.pkl"),
        "it is a pickle, which can run code: export the model with torch.onnx.export or ptir_tools.from_torch",
    ),
    Foreign("a NumPy archive", _zipped(b".npy"), _WEIGHTS),
    Foreign("a zip archive", _magic(b"PK\x03\x04", b"PK\x05\x06"), "unpack it, and name the program inside"),
    Foreign("a gzip file", _magic(b"\x1f\x8b"), "unpack it with gunzip"),
    Foreign("a Zstandard file", _magic(b"\x28\xb5\x2f\xfd"), "unpack it with zstd -d"),
    Foreign("an HDF5 file", _magic(b"\x89HDF\r\n"), "export the model as ONNX"),
    Foreign("a TensorFlow Lite model", _magic(b"TFL3", at=4), "export the model as ONNX, with tf2onnx"),
    Foreign("an LLVM bitcode file", _magic(b"BC\xc0\xde"), "name a program of tensors"),
    Foreign("a Python pickle", _magic(*(bytes((128, n)) for n in range(2, 6))), "it can run code when it is read: export ONNX"),
    Foreign("an executable", _magic(b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe"), "name a program's text"),
    Foreign("a PDF file", _magic(b"%PDF-"), "name a program's text"),
    Foreign("a picture", _magic(b"\x89PNG", b"\xff\xd8\xff", b"GIF8"), "name a program's text"),
    Foreign("a pointer of Git LFS", _magic(b"version https://git-lfs"), "fetch the file itself with git lfs pull"),
    Foreign(
        "an HTML page",
        _text(r"<(?:!doctype|!DOCTYPE|html|HTML|head|\?xml)\b"),
        "a download may have failed",
    ),
    Foreign("LLVM IR", _text(r"(?:source_filename|target (?:triple|datalayout)|define |declare )"), "name a program of tensors"),
    Foreign(
        "Python",
        _text(r"(?:from [\w.]+ import |import \w|def \w+\(|class \w+[:(]|@\w+\n)"),
        "run it: a script can write a program with ptir_tools.Graph",
    ),
]


def foreign(data: bytes) -> Foreign | None:
    """What `data`, the content of a file, is when it is in a format that nothing here reads."""
    first, size = data[:FIRST_BYTES], len(data)
    return next((f for f in FOREIGN if f.begins(first, size)), None)
