"""Smaller numbers, for `reduce`: extents wherever they stand in a program, and any number of a text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from ptir_tools.core import arrays
from ptir_tools.core.ir import Literal, Program
from ptir_tools.core.types import TensorType, TupleType, leaves, tuple_of


def resized(old: int, new: int, attributes: bool) -> Callable[[Program], bool]:
    """Make every extent `old` in the types of a program `new`, constants cut to size; `attributes`: those that are `old`, too."""

    def edit(program: Program) -> bool:
        changed = False
        for block in program.blocks():
            for v in (*block.params, *(v for op in block.body for v in op.results)):
                changed |= v.type is not (t := _resized(v.type, old, new))
                v.type = t
            for op in block.body:
                op.operands = tuple(_resized(x, old, new) if isinstance(x, Literal) else x for x in op.operands)
                op.attrs = tuple(_resized(x, old, new) if attributes or isinstance(x, Literal) else x for x in op.attrs)
            block.results = [_resized(x, old, new) if isinstance(x, Literal) else x for x in block.results]
            block.result_types = [_resized(t, old, new) for t in block.result_types]
        return changed

    return edit


def extents(program: Program) -> list[int]:
    """The extents above 1 in the types of a program, biggest first."""
    types = (v.type for b in program.blocks() for v in (*b.params, *(v for op in b.body for v in op.results)))
    tensors = (leaf for t in types for leaf in leaves(t) if isinstance(leaf, TensorType))
    return sorted({d for t in tensors for d in t.shape if isinstance(d, int) and d > 1}, reverse=True)


def _resized(x: Any, old: int, new: int) -> Any:
    """A type, a literal or an attribute with `new` for each `old`."""
    if isinstance(x, tuple):
        return tuple(_resized(e, old, new) for e in x)
    if isinstance(x, TensorType):
        return x.with_shape(_resized(x.shape, old, new)) if old in x.shape else x
    if isinstance(x, TupleType):
        return tuple_of(_resized(t, old, new) for t in x.elements)
    if not isinstance(x, Literal):
        return new if x == old and isinstance(x, int) and not isinstance(x, bool) else x
    t = _resized(x.type, old, new)
    if t is x.type or x.data is None or not x.type.count:
        return Literal(t, x.data, x.splat)
    if x.splat:
        return Literal(t, x.data, splat=t.count > 1)
    return arrays.to_literal(arrays.from_literal(x)[tuple(map(slice, t.shape))], t)


_INTEGER = re.compile(r"(?<![\w.%?^@-])[0-9]{1,9}(?![\w.])|(?<=x)[0-9]{1,9}(?=[x>,\s])|(?<![\w.%?^@-])[0-9]{1,9}(?=x)")


def smaller_numbers(text: str) -> Iterator[tuple[str, str]]:
    """(what, text) with one number, wherever it stands for an extent or the like, made smaller; the biggest first."""
    found = sorted({int(m[0]) for m in _INTEGER.finditer(text)} - {0, 1}, reverse=True)
    for n in found:
        for smaller in below(n):
            made = _INTEGER.sub(lambda m, n=n, to=smaller: str(to) if int(m[0]) == n else m[0], text)  # type: ignore[misc]
            yield f"{n} as {smaller}", made


def below(n: int) -> list[int]:
    """The numbers to try in place of `n`, smallest first."""
    return sorted({k for k in (1, 2, n // 2) if 0 < k < n})
