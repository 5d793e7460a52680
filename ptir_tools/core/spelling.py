"""Suggestions for unknown names: similar known names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from ptir_tools.core.dtypes import CF32, CF64, F16, F32, F64, FP8_E4M3, FP8_E5M2, I1, PTIR_DTYPES, SI32, SI64, DType

_PROPOSED = 3  # equally similar names that are proposed, at most
_EDITS = 8  # edits of a similar name, at most, however long it is
_LENGTH = 128  # longer names are not compared
GUESSED = 2_000  # characters of a statement; the time for suggestions is the square of its length

# Synonyms in attribute names, and words without information.
_SAME_WORD = (
    "axis axes dim dims dimension dimensions perm permutation", "dtype type to", "epsilon eps", "pad padding pads",
    "contract contracting contraction", "shape size sizes", "window kernel", "stride strides", "accum acc accumulator",
    "batch batching",
)  # fmt: skip
_LITTLE = {"new", "result", "out", "output", "target"}


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The name of `known` that `name` most likely means; None if there is no such name, or more than one."""
    similar = near_names(name, known)
    return similar[0] if len(similar) == 1 else None


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """The names of `known` that are fewest edits away from `name`, and few for its length. Of those, the ones with the same
    letters, else those with the longest common beginning. The same letters in another case come first."""
    lower, best = name.lower(), list[str]()
    if len(name) > _LENGTH:
        return best
    least = min(max(1, (len(name) + 1) // 3), _EDITS) if len(name) > 1 else 0
    for each in dict.fromkeys(known):
        if each == name or abs(len(each) - len(name)) > least:
            continue
        distance = 0 if each.lower() == lower else edits(lower, each.lower(), least)
        if distance <= least:
            best = [*(best if distance == least else []), each]
            least = distance
    if len(best) < 2:
        return best
    if swapped := [each for each in best if sorted(each.lower()) == sorted(lower)]:
        best = swapped
    shared = [next((i for i, (x, y) in enumerate(zip(lower, each.lower(), strict=False)) if x != y), len(lower)) for each in best]
    return [each for each, n in zip(best, shared, strict=True) if n == max(shared)]


def attribute_meant(name: str, known: Iterable[str]) -> str | None:
    """The attribute of `known` that has the words of `name`, in any order; else the nearest; else the one that has only some
    of the words, or all of them and more. None if there is none, or more than one."""
    words = _words(name)
    listed = {each: _words(each) for each in known if each != name}
    same = [each for each, own in listed.items() if own == words]
    if len(same) == 1 or (same := near_names(name, listed)):
        return same[0] if len(same) == 1 else None
    part = [each for each, own in listed.items() if own < words or words < own]
    return part[0] if len(part) == 1 else None


def dtype_meant(text: str, known: Mapping[str, DType]) -> str | None:
    """The dtype of `known` that NumPy, C or another IR calls `text`, or else the nearest name."""
    match = _dtypes().get(text.lower())
    return next((name for name, dtype in known.items() if dtype is match), None) or nearest(text, known)


@cache
def _dtypes() -> dict[str, DType]:
    dtypes = {spelled: d for d in PTIR_DTYPES for spelled in (d.name, d.numpy)}
    dtypes |= {d.name.replace("si", "i").replace("ui", "u"): d for d in PTIR_DTYPES}
    dtypes |= {f"fp{d.bits}": d for d in (F16, F32, F64)}
    dtypes |= {"float": F32, "single": F32, "double": F64, "half": F16, "int": SI32, "long": SI64, "boolean": I1, "pred": I1}
    return dtypes | {"c64": CF32, "c128": CF64, "f8e4m3": FP8_E4M3, "f8e4m3fn": FP8_E4M3, "f8e5m2": FP8_E5M2}


@cache
def _same_words() -> dict[str, str]:
    return groups(_SAME_WORD)


def groups(lines: Iterable[str]) -> dict[str, str]:
    """The first word of the line of each word."""
    return {word: line.partition(" ")[0] for line in lines for word in line.split()}


def _words(name: str) -> frozenset[str]:
    """The words of a name."""
    words = frozenset(re.findall(r"[a-z]+|[0-9]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()))
    return frozenset(_same_words().get(w, w) for w in words - _LITTLE or words)


def edits(a: str, b: str, most: int) -> int:
    """The number of letters to add, drop, change or swap with a neighbor between `a` and `b`; `most + 1` for more than `most`."""
    before, row = list[int](), list(range(len(b) + 1))
    for i, x in enumerate(a):
        older, before, row = before, row, [most + 1] * (len(b) + 1)
        row[0] = i + 1
        for j in range(max(0, i - most), min(len(b), i + most + 1)):  # the others are more than `most` away
            y = b[j]
            cost = min(before[j] + (x != y), before[j + 1] + 1, row[j] + 1)
            if i and j and x == b[j - 1] and a[i - 1] == y:
                cost = min(cost, older[j - 1] + 1)
            row[j + 1] = cost
        if min(row) > most:
            return most + 1
    return min(row[-1], most + 1)


def did_you_mean(similar: Sequence[str], otherwise: str | None = None) -> str | None:
    """The help text with suggestions."""
    if not 1 <= len(similar) <= _PROPOSED:
        return otherwise
    return f"did you mean {' or '.join(f'`{name}`' for name in similar)}?"


def proposed(name: str, known: Iterable[str], shown: str = "%{}", written: str = "%{}") -> tuple[str | None, str | None]:
    """(help, edit) for an unknown name: `shown` and `written` give the form of a known name in each."""
    similar = near_names(name, known)
    return did_you_mean([shown.format(x) for x in similar]), written.format(similar[0]) if len(similar) == 1 else None
