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


class Carries:
    """A program on si32 in which loops carry values in every way, and what it computes, in NumPy alone.

    Carries change places, stay, are returned twice, are read after their next value is there. Inits die, live on, are used twice
    or are rows, too. Tests of while loops change what they hand on. Stacks are seen in another order. Loops are in loops.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.program, self.b = single_function(DIALECT)
        self.shape = self.rng.choice([(3, 3), (1, 1), (2, 2), (17, 17)])
        self.square, self.row = tensor(SI32, self.shape), tensor(SI32, self.shape[1:])
        fill = np.random.default_rng(seed)
        params = [self.b.param(self.square, f"x{i}") for i in range(3)]
        self.inputs = [fill.integers(-9, 9, self.shape, np.int32) for _ in params]
        made = [*params]
        self.known: list[np.ndarray] = list(self.inputs)
        run, values = self.block(self.b, made, depth=2)
        results = [self.rng.choice(values) for _ in range(3)]
        self.b.results(*results)
        known = run(self.inputs)
        self.expected = [known[values.index(x)] for x in results]

    def block(self, b: Builder, values: list, depth: int) -> tuple:
        """Some ops on `values`: (what they compute of arrays for these, the values that there are then)."""
        values, steps = list(values), []
        for _ in range(self.rng.randint(2, 6)):
            kind = self.rng.choice(("neg", "add", "mul", "maximum", "transpose", "update", "loop", "loop"))
            if kind == "loop" and depth:
                step, made = (self.scan if self.rng.random() < 0.6 else self.loop)(b, values, depth - 1)
            else:
                step, made = self.simple(b, values, "sub" if kind == "loop" else kind)
            steps.append(step)
            values += made

        def run(arrays_: list) -> list:
            known = list(arrays_)
            for step in steps:
                known += step(known)
            return known

        return run, values

    def pick(self, values: list) -> int:
        """The number of one of them, rather a late one."""
        return len(values) - 1 - min(int(self.rng.expovariate(0.4)), len(values) - 1)

    def simple(self, b: Builder, values: list, name: str) -> tuple:
        i, j = self.pick(values), self.pick(values)
        if name == "transpose":
            return (lambda known: [known[i].T]), [b.op("transpose", values[i], perm=(1, 0))]
        if name == "neg":
            return (lambda known: [-known[i]]), [b.op("neg", values[i])]
        if name == "update":
            part = b.op("slice", values[j], starts=(0, 0), sizes=(1, self.shape[1]))
            start = b.op("constant", value=arrays.to_literal(np.array([self.shape[0] - 1, 0], np.int32), tensor(SI32, (2,))))
            made = b.op("dynamic_update_slice", values[i], part, start, sizes=(1, self.shape[1]))
            return (lambda known: [np.concatenate([known[i][:-1], known[j][:1]])]), [made]
        function = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum}[name]
        return (lambda known: [function(known[i], known[j])]), [b.op(name, values[i], values[j])]

    def region(self) -> tuple[Region, Builder]:
        region = Region(f"r{len(self.program.regions)}")
        self.program.regions.append(region)
        return region, Builder(DIALECT, region)

    def scan(self, b: Builder, values: list, depth: int) -> tuple:
        """Carries and rows of squares; a row is one of the values of the body. The stack is seen in some order."""
        count = self.rng.randint(0, 3)
        firsts, rows = [self.pick(values) for _ in range(count)], self.pick(values)
        region, inner = self.region()
        params = [inner.param(self.square) for _ in range(count)]
        row = inner.param(self.row)
        wide = inner.op("broadcast_to", row, result_shape=self.shape)
        run, made = self.block(inner, [*params, wide], depth)
        picked = [self.rng.choice((self.pick(made), self.rng.randrange(count + 1))) for _ in range(count + 1)]
        inner.results(*(made[i] for i in picked))
        op = b.op("scan", [*(values[i] for i in firsts), values[rows]], regions=[region], carry_count=count, scan_output_count=1)
        stack = Element(op, count) if count else op
        perm = self.rng.choice(((0, 1, 2), (1, 0, 2), (2, 1, 0), (1, 2, 0)))
        seen = b.op("transpose", stack, perm=perm) if self.rng.random() < 0.8 else stack
        total = b.op("reduce_sum", seen, axes=(0,))
        turn = perm if seen is not stack else (0, 1, 2)

        def step(known: list) -> list:
            carry, outs = [known[i] for i in firsts], []
            for x in known[rows]:
                found = run([*carry, np.broadcast_to(x, self.shape)])
                *carry, out = [found[i] for i in picked]
                outs.append(out)
            return [*carry, np.stack(outs).transpose(turn).sum(0, dtype=np.int32)]

        return step, [*(Element(op, i) for i in range(count)), total]

    def loop(self, b: Builder, values: list, depth: int) -> tuple:
        """A counter and carries; the test hands on them, or others that it makes of them."""
        count, limit = self.rng.randint(1, 3), self.rng.randint(0, 3)
        firsts = [self.pick(values) for _ in range(count)]

        def number(inner: Builder, n: int) -> Value:
            return inner.op("constant", value=arrays.to_literal(np.array(n, np.int32), COUNT))

        made: list[tuple] = []
        for which in ("test", "body"):
            region, inner = self.region()
            at, params = inner.param(COUNT), [inner.param(self.square) for _ in range(count)]
            if which == "test" and self.rng.random() < 0.5:
                run, found = (lambda known: list(known)), list(params)
            else:
                run, found = self.block(inner, params, depth if which == "body" else 0)
            picked = [self.rng.choice((self.pick(found), self.rng.randrange(count))) for _ in range(count)]
            if which == "test" and self.rng.random() < 0.5:
                picked = list(range(count))
            head = (
                [inner.op("compare_lt", at, number(inner, limit)), at]
                if which == "test"
                else [inner.op("add", at, number(inner, 1))]
            )
            inner.results(*head, *(found[i] for i in picked))
            made.append((region, run, picked))
        (test, tested, kept), (body, run, picked) = made
        op = b.op("while", [number(b, 0), *(values[i] for i in firsts)], regions=[test, body])

        def step(known: list) -> list:
            carry = [known[i] for i in firsts]
            for _ in range(limit):
                found = tested(carry)
                found = run([found[i] for i in kept])
                carry = [found[i] for i in picked]
            found = tested(carry)
            return [found[i] for i in kept]

        return step, [Element(op, i + 1) for i in range(count)]
