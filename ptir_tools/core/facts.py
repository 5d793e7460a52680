"""What a declaration may say of its op besides its types and its meaning: each record is a field of `@op` of the same name.

Engines, plan, passes, generators, `ptir stats` and the pages of ops ask these fields. A field that is left out says nothing,
and whoever asks falls back to what is right for every op: its body, storage of its own, no kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from ptir_tools.core.ir import Op, Operand, Region
    from ptir_tools.core.types import Shape


class Algebra(NamedTuple):
    """Laws of an op, true for every element except NaN and the sign of a zero, and of monotony where integers wrap.

    An involution, or an idempotent op, of one operand folds. An increasing op needs no error rule. Parity moves negations.
    """

    parity: str = ""  # "odd": f(-x) is -f(x); "even": f(-x) is f(x)
    monotone: str = ""  # "increasing" or "decreasing" in every operand
    idempotent: bool = False  # f(f(x)) is f(x); of several operands, f(x, x) is x
    involution: bool = False  # f(f(x)) is x
    identity: int | None = None  # e with f(x, e) = x
    absorbing: int | None = None  # a with f(x, a) = a, for finite x

    def laws(self) -> list[str]:
        """The laws in words, as the page of the op shows them."""
        named = [self.parity, self.monotone, "idempotent" * self.idempotent, "involution" * self.involution]
        elements = [("identity", self.identity), ("absorbing", self.absorbing)]
        return [*filter(None, named), *(f"{what} {e}" for what, e in elements if e is not None)]


class InPlace(NamedTuple):
    """How NumPy computes the op into an array that is there. `form` is a kind of step of the NumPy engine: `ufunc`, which calls
    the universal function `function`, or another of its `BUILDERS`. `over`: the operands, dead after the op, whose storage the
    result may take; an elementwise op may take any."""

    form: str
    function: str = ""
    over: tuple[int, ...] = ()


# What an op is in a fused tile program.
Role = Literal["map", "reduce", "reshape", "repeat", "product"]


class Kernel(NamedTuple):
    """What the op is in a tile program of the native engine. `role`: a map of elements, a reduction of rows, a product of
    matrices, a reshape or a repetition of one value per row. `name` is its instruction; a map that has none only rounds."""

    role: Role
    name: str = ""
    turned: str = ""  # the instruction with its two operands exchanged
    exact: bool = False  # there is nothing to round
    pays: bool = False  # the kernel of this op by itself is faster than NumPy's function in f32, too


Extents = tuple[int, ...]
Strides = tuple[int, ...]


class View(NamedTuple):
    """The op only looks at the storage of its first operand.

    `seen(op, shape, strides, out)` gives (offset, strides) in elements of its result, of shape `out`, on an operand of `shape`
    with `strides`; None where it has to copy. `in_order`: it sees all elements in the order that they have.
    """

    seen: Callable[[Op, Extents, Strides, Extents], tuple[int, Strides] | None]
    in_order: bool = False


class Need(NamedTuple):
    """What is asked of a value: in [0, bound) for `bounds` (one for all elements, or one each of a vector), and not 0."""

    bounds: Extents = ()
    nonzero: bool = False

    def __or__(self, other: Need) -> Need:
        both = self.bounds or other.bounds
        if self.bounds and other.bounds:
            same = len(self.bounds) == len(other.bounds)
            both = tuple(map(min, self.bounds, other.bounds)) if same else (min(*self.bounds, *other.bounds),)
        return Need(both, self.nonzero or other.nonzero)

    def loosely(self) -> Need:
        """What holds for every element, whichever way they are moved."""
        return Need((min(self.bounds),) if self.bounds else (), self.nonzero)


NOTHING = Need()
Asked = Iterable[tuple["Operand", Need]]
ShapeOf = Callable[["Operand"], "Shape"]  # the extents of an operand, as far as they are known


class Asks(NamedTuple):
    """What must hold of the operands so that the op can run: which are indices or divisors, and of what.

    `own(op, shape_of)` is what the op itself asks. `passed(op, need)` is what a need of its result asks of its operands; without
    it, what moves elements passes it to all. `around(op, parameter_need)` is what a need of a parameter of its region asks.
    """

    own: Callable[[Op, ShapeOf], Asked] | None = None
    passed: Callable[[Op, Need], Asked] | None = None
    around: Callable[[Op, Need], Asked] | None = None


def indices(operand: int, bounds: Callable[[Op, Shape], Iterable[Any]], of: int = 0) -> Asks:
    """The operand with that number indexes: below `bounds(op, shape)`, where `shape` is that of the operand `of`."""

    def own(op: Op, shape_of: ShapeOf) -> Iterator[tuple[Operand, Need]]:
        yield op.operands[operand], Need(tuple(n if isinstance(n, int) else 1 for n in bounds(op, shape_of(op.operands[of]))))

    return Asks(own)


def divisor(operand: int) -> Asks:
    """The operand with that number divides."""
    return Asks(lambda op, shape_of: [(op.operands[operand], Need(nonzero=True))])


def same(op: Op, need: Need) -> Asked:
    """Element i of the result is that of the first operand, in another form."""
    return [(op.operands[0], need)]


def moved(op: Op, need: Need) -> Asked:
    """The result has elements of the first operand, in other places."""
    return [(op.operands[0], need.loosely())]


def signed(op: Op, need: Need) -> Asked:
    """The result is 0 where the first operand is."""
    return [(op.operands[0], Need(nonzero=need.nonzero))]


class Loop(NamedTuple):
    """An op that runs its region `body` again and again. Its first `carries(op)` operands are its first results and the first
    parameters and results of the body; further results of the body are stacked.

    With a region `test`, that one runs first: it returns a flag, then the carries that the body, or the result, gets. `runs`:
    whether the body runs at least once.
    """

    carries: Callable[[Op], int]
    body: int = 0
    test: int | None = None
    runs: Callable[[Op], bool] = lambda op: False

    def parts(self, op: Op) -> list[tuple[Region, int, bool]]:
        """Each region, in turn, with how many results it has before the carries, and whether it runs at least once."""
        body = (op.regions[self.body], 0, self.runs(op))
        return [body] if self.test is None else [(op.regions[self.test], 1, True), body]


class Branch(NamedTuple):
    """An op that runs one of its regions on its operands from number `arguments` on."""

    arguments: int = 1
