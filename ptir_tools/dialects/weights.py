"""Payloads outside the text, written: which constants are arrays of a file next to it, and what the text says instead."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from itertools import count

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Literal
from ptir_tools.core.lazy import lazy
from ptir_tools.core.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from ptir_tools.core import arrayfiles
else:
    arrayfiles = lazy("ptir_tools.core.arrayfiles")

_SUFFIXES = (".safetensors", ".npz")
SMALL = 16  # longer constants are written into the file of weights when there is one


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
    """How a text in `folder` names the array: relative to the folder. A file elsewhere keeps its absolute path."""
    file, _, key = origin.rpartition(":")
    near = os.path.isabs(file) == os.path.isabs(folder)
    relative = os.path.relpath(file, folder or os.curdir) if near else file
    return f"@{file if os.path.isabs(file) and relative.startswith(os.pardir) else relative}:{key}"


def _free(wish: str, taken: Collection[str]) -> str:
    """`wish`, or `wish_1`, `wish_2`, … when it is taken."""
    names = (f"{wish}_{n}" if n else wish for n in count())
    return next(name for name in names if name not in taken)
