"""Payloads outside the text: `dense<@weights.safetensors:key>`, and `.npz` alike. Paths are relative to the text's file."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection
from itertools import count
from typing import TYPE_CHECKING, Any

from ptir_tools.core import arrays
from ptir_tools.core.arrayfiles import SAFETENSORS
from ptir_tools.core.diagnostics import UsageError, Violation, require
from ptir_tools.core.ir import Literal, Program
from ptir_tools.core.lazy import lazy
from ptir_tools.core.limits import LIMITS, LimitExceeded
from ptir_tools.core.types import TensorType

if TYPE_CHECKING:
    import numpy as np

    from ptir_tools.core.arrays import Array
else:
    np = lazy("numpy")

SMALL = 16  # longer constants are written into the file of weights when there is one


def load(reference: str, t: TensorType, folder: str) -> bytes:
    """The bytes of the array that `@file:key` names, which must have the dtype and shape of `t`.

    Raises Violation("InvalidLiteral"), and LimitExceeded for a literal that is too big.
    """
    name, _, key = reference.removeprefix("@").rpartition(":")
    readers = {".safetensors": _safetensors, ".npz": _npz}
    read = readers.get(os.path.splitext(name)[1])
    help = "write dense<@weights.safetensors:key>"
    if read is None or not key:
        raise Violation("InvalidLiteral", f"`{reference}` names no array in a .safetensors or .npz file", at="value", help=help)
    if t.count * t.dtype.size > LIMITS.literal_bytes:
        raise LimitExceeded(f"a literal of {t}", "--max-literal-bytes")
    try:
        return read(os.path.join(folder, name), key, t)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Violation("InvalidLiteral", f"`{reference}` cannot be read: {error}", at="value") from None


def _fits(found: object, wanted: object, key: str, what: str) -> None:
    require(found == wanted, "InvalidLiteral", f"`{key}` has {what} {found}, {wanted} is wanted", at="value")


def _safetensors(path: str, key: str, t: TensorType) -> bytes:
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > LIMITS.file_bytes:
            raise ValueError("the header is too long")
        entry: Any = json.loads(file.read(size)).get(key)
        if not isinstance(entry, dict):
            raise ValueError(f"there is no array `{key}`")
        _fits(entry["dtype"], SAFETENSORS.get(t.dtype), key, "dtype")
        _fits(tuple(entry["shape"]), t.static_shape, key, "shape")
        start, end = entry["data_offsets"]
        file.seek(8 + size + start)
        data = file.read(end - start)
    if len(data) != math.prod(t.static_shape) * t.dtype.size:
        raise ValueError(f"`{key}` is cut short")
    return data


def _npz(path: str, key: str, t: TensorType) -> bytes:
    with np.load(path, allow_pickle=False) as archive:
        if key not in archive.files:
            raise ValueError(f"there is no array `{key}`")
        array = archive[key]
    _fits(array.dtype, arrays.numpy_dtype(t.dtype), key, "dtype")
    _fits(array.shape, t.static_shape, key, "shape")
    return arrays.pack(array, t.dtype)


def outside(program: Program, path: str) -> tuple[dict[Literal, str], dict[str, Array]]:
    """What `Options.outside` takes to write the constants of more than SMALL elements as arrays of the file at `path`, which
    stands beside the text, and those arrays by key: the name of the first constant that has the payload.

    Splats, and what .safetensors cannot name, stay in the text. Raises UsageError for another kind of file.
    """
    file = os.path.basename(path)
    if os.path.splitext(file)[1] not in (".safetensors", ".npz"):
        raise UsageError(f"{path}: weights are kept in .safetensors and .npz files")
    references: dict[Literal, str] = {}
    found: dict[str, Array] = {}
    keys: dict[object, str] = {}
    for op in (op for block in program.blocks() for op in block.body if op.defn.is_constant):
        x = op.attr("value")
        if x.data is None or x.splat or x.type.count <= SMALL or x.type.dtype not in SAFETENSORS:
            continue
        if x.key not in keys:
            keys[x.key] = key = _free(op.result.name, found)
            found[key] = arrays.from_literal(x)
        references[x] = f"@{file}:{keys[x.key]}"
    return references, found


def kept(program: Program, folder: str) -> dict[Literal, str]:
    """What `Options.outside` takes to leave what was read from files there; the text will stand in `folder`."""
    blocks = list(program.blocks())
    hints = (h for f in program.functions for h in f.hints)
    ops = [op for body in (*(b.body for b in blocks), *(h.body for h in hints)) for op in body]
    held = (x for holder in (*(b.results for b in blocks), *((*op.operands, *op.attrs) for op in ops)) for x in holder)
    return {x: _reference(x.origin, folder) for x in held if isinstance(x, Literal) and x.origin}


def _reference(origin: str, folder: str) -> str:
    file, _, key = origin.rpartition(":")
    return f"@{file if os.path.isabs(file) else os.path.relpath(file, folder or os.curdir)}:{key}"


def _free(wish: str, taken: Collection[str]) -> str:
    """`wish`, or `wish_1`, `wish_2`, … when it is taken."""
    names = (f"{wish}_{n}" if n else wish for n in count())
    return next(name for name in names if name not in taken)
