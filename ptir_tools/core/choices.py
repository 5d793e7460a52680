"""Programs made at random: who decides (a seed, or a property-testing library in the tests), and what has been made so far."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from ptir_tools.core.builder import Builder
from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import Program, Value

T = TypeVar("T")


class Choices(Protocol):
    """Who decides."""

    def one(self, known: Sequence[T]) -> T:
        """One of `known`."""

    def flag(self) -> bool:
        """Yes or no."""

    def number(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""

    def shuffled(self, known: Sequence[T]) -> Sequence[T]:
        """`known` in some order."""


class Seeded:
    """The choices of a seed: the same ones everywhere."""

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


def some(choices: Choices, known: Sequence[T]) -> list[T]:
    """Some of `known`, each once, in some order."""
    return list(choices.shuffled(known))[: choices.number(0, len(known))]


@dataclass(slots=True)
class Growing:
    """A program in the making; `values` are what further ops may read, `dtypes` those of its inputs."""

    choices: Choices
    program: Program
    b: Builder
    dtypes: Sequence[DType]
    values: list[Value] = field(default_factory=list)


# Adds an op or a few that read a value: the last result, or None where that value cannot be read so.
Grow = Callable[[Growing, Value], Value | None]
