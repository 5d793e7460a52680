"""What the generators of the tests share: a program in the making, and what adds an op to it.

They are for programs of patterns of several ops (softmax, normalization, products of what was moved), and of what a translation
takes: those come up too rarely when ops are drawn one by one, as `ptir gen` does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ptir_tools.core.builder import Builder
from ptir_tools.core.choices import Choices
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import Value

T = TypeVar("T")


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
