"""Payloads outside the text: `dense<@weights.safetensors:key>`, and `.npz` alike. Paths are relative to the text's file, in its
folder or below."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from itertools import count

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Literal
from ptir_tools.core.lazy import lazy, np
from ptir_tools.core.limits import LimitExceeded, current
from ptir_tools.core.typed import TYPE_CHECKING, Any, cast
from ptir_tools.core.types import TensorType
from ptir_tools.core.violations import LITERAL, Violation, require

if TYPE_CHECKING:
    from ptir_tools.core import arrayfiles
else:
    arrayfiles = lazy("ptir_tools.core.arrayfiles")

_SUFFIXES = (".safetensors", ".npz")
SMALL = 16  # longer constants are written into the file of weights when there is one


class Files:
    """The files that `dense<@file:key>` of one text names: below `folder`, the text's own, and below `roots` or one of them.

    Links are followed before a place is judged. The table of contents of a file is read once.
    """

    def __init__(self, folder: str = "", roots: Sequence[str] = ()) -> None:
        self.folder, self.roots = folder, roots
        self.archives: dict[str, arrayfiles.Archive] = {}

    def load(self, reference: str, t: TensorType) -> bytes:
        """The bytes of the array that `@file:key` names, which must have the dtype and shape of `t`.

        Raises Violation("InvalidLiteral"), and LimitExceeded for a literal that is too big.
        """
        name, _, key = reference.removeprefix("@").rpartition(":")
        help = "write dense<@weights.safetensors:key>"
        if not name.endswith(arrayfiles.ARCHIVES) or not key or "\0" in name:
            message = f"`{reference}` names no array in a .safetensors or .npz file"
            raise Violation("InvalidLiteral", message, at=LITERAL, help=help)
        if t.count * t.dtype.size > current().literal_bytes:
            raise LimitExceeded(f"a literal of {t}", "--max-literal-bytes")
        path = os.path.join(self.folder, name)
        if not self.allowed(path):
            message = f"`{reference}` is outside of the program's folder"
            raise Violation("InvalidLiteral", message, at=LITERAL, help="allow its folder with --weights-root DIR")

        def fits(_: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
            same = arrayfiles.as_dtype(np.empty(0, dtype), t.dtype) is not None
            require(same, "InvalidLiteral", f"`{key}` has dtype {dtype}, {t.dtype} is wanted", at=LITERAL)
            wanted = f"`{key}` has shape {list(shape)}, {list(t.static_shape)} is wanted"
            require(shape == t.static_shape, "InvalidLiteral", wanted, at=LITERAL)

        try:
            if path not in self.archives:
                self.archives[path] = arrayfiles.Archive(path)
            if key not in self.archives[path].names:
                raise ValueError(f"there is no array `{key}`")
            found = self.archives[path].read(key, fits)
        except (OSError, ValueError) as error:
            said = (isinstance(error, OSError) and error.strerror) or error
            raise Violation("InvalidLiteral", f"`{reference}` cannot be read: {said}", at=LITERAL) from None
        try:
            return arrays.pack(cast("Array", arrayfiles.as_dtype(found, t.dtype)), t.dtype)
        except ValueError as bad:
            raise Violation("InvalidLiteral", f"`{key}` has {bad}, which {t.dtype} cannot hold", at=LITERAL) from None

    def allowed(self, path: str) -> bool:
        """Whether the file may be read."""
        real = os.path.realpath(path)
        places = [os.path.realpath(place or os.curdir) for place in (self.folder, *self.roots)]
        return any(real == place or real.startswith(os.path.join(place, "")) for place in places)


def outside(program: Program, path: str) -> tuple[dict[Literal, str], dict[str, Array]]:
    """What the option OUTSIDE takes to write the constants of more than SMALL elements as arrays of the file at `path`, next to
    the text; and those arrays by key. A key is the name of the first constant that has the payload.

    Splats, and what .safetensors cannot name, stay in the text. Raises UsageError for another kind of file.
    """
    file = os.path.basename(path)
    if os.path.splitext(file)[1] not in _SUFFIXES:
        raise UsageError(f"{path}: weights are kept in .safetensors and .npz files")
    references: dict[Literal, str] = {}
    found: dict[str, Array] = {}
    keys: dict[object, str] = {}
    for op in (op for block in program.blocks() for op in block.body if op.defn.is_constant):
        x = op.attr("value")
        if x.data is None or x.splat or x.type.count <= SMALL or x.type.dtype not in arrayfiles.SAFETENSORS:
            continue
        if x.key not in keys:
            keys[x.key] = key = _free(op.result.name, found)
            found[key] = arrays.from_literal(x)
        references[x] = f"@{file}:{keys[x.key]}"
    return references, found


def kept(program: Program, folder: str) -> dict[Literal, str]:
    """What the option OUTSIDE takes to leave what was read from files there; the text will be in `folder`."""
    return {x: _reference(x.origin, folder) for x in _literals(program) if x.origin}


def nbytes(program: Program) -> int:
    """How many bytes the constants of a program hold; what is repeated counts once."""
    return sum(len(x.data) for x in dict.fromkeys(_literals(program)) if x.data is not None)


def _literals(program: Program) -> Iterator[Literal]:
    blocks = list(program.blocks())
    hints = (h for f in program.functions for h in f.annotations)
    ops = [op for body in (*(b.body for b in blocks), *(h.body for h in hints)) for op in body]
    held = (x for holder in (*(b.results for b in blocks), *((*op.operands, *op.attrs) for op in ops)) for x in holder)
    return (x for x in held if isinstance(x, Literal))


def _reference(origin: str, folder: str) -> str:
    file, _, key = origin.rpartition(":")
    return f"@{file if os.path.isabs(file) else os.path.relpath(file, folder or os.curdir)}:{key}"


def _free(wish: str, taken: Collection[str]) -> str:
    """`wish`, or `wish_1`, `wish_2`, … when it is taken."""
    names = (f"{wish}_{n}" if n else wish for n in count())
    return next(name for name in names if name not in taken)
