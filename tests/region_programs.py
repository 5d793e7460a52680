"""Random programs of loops and branches, nested in each other, over values of several dtypes and shapes and tuples of them.

Operands, arguments, carries and results may be tuples, nested ones too; regions may be shared, and some are never run; what loops
stack is read by index ops.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from growing import Growing
from grown_ptir import GROWERS

from ptir_tools.core import arrays
from ptir_tools.core.builder import Builder, single_function
from ptir_tools.core.choices import Seeded
from ptir_tools.core.diagnostics import Violation
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import BF16, F32, I1, SI32
from ptir_tools.core.ir import Element, Op, Operand, Region, Value, operand_type
from ptir_tools.core.types import Sym, TensorType, TupleType, Type, leaves, tensor, tuple_of
from ptir_tools.dialects.ptir import DIALECT

DTYPES = (F32, F32, F32, SI32, I1, BF16)
SHAPES = ((), (3,), (2, 3), (3, 2), (1, 3), (4, 1))
COUNT, FLAG = tensor(SI32), tensor(I1)
SMALL = 400  # elements of a value that others are made from
WIDE = 12  # leaves of a tuple that others are made from
_CONTROL = ("_scan", "_cond")  # made here


class Regions:
    """A program in the making."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.choices = Seeded(seed)
        self.growers = [g for g in GROWERS if g.__name__ not in _CONTROL]
        self.packers: dict[tuple[Type, ...], Region] = {}
        self.program, b = single_function(DIALECT)
        types = [FLAG, *(tensor(self.rng.choice(DTYPES), self.rng.choice(SHAPES)) for _ in range(3))]
        types += [self.nested(types, 2) for _ in range(self.rng.choice((0, 0, 1, 2)))]
        operands = self.grow(b, [b.param(t, f"x{i}") for i, t in enumerate(types)], self.rng.randint(5, 14), 0)
        b.results(*(self.rng.choice(operands) for _ in range(self.rng.randint(1, 4))))
        if self.rng.random() < 0.3:
            self.orphan()
        for block in self.program.blocks():
            self.read_elements(block)

    def nested(self, types: Sequence[Type], depth: int) -> TupleType:
        """A tuple of some of `types`, and of tuples."""
        parts = [self.rng.choice(types) for _ in range(self.rng.randint(2, 3))]
        if depth > 1 and self.rng.random() < 0.5:
            parts[self.rng.randrange(len(parts))] = self.nested(types, depth - 1)
        return tuple_of(parts)

    def grow(self, b: Builder, given: Sequence[Value], steps: int, depth: int) -> list[Operand]:
        """The tensors and tuples that there are after so many steps from those `given`."""
        g = Growing(self.choices, self.program, b, (F32, SI32), [])
        tuples: list[Operand] = []
        for x in given:
            self.take(g, tuples, x)
        for _ in range(steps):
            if not g.values:
                g.values.append(b.op("iota", shape=(3, 2), dtype=F32, axis=0))
            x = self.rng.choice(g.values)
            draw = self.rng.random()
            if depth < 3 and draw < 0.25:
                make = self.rng.choice((self.cond, self.scan, self.loop, self.packed_loop))
                self.take(g, tuples, make(b, [*g.values, *tuples], depth + 1))
            elif draw < 0.33 and len(known := [*g.values, *tuples]) > 1:
                self.take(g, tuples, self.pack(b, [self.rng.choice(known) for _ in range(self.rng.randint(2, 3))]))
            elif draw < 0.45 and x.type.rank and x.type.count and x.type.dtype is not I1:
                self.take(g, tuples, self.indexed(b, x))
            elif x.type.dtype is I1:
                g.values.append(b.op("cast", x, dtype=F32))
            else:
                g.values += self.grown(g, x)
        return [*g.values, *tuples]

    def take(self, g: Growing, tuples: list[Operand], made: Operand) -> None:
        """Add `made` to what there is: a tensor, or a tuple and some of its elements."""
        t = operand_type(made)
        if isinstance(t, TensorType):
            if t.count <= SMALL:
                g.values.append(made if isinstance(made, Value) else g.b.op("stop_gradient", made))
        elif len(leaves(t)) <= WIDE:
            tuples.append(made)
        if isinstance(t, TupleType) and isinstance(made, Value):
            for i in range(len(t.elements)):
                if self.rng.random() < 0.7:
                    self.take(g, tuples, Element(made, i))

    def grown(self, g: Growing, x: Value) -> list[Value]:
        """`x` in another way, where that makes sense."""
        try:
            made = self.rng.choice(self.growers)(g, x)
        except Violation:
            made = None
        g.values[:] = [v for v in g.values if isinstance(v.type, TensorType)]
        return [made] if made is not None and made.type.count <= SMALL else []

    def indexed(self, b: Builder, x: Value) -> Value:
        """`x` read or written through an index, known or computed; or its largest elements and where they are."""
        axis = self.rng.randrange(x.type.rank)
        extent = x.type.shape[axis]
        kind = self.rng.choice(("gather", "take", "scatter_reduce", "dynamic_slice", "dynamic_update_slice", "top_k"))
        if kind == "top_k":
            return b.op("top_k", x, k=self.rng.randint(1, extent), axis=axis, largest=self.rng.random() < 0.5)
        if kind == "take":
            return b.op("take", x, self.index(b, (self.rng.randint(1, 3),), x.type.shape[0]))
        if kind in ("gather", "scatter_reduce"):
            index = self.index(b, x.type.shape, extent)
            return b.op(kind, x, index, axis=axis) if kind == "gather" else b.op(kind, x, index, x, axis=axis, reduce="max")
        sizes = tuple(self.rng.randint(1, d) for d in x.type.shape)
        starts = [self.index(b, (), d - n + 1) for d, n in zip(x.type.shape, sizes, strict=True)]
        start = b.op("concat", [b.op("reshape", s, new_shape=(1,)) for s in starts], axis=0)
        if kind == "dynamic_slice":
            return b.op("dynamic_slice", x, start, sizes=sizes)
        part = b.op("slice", x, starts=(0,) * len(sizes), sizes=sizes)
        return b.op("dynamic_update_slice", x, part, start, sizes=sizes)

    def index(self, b: Builder, shape: tuple[int, ...], extent: int) -> Value:
        """Indices below `extent`: a constant, or that less itself."""
        known = np.asarray(np.random.default_rng(self.rng.randrange(1000)).integers(0, extent, shape), np.int32)
        made = b.op("constant", value=arrays.to_literal(known, tensor(SI32, shape)))
        return made if self.rng.random() < 0.7 else b.op("sub", made, made)

    def region(self, types: Sequence[Type]) -> tuple[Builder, list[Value]]:
        """A new region, and its parameters."""
        self.program.regions.append(Region(f"r{len(self.program.regions)}"))
        b = Builder(DIALECT, self.program.regions[-1])
        return b, [b.param(t) for t in types]

    def pack(self, b: Builder, parts: Sequence[Operand]) -> Value:
        """A tuple of `parts`: the results of a branch. One region makes all tuples of a type."""
        types = tuple(map(operand_type, parts))
        if (region := self.packers.get(types)) is None:
            inner, params = self.region(types)
            inner.results(*params)
            region = self.packers[types] = inner.block
        return b.op("cond", self.flag(b), list(parts), regions=[region, region])

    def orphan(self) -> None:
        """A region that nothing runs, of symbolic extents."""
        inner, (x,) = self.region([tensor(F32, (0, Sym("N")))])
        inner.results(inner.op("neg", x))

    def read_elements(self, block: Region) -> None:
        """Let some of what reads the copy of an element of a tuple read the element."""
        for op in block.body:
            op.operands = tuple(map(self.original, op.operands))
        block.results[:] = map(self.original, block.results)

    def original(self, x: Operand) -> Operand:
        """The element that `x` is a copy of, at times."""
        maker: Op | None = x.op if isinstance(x, Value) else None
        copies = maker is not None and maker.defn.short == "stop_gradient" and isinstance(maker.operands[0], Element)
        return maker.operands[0] if copies and maker is not None and self.rng.random() < 0.6 else x

    def of(self, values: Sequence[Operand], own: Operand, likely: float) -> Operand:
        """One of `values` like `own`, or that itself."""
        alike = [v for v in values if operand_type(v) is operand_type(own)]
        return self.rng.choice(alike) if alike and self.rng.random() < likely else own

    def number(self, b: Builder, n: int) -> Value:
        return b.op("constant", value=arrays.to_literal(np.array(n, np.int32), COUNT))

    def flag(self, b: Builder) -> Value:
        return b.op("constant", value=arrays.to_literal(np.bool_(self.rng.random() < 0.5), FLAG))

    def cond(self, b: Builder, values: list[Operand], depth: int) -> Value:
        """A branch on a flag, often known; both regions may be one."""
        given = [self.rng.choice(values) for _ in range(self.rng.randint(1, 4))]
        outputs = [self.rng.randrange(len(given)) for _ in range(self.rng.randint(1, 3))]
        regions = []
        for _ in range(2):
            inner, params = self.region([*map(operand_type, given)])
            made = self.grow(inner, params, self.rng.randint(0, 5), depth)
            inner.results(*(self.of(made, params[i], 0.8) for i in outputs))
            regions.append(inner.block)
        flags = [v for v in values if operand_type(v) is FLAG]
        flag = self.rng.choice([self.flag(b), *flags])
        return b.op("cond", flag, given, regions=regions if self.rng.random() < 0.85 else regions[:1] * 2)

    def scan(self, b: Builder, values: list[Operand], depth: int) -> Value:
        """Over some values of equal first extent, with carries that stay what they are or change."""
        rows = [v for v in values if isinstance(v, Value) and isinstance(v.type, TensorType) and v.type.rank and v.type.shape[0]]
        rows = rows or [b.op("iota", shape=(3, 2), dtype=F32, axis=0)]
        first = self.rng.choice(rows)
        inputs = [first, *(v for v in rows if v.type.shape[0] == first.type.shape[0] and self.rng.random() < 0.3)]
        carries = [self.rng.choice(values) for _ in range(self.rng.randint(0, 3))]
        slices = [tensor(v.type.dtype, v.type.shape[1:]) for v in inputs]
        inner, params = self.region([*map(operand_type, carries), *slices])
        made = self.grow(inner, params, self.rng.randint(0, 6), depth)
        tensors = [v for v in made if isinstance(operand_type(v), TensorType)]
        stacked = [self.rng.choice(tensors) for _ in range(self.rng.randint(0 if carries else 1, 2)) if tensors]
        inner.results(*(self.of(made, params[k], 0.5) for k in range(len(carries))), *stacked)
        counts = {"carry_count": len(carries), "scan_output_count": len(stacked)}
        return b.op("scan", [*carries, *inputs], regions=[inner.block], **counts)

    def loop(self, b: Builder, values: list[Operand], depth: int) -> Value:
        """A `while` of up to three trips, whose condition may change what it carries."""
        carries = [self.rng.choice(values) for _ in range(self.rng.randint(1, 3))]
        types = [COUNT, *map(operand_type, carries)]
        test, (i, *rest) = self.region(types)
        made = self.grow(test, rest, self.rng.randint(0, 3), depth)
        below = test.op("compare_lt", i, self.number(test, self.rng.randint(0, 3)))
        test.results(below, i, *(self.of(made, p, 0.2) for p in rest))
        step, (i, *rest) = self.region(types)
        made = self.grow(step, rest, self.rng.randint(0, 4), depth)
        step.results(step.op("add", i, self.number(step, 1)), *(self.of(made, p, 0.5) for p in rest))
        return b.op("while", [self.number(b, 0), *carries], regions=[test.block, step.block])

    def packed_loop(self, b: Builder, values: list[Operand], depth: int) -> Value:
        """A `while` that carries one tuple: a count, and others."""
        whole = self.pack(b, [self.number(b, 0), *(self.rng.choice(values) for _ in range(self.rng.randint(1, 2)))])
        types = [operand_type(Element(whole, i)) for i in range(1, len(whole.type.elements))]
        test, (p,) = self.region([whole.type])
        below = test.op("compare_lt", Element(p, 0), self.number(test, self.rng.randint(0, 3)))
        test.results(below, p)
        step, (p,) = self.region([whole.type])
        made = self.grow(step, [p], self.rng.randint(0, 4), depth)
        rest = [self.of([v for v in made if operand_type(v) is t], Element(p, i), 0.5) for i, t in enumerate(types, 1)]
        step.results(self.pack(step, [step.op("add", Element(p, 0), self.number(step, 1)), *rest]))
        return b.op("while", [whole], regions=[test.block, step.block])


def regions(seed: int) -> Program:
    """A random program, the same for equal seeds."""
    return Regions(seed).program
