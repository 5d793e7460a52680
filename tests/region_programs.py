"""Random programs of loops and branches, nested in each other, over values of several dtypes and shapes."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from ptir_tools.core import arrays
from ptir_tools.core.builder import Builder, single_function
from ptir_tools.core.choices import Growing, Seeded
from ptir_tools.core.diagnostics import Violation
from ptir_tools.core.dtypes import BF16, F32, I1, SI32
from ptir_tools.core.ir import Element, Program, Region, Value
from ptir_tools.core.types import TensorType, Type, tensor
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.dialects.ptir.generate import GROWERS

DTYPES = (F32, F32, F32, SI32, I1, BF16)
SHAPES = ((), (3,), (2, 3), (3, 2), (1, 3), (4, 1))
COUNT, FLAG = tensor(SI32), tensor(I1)
SMALL = 400  # elements of a value that others are made from
_CONTROL = ("_scan", "_cond")  # made here


class Regions:
    """A program in the making."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.choices = Seeded(seed)
        self.growers = [g for g in GROWERS if g.__name__ not in _CONTROL]
        self.program, b = single_function(DIALECT)
        types = [FLAG, *(tensor(self.rng.choice(DTYPES), self.rng.choice(SHAPES)) for _ in range(3))]
        values = self.grow(b, [b.param(t, f"x{i}") for i, t in enumerate(types)], self.rng.randint(5, 14), 0)
        b.results(*(self.rng.choice(values[-8:]) for _ in range(self.rng.randint(1, 4))))

    def grow(self, b: Builder, given: Sequence[Value], steps: int, depth: int) -> list[Value]:
        """The tensors that there are after so many steps from those `given`."""
        g = Growing(self.choices, self.program, b, (F32, SI32), list(given))
        for _ in range(steps):
            x = self.rng.choice(g.values)
            if depth < 3 and self.rng.random() < 0.25:
                made = self.rng.choice((self.cond, self.scan, self.loop))(b, g.values, depth + 1)
                g.values += self.parts(b, made)
            elif x.type.dtype is I1:
                g.values.append(b.op("cast", x, dtype=F32))
            else:
                g.values += self.grown(g, x)
        return g.values

    def grown(self, g: Growing, x: Value) -> list[Value]:
        """`x` in another way, where that makes sense."""
        try:
            made = self.rng.choice(self.growers)(g, x)
        except Violation:
            made = None
        g.values[:] = [v for v in g.values if isinstance(v.type, TensorType)]
        return [made] if made is not None and made.type.count <= SMALL else []

    def parts(self, b: Builder, made: Value) -> list[Value]:
        """A value, or some elements of a tuple."""
        if isinstance(made.type, TensorType):
            return [made]
        kept = [i for i in range(len(made.type.elements)) if self.rng.random() < 0.7]
        return [b.op("stop_gradient", Element(made, i)) for i in kept]

    def region(self, types: Sequence[Type]) -> tuple[Builder, list[Value]]:
        """A new region, and its parameters."""
        self.program.regions.append(Region(f"r{len(self.program.regions)}"))
        b = Builder(DIALECT, self.program.regions[-1])
        return b, [b.param(t) for t in types]

    def of(self, values: Sequence[Value], own: Value, likely: float) -> Value:
        """One of `values` like `own`, or that itself."""
        alike = [v for v in values if v.type is own.type]
        return self.rng.choice(alike) if alike and self.rng.random() < likely else own

    def number(self, b: Builder, n: int) -> Value:
        return b.op("constant", value=arrays.to_literal(np.array(n, np.int32), COUNT))

    def cond(self, b: Builder, values: list[Value], depth: int) -> Value:
        """A branch on a flag, often known; both regions may be one."""
        given = [self.rng.choice(values) for _ in range(self.rng.randint(1, 4))]
        outputs = [self.rng.randrange(len(given)) for _ in range(self.rng.randint(1, 3))]
        regions = []
        for _ in range(2):
            inner, params = self.region([x.type for x in given])
            made = self.grow(inner, params, self.rng.randint(0, 5), depth)
            inner.results(*(self.of(made, params[i], 0.8) for i in outputs))
            regions.append(inner.block)
        flags = [v for v in values if v.type is FLAG]
        known = b.op("constant", value=arrays.to_literal(np.bool_(self.rng.random() < 0.5), FLAG))
        flag = self.rng.choice([known, *flags])
        return b.op("cond", flag, given, regions=regions if self.rng.random() < 0.85 else regions[:1] * 2)

    def scan(self, b: Builder, values: list[Value], depth: int) -> Value:
        """Over some values of equal first extent, with carries that stay what they are or change."""
        rows = [v for v in values if v.type.rank and v.type.shape[0]] or [b.op("iota", shape=(3, 2), dtype=F32, axis=0)]
        first = self.rng.choice(rows)
        inputs = [first, *(v for v in rows if v.type.shape[0] == first.type.shape[0] and self.rng.random() < 0.3)]
        carries = [self.rng.choice(values) for _ in range(self.rng.randint(0, 3))]
        slices = [tensor(v.type.dtype, v.type.shape[1:]) for v in inputs]
        inner, params = self.region([*(c.type for c in carries), *slices])
        made = self.grow(inner, params, self.rng.randint(0, 6), depth)
        stacked = [self.rng.choice(made) for _ in range(self.rng.randint(0 if carries else 1, 2))]
        inner.results(*(self.of(made, params[k], 0.5) for k in range(len(carries))), *stacked)
        counts = {"carry_count": len(carries), "scan_output_count": len(stacked)}
        return b.op("scan", [*carries, *inputs], regions=[inner.block], **counts)

    def loop(self, b: Builder, values: list[Value], depth: int) -> Value:
        """A `while` of up to three trips, whose condition may change what it carries."""
        carries = [self.rng.choice(values) for _ in range(self.rng.randint(1, 3))]
        types = [COUNT, *(c.type for c in carries)]
        test, (i, *rest) = self.region(types)
        made = self.grow(test, rest, self.rng.randint(0, 3), depth)
        below = test.op("compare_lt", i, self.number(test, self.rng.randint(0, 3)))
        test.results(below, i, *(self.of(made, p, 0.2) for p in rest))
        step, (i, *rest) = self.region(types)
        made = self.grow(step, rest, self.rng.randint(0, 4), depth)
        step.results(step.op("add", i, self.number(step, 1)), *(self.of(made, p, 0.5) for p in rest))
        return b.op("while", [self.number(b, 0), *carries], regions=[test.block, step.block])


def regions(seed: int) -> Program:
    """A random program, the same for equal seeds."""
    return Regions(seed).program
