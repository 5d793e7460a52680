"""Every limit of the toolkit, in one record. A command that hits one exits with 3; each has a flag."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from ptir_tools.core.records import dataclass
from ptir_tools.core.source import Loc, Source

ELEMENTS = 2**63 - 1  # the largest index
_GROWTH = 16  # ops that each op of a text may become
DIGITS = 4300  # digits of an integer: CPython refuses to convert more


@dataclass(slots=True, frozen=True)
class Limits:
    """Upper bounds on the resources of a program. Counts are items, sizes are bytes, times are seconds."""

    file_bytes: int = 256 << 20  # a text
    binary_bytes: int = 1 << 31  # a file in a binary format; a protobuf is no longer
    nesting: int = 256  # regions, types, JSON values
    ops: int = 10_000_000
    expanded: int = 50_000  # ops that copies of functions and regions make, in addition to 16 per written op
    operands: int = 10_000  # of one op
    rank: int = 64
    name_length: int = 4096
    integer_digits: int = 4000
    elements: int = ELEMENTS  # of one tensor; counted exactly
    literal_bytes: int = 1 << 30
    fold_bytes: int = 64 << 10  # bytes of a folded constant, unless the constants that it replaces have more
    iterations: int = 1_000_000  # of one loop at run time
    rewrites_per_op: int = 64  # of the greedy driver, on average, before it reports circular rules
    unrolled: int = 8192  # PTO: ops of a loop, inner loops included, that the hazard check follows one by one
    pieces: int = 128  # Tiny: ExcessivePiecewise
    memory: int | None = None  # run: planned peak plus inputs; None is half of the machine's

    @property
    def most_digits(self) -> int:
        """The number of digits of an integer, at most."""
        return min(self.integer_digits, DIGITS)


LIMITS = Limits()
_in_force: ContextVar[Limits] = ContextVar("limits", default=LIMITS)


def current() -> Limits:
    """The current limits. Every option record without limits uses these."""
    return _in_force.get()


@contextmanager
def using(limits: Limits) -> Iterator[None]:
    """Use `limits` inside the block."""
    before = _in_force.set(limits)
    try:
        yield
    finally:
        _in_force.reset(before)


class Expansion:
    """Counts the ops that calls, functions and unrolled loops of a program of `written` ops become, so that a small file cannot
    grow without end."""

    def __init__(self, written: int) -> None:
        self.most = current().expanded + _GROWTH * written
        self.count = 0

    def charge(self, ops: int = 1, loc: Loc = 0) -> None:
        """Count `ops`, before they are made. Raises LimitExceeded."""
        self.count += ops
        if self.count > self.most:
            message = f"functions, calls and loops that are put in line make more than {self.most} ops"
            raise LimitExceeded(message, "--max-expanded", loc)


class LimitExceeded(Exception):
    """A limit of `Limits` was hit. `flag` is the command-line option that raises it; `loc` is the place in the program, if
    any; `source` is its text, if known."""

    def __init__(self, message: str, flag: str | None = None, loc: Loc = 0, source: Source | None = None) -> None:
        super().__init__(message)
        self.flag = flag
        self.loc = loc
        self.source = source

    def at(self, loc: Loc, source: Source | None = None) -> "LimitExceeded":
        """The error with `loc` and `source`, if it has none."""
        self.loc = self.loc or loc
        self.source = self.source or source
        return self


def integer(text: str, base: int = 10) -> int:
    """The integer in `text`. Raises LimitExceeded if it has too many digits, ValueError if it is not an integer."""
    if len(text) > current().most_digits:
        raise too_many_digits(len(text))
    return int(text, base)


def integers(texts: Sequence[str]) -> list[int]:
    """`integer` of each text."""
    if max(map(len, texts), default=0) > current().most_digits:
        return [*map(integer, texts)]
    return [*map(int, texts)]


def too_many_digits(count: int, loc: Loc = 0) -> LimitExceeded:
    """The error for an integer of `count` digits."""
    return LimitExceeded(f"an integer of {count} digits", "--max-integer-digits" if count <= DIGITS else None, loc)


def require_memory(need: int) -> None:
    """Raise LimitExceeded if `need` bytes are above the limit (by default half of the machine's memory)."""
    limit = current().memory
    if limit is None:
        limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    if need > limit:
        raise LimitExceeded(f"needs {size_text(need)} of memory, the limit is {size_text(limit)}", "--max-memory")


def size_text(count: int) -> str:
    """Bytes for people: `4.0 EiB`."""
    units = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
    power = min(max(count.bit_length() - 1, 0) // 10, len(units) - 1)
    return f"{count} bytes" if not power else f"{count / 1024**power:.1f} {units[power]}"
