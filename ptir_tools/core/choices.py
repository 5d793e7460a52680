"""Random choices for generated programs: from a seed or, in the tests, from a property-testing library."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core.lazy import lazy
from ptir_tools.core.typed import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    import random
else:
    random = lazy("random")

T = TypeVar("T")


class Choices(Protocol):
    """A source of random choices."""

    def one(self, known: Sequence[T]) -> T:
        """One of `known`."""

    def flag(self) -> bool:
        """Yes or no."""

    def number(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""

    def shuffled(self, known: Sequence[T]) -> Sequence[T]:
        """`known` in some order."""


class Seeded:
    """The choices of a seed, which are the same on every machine."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def one(self, known: Sequence[T]) -> T:
        """One of `known`."""
        return self.random.choice(known)

    def flag(self) -> bool:
        """Yes or no."""
        return self.random.random() < 0.5

    def number(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""
        return self.random.randint(low, high)

    def shuffled(self, known: Sequence[T]) -> Sequence[T]:
        """`known` in some order."""
        return self.random.sample(known, len(known))
