"""Repeated runs of ops, such as the layers of a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from ptir_tools.core.ir import Literal, Region, Value
from ptir_tools.core.records import NamedTuple

_LEAST = 4  # ops in a run; a box of fewer is not easier to read
_TRIED = 16  # lengths


class Run(NamedTuple):
    """`times` equal runs of `length` ops each, the first from op `start` on."""

    start: int
    length: int
    times: int


def repeats(block: Region) -> list[Run]:
    """The runs of `block`, in order; no two overlap. Those that cover most ops are chosen first. Ops are equal if name,
    attributes and types are; the values of constants may differ."""
    signs = _signs(block)
    chosen: list[Run] = []
    taken = bytearray(len(signs))
    for run in sorted(_candidates(signs), key=lambda r: (-r.length * r.times, r.length)):
        end = run.start + run.length * run.times
        if not any(taken[run.start : end]):
            taken[run.start : end] = b"\1" * (end - run.start)
            chosen.append(run)
    return sorted(chosen)


def _signs(block: Region) -> list[int]:
    """A number per op, equal for equal ops."""
    numbers: dict[Hashable, int] = {}
    signs = []
    for op in block.body:
        attrs = tuple(x.type if isinstance(x, Literal) else repr(x) for x in op.attrs)
        operands = tuple(x.type if isinstance(x, Literal | Value) else x.index for x in op.operands)
        key = (op.defn.name, attrs, operands, tuple(v.type for v in op.results), tuple(map(_shape, op.regions)))
        signs.append(numbers.setdefault(key, len(numbers)))
    return signs


def _shape(region: Region) -> Hashable:
    return id(region) if region.isolated else tuple((op.defn.name, tuple(map(_shape, op.regions))) for op in region.body)


def _candidates(signs: Sequence[int]) -> list[Run]:
    """The longest runs of each likely length. A length is likely if many ops equal the op at that distance before them."""
    last: dict[tuple[int, ...], int] = {}
    distances: Counter[int] = Counter()
    for k in range(len(signs) - _LEAST + 1):
        window = tuple(signs[k : k + _LEAST])
        if (before := last.get(window)) is not None and k - before >= _LEAST:
            distances[k - before] += 1
        last[window] = k
    return [run for length, _ in distances.most_common(_TRIED) for run in _of_length(signs, length)]


def _of_length(signs: Sequence[int], length: int) -> list[Run]:
    runs = []
    start = equal = 0
    for k in range(length, len(signs) + 1):
        if k < len(signs) and signs[k] == signs[k - length]:
            equal += 1
            continue
        if equal >= length:
            runs.append(Run(start, length, equal // length + 1))
        start, equal = k - length + 1, 0
    return runs
