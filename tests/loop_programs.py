"""Random programs of loops and branches whose regions repeat work, share each other and leave arguments unread."""

from __future__ import annotations

import random

import numpy as np

from ptir_tools.core import arrays
from ptir_tools.core.builder import Builder, single_function
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import F32, I1, SI32
from ptir_tools.core.ir import Element, Region, Value
from ptir_tools.core.types import tensor
from ptir_tools.dialects.ptir import DIALECT

ROW = tensor(F32, (2, 2))
COUNT = tensor(SI32)


class Loops:
    """A program in the making; `regions` may be used again. `draws`: some of its values are random."""

    def __init__(self, seed: int, draws: bool) -> None:
        self.draws = draws
        self.rng = random.Random(seed)
        self.program, self.b = single_function(DIALECT)
        self.flag = self.b.param(tensor(I1), "p")
        self.steps = self.b.param(tensor(F32, (3, 2, 2)), "xs")
        self.empty = self.b.param(tensor(F32, (0, 2, 2)), "none")
        values = [self.b.param(ROW, f"x{i}") for i in range(3)]
        self.shared: dict[str, list[Region]] = {"scan": [], "branch": []}
        for _ in range(6):
            values += self.grow(self.b, values, nested=True)
        self.b.results(*self.rng.sample(values[3:], 4))

    def number(self, b: Builder, n: int) -> Value:
        return b.op("constant", value=arrays.to_literal(np.array(n, np.int32), COUNT))

    def simple(self, b: Builder, values: list[Value]) -> Value:
        x, y = self.rng.choice(values), self.rng.choice(values)
        if self.draws and self.rng.random() < 0.3:
            return b.op(self.rng.choice(("rng_uniform", "rng_normal")), shape=ROW.shape, dtype=F32)
        name = self.rng.choice(("exp", "neg", "tanh", "add", "mul", "maximum", "transpose", "broadcast", "constant", "sum"))
        if name == "transpose":
            return b.op("transpose", x, perm=(1, 0))
        if name == "broadcast":
            return b.op("broadcast_to", b.op("reduce_max", x, axes=(0,)), result_shape=(2, 2))
        if name == "constant":
            return b.op("constant", value=arrays.to_literal(np.full((2, 2), self.rng.choice((0.5, 2.0)), np.float32), ROW))
        if name == "sum":
            return b.op("broadcast_to", b.op("reduce_sum", x, axes=(1,), keepdims=True), result_shape=(2, 2))
        return b.op(name, x) if name in ("exp", "neg", "tanh") else b.op(name, x, y)

    def grow(self, b: Builder, values: list[Value], nested: bool) -> list[Value | Element]:
        """One op on `values`, with regions if `nested`; what it makes."""
        kind = self.rng.choice(("simple", "simple", "scan", "while", "cond")) if nested else "simple"
        if kind == "simple":
            return [self.simple(b, values)]
        return getattr(self, kind + "_")(b, values)

    def body(self, params: list, returned: int, nested: bool = False, kept: float = 0.5) -> Region:
        """A region that returns a flag's worth of rows: each carry as it was, or something computed."""
        region = Region(f"r{len(self.program.regions)}")
        self.program.regions.append(region)
        b = Builder(DIALECT, region)
        values = [b.param(t) for t in params]
        rows = [v for v in values if v.type is ROW]
        made = list(rows)
        for _ in range(self.rng.randint(1, 5)):
            made += [v for v in self.grow(b, made, nested) if isinstance(v, Value)]
        b.results(*(rows[i] if self.rng.random() < kept and i < len(rows) else self.rng.choice(made) for i in range(returned)))
        return region

    def scan_(self, b: Builder, values: list[Value]) -> list[Element]:
        if not self.shared["scan"] or self.rng.random() < 0.7:
            self.shared["scan"].append(self.body([ROW, ROW, ROW], 3, nested=b is self.b))
        region = self.rng.choice(self.shared["scan"]) if b is self.b else self.body([ROW, ROW, ROW], 3)
        carries = [self.rng.choice(values) for _ in range(2)]
        top = b is self.b
        rows = self.rng.choice((self.steps, self.empty)) if top else b.op("reshape", self.rng.choice(values), new_shape=(1, 2, 2))
        v = b.op("scan", [*carries, rows], regions=[region], carry_count=2, scan_output_count=1)
        return [b.op("stop_gradient", Element(v, i)) for i in range(2)]

    def while_(self, b: Builder, values: list[Value]) -> list[Value]:
        cond, body = Region(f"r{len(self.program.regions)}"), Region(f"r{len(self.program.regions) + 1}")
        self.program.regions += [cond, body]
        limit = self.rng.randint(0, 2)
        for region in (cond, body):
            inner = Builder(DIALECT, region)
            i, x, y = inner.param(COUNT), inner.param(ROW), inner.param(ROW)
            made: list[Value] = [x, y]
            for _ in range(self.rng.randint(1, 4)):
                made.append(self.simple(inner, made))
            if region is cond:
                inner.results(inner.op("compare_lt", i, self.number(inner, limit)), i, self.rng.choice((x, made[-1])), y)
            else:
                inner.results(inner.op("add", i, self.number(inner, 1)), made[-1], y)
        start = self.number(b, 0)
        v = b.op("while", [start, self.rng.choice(values), self.rng.choice(values)], regions=[cond, body])
        return [b.op("stop_gradient", Element(v, i)) for i in (1, 2)]

    def cond_(self, b: Builder, values: list[Value]) -> list[Value]:
        regions = [self.body([ROW, ROW, ROW], 1, kept=0.3) for _ in range(2)]
        chosen = [self.simple(b, values) if self.rng.random() < 0.6 else self.rng.choice(values) for _ in range(3)]
        first = self.rng.choice(values)
        total = b.op("reduce_sum", first, axes=(0, 1))
        flag = self.flag if b is self.b else b.op("compare_lt", total, b.op("neg", total))
        return [b.op("cond", flag, chosen, regions=regions)]


def loops(seed: int) -> Program:
    """A random program, the same for equal seeds."""
    return Loops(seed, draws=False).program


def drawing(seed: int) -> Program:
    """One in which random numbers are drawn, in loops and branches, too."""
    return Loops(seed, draws=True).program
