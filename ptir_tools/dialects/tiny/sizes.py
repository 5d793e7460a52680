"""Choice of sizes for free symbols in checks: small, different where the graph allows it, and so that the graph runs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

from ptir_tools.core.dialect import Program, clone
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.tiny.symbols import put_dims, symbols

LARGEST = 12  # no size above this is tried
ATTEMPTS = 100


def choose(program: Program, bound: Mapping[str, int]) -> dict[str, int]:
    """A size for every symbol that `bound`, "dims" and the graph leave free.

    One symbol after the other gets the first size with which every decidable rule holds. The first attempt counts upward,
    later ones try random orders. A symbol that no attempt settles is left free.
    """
    for seed in range(ATTEMPTS):
        found = _attempt(program, bound, random.Random(seed) if seed else None)
        if found is not None:
            return found
    return {}


def _attempt(program: Program, bound: Mapping[str, int], rng: random.Random | None) -> dict[str, int] | None:
    chosen: dict[str, int] = {}
    known = _known(program, bound)
    for name in symbols(program):
        if known is None:
            return None
        if name not in known:
            tries = ((n, _known(program, {**bound, **chosen, name: n})) for n in _candidates(known, rng))
            chosen[name], known = next(((n, k) for n, k in tries if k is not None), (0, None))
    return chosen if known is not None else None


def _candidates(known: Mapping[str, int], rng: random.Random | None) -> Iterator[int]:
    """Sizes to try: from 2 upward those not used so far, then any; or all in a random order."""
    if rng is not None:
        yield from rng.sample(range(1, LARGEST), LARGEST - 1)
        return
    used = set(known.values())
    yield from (n for n in range(2, LARGEST + len(used)) if n not in used)
    yield from range(1, LARGEST)


def _known(program: Program, numbers: Mapping[str, int]) -> dict[str, int] | None:
    """`numbers` and the symbols that follow from them; None when they break a rule."""
    known = {**program.attrs.get("dims", {}), **numbers}
    copy = clone(program)
    copy.attrs["dims"] = {}
    try:
        put_dims(copy, known)
    except Violation:
        return None
    return known
