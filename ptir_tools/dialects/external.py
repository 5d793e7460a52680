"""Payloads outside the text: `@weights.safetensors:key`, and `.npz` alike. Paths are relative to the text's file, in its
folder or below."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.files import is_below, is_same
from ptir_tools.core.lazy import lazy, np
from ptir_tools.core.limits import LimitExceeded, current
from ptir_tools.core.typed import TYPE_CHECKING, cast
from ptir_tools.core.types import TensorType
from ptir_tools.core.violations import LITERAL, Violation, require

if TYPE_CHECKING:
    from ptir_tools.core import arrayfiles
else:
    arrayfiles = lazy("ptir_tools.core.arrayfiles")


class Files:
    """The files that `@file:key` of one text names: below `folder`, the text's own, and below `roots` or one of them.

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
        help = "write @weights.safetensors:key"
        if not name.endswith(arrayfiles.ARCHIVES) or not key or "\0" in name:
            message = f"`{reference}` names no array in a .safetensors or .npz file"
            raise Violation("InvalidLiteral", message, at=LITERAL, help=help)
        if t.count * t.dtype.size > current().literal_bytes:
            raise LimitExceeded(f"a literal of {t}", "--max-literal-bytes")
        path = os.path.join(self.folder, name)
        if not self.allowed(path):
            message = f"`{reference}` is outside of the program's folder"
            raise Violation("InvalidLiteral", message, at=LITERAL, help="allow its folder with --weights-root DIR")

        def fits(_: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
            same = arrayfiles.as_dtype(np.empty(0, dtype), t.dtype) is not None
            require(same, "InvalidLiteral", f"`{key}` has dtype {dtype}, {t.dtype} is wanted", at=LITERAL)
            wanted = f"`{key}` has shape {list(shape)}, {list(t.static_shape)} is wanted"
            require(shape == t.static_shape, "InvalidLiteral", wanted, at=LITERAL)

        try:
            if path not in self.archives:
                self.archives[path] = arrayfiles.Archive(path)
            if key not in self.archives[path].names:
                raise ValueError(f"there is no array `{key}`")
            part = self.archives[path].shards.get(key, path)
            folder = os.path.dirname(path)
            if not self.allowed(part) and not (any(is_same(path, place) for place in self.roots) and is_below(part, folder)):
                raise ValueError("a file of this index is a link out of the program's folder")
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
        return any(is_below(path, place) for place in (self.folder, *self.roots))
