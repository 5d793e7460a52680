"""Every limit of the toolkit, in one record. A command that hits one exits with 3; each has a flag."""

from ptir_tools.core.records import dataclass
from ptir_tools.core.source import Loc, Source

ELEMENTS = 2**63 - 1  # what an index counts


@dataclass(slots=True, frozen=True)
class Limits:
    """Upper bounds on what a program may ask of the tool. Counts are items, sizes are bytes, times are seconds."""

    file_bytes: int = 256 << 20
    nesting: int = 256  # regions, types, JSON values
    ops: int = 10_000_000
    operands: int = 10_000  # of one op
    rank: int = 64
    name_length: int = 4096
    integer_digits: int = 4000  # CPython refuses to convert more than 4300
    elements: int = ELEMENTS  # of one tensor; counted exactly
    literal_bytes: int = 1 << 30
    fold_bytes: int = 64 << 10  # a folded constant may be this big, or as big as what it replaces
    iterations: int = 1_000_000  # of one loop at run time
    rewrites_per_op: int = 64  # of the greedy driver, on average, before it calls two rules circular
    unrolled: int = 8192  # PTO: ops of a loop, inner loops included, that the check of order follows one by one
    pieces: int = 128  # Tiny: ExcessivePiecewise
    memory: int | None = None  # run: planned peak plus inputs; None is half of the machine's


LIMITS = Limits()


class LimitExceeded(Exception):
    """A limit of `Limits` was hit. `flag` is the command-line option that raises it; `loc` where in the program, if anywhere;
    `source` the text that it is in, where that is known."""

    def __init__(self, message: str, flag: str | None = None, loc: Loc = 0, source: Source | None = None) -> None:
        super().__init__(message)
        self.flag = flag
        self.loc = loc
        self.source = source

    def at(self, loc: Loc, source: Source | None = None) -> "LimitExceeded":
        """The same, with a place if it has none."""
        self.loc = self.loc or loc
        self.source = self.source or source
        return self


def integer(text: str, base: int = 10) -> int:
    """The integer that `text` spells. Raises LimitExceeded when it has too many digits, ValueError when it is not an integer."""
    if len(text) > LIMITS.integer_digits:
        raise LimitExceeded(f"an integer of {len(text)} digits", "--max-integer-digits")
    return int(text, base)
