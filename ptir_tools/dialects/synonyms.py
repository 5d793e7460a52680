"""The names that other systems give to ops. They are shared by the four dialects, which have many ops in common."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache

from ptir_tools.core.spelling import groups, nearest

# What one op is called here and there, without `_` and in small letters.
_SAME_OP = (
    "max maximum", "min minimum", "sub subtract minus", "mul multiply times", "div fdiv divide", "neg negate negative",
    "cast convert astype", "select where", "abs absolute", "log logarithm ln", "exp exponential", "constant const",
    "compareeq eq equal", "comparene ne notequal", "comparelt cmplt lt less", "comparele le lessequal", "comparegt gt greater",
    "comparege ge greaterequal", "broadcastto broadcast broadcastindim expand", "concat concatenate cat", "transpose permute",
    "reducesum sum reduceadd", "slice shrink", "reverse flip", "reduceor reduceany any", "reduceand reduceall all",
)  # fmt: skip

# Functions that are no misspelling of another one.
_FUNCTIONS = frozenset(
    word
    for row in (
        "sqrt rsqrt cbrt exp exp2 exp10 expm1 log log2 log10 log1p erf erfc erfinv sin cos",
        "tan sinh cosh tanh asin acos atan atan2 asinh acosh atanh floor ceil round trunc sign",
        "abs mod rem fmod pow any all max min argmax argmin cummax cummin cumsum cumprod",
    )
    for word in row.split()
)


def op_meant(name: str, known: Iterable[str]) -> str | None:
    """The op of `known` that another system calls `name`, or else the nearest name."""
    return _meant(name, tuple(known))


@lru_cache
def _meant(name: str, known: tuple[str, ...]) -> str | None:
    if same := same_op(name, known):
        return same
    found = nearest(name, known)
    return None if found is not None and is_function(name) and _plain(found) != _plain(name) else found


def is_function(name: str) -> bool:
    """Whether a name is that of a function elsewhere, and no misspelling."""
    return _plain(name) in _FUNCTIONS


def same_op(name: str, known: Iterable[str]) -> str | None:
    """The op of `known` that another system calls `name`; of several the one with the same prefix."""
    known_as, prefix = _known_as(), name.rpartition(".")[0]
    group = known_as.get(_plain(name))
    same = [each for each in known if group is not None and known_as.get(_plain(each)) == group]
    return next((each for each in same if each.rpartition(".")[0] == prefix), same[0] if same else None)


@cache
def _known_as() -> dict[str, str]:
    return groups(_SAME_OP)


def _plain(name: str) -> str:
    return name.rpartition(".")[2].replace("_", "").lower()
