"""Random programs in which left sides of rules are planted: each rule's own words, in random dtypes, shapes and orders, and the
few shapes of ops that typed patterns look for and that free random programs hardly ever have."""

from __future__ import annotations

import ast
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from ptir_tools.core import arrays
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import BF16, CF32, F16, F32, F64, FP8_E4M3, I1, SI8, SI16, SI32, SI64, UI8, DType
from ptir_tools.core.ir import Literal, Value
from ptir_tools.core.types import TensorType, tensor
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.ops.scalars import natural_zero
from ptir_tools.dialects.ptir.rewrites import algebra, extensions, logic, movement
from ptir_tools.rewrite.patterns import named
from ptir_tools.rewrite.rules import left_side, unmarked
from tests.rewrite.programs import SPECIAL, STEPS, Growing, Step, sample
from tests.rewrite.rare_steps import RARE
from tests.rewrite.test_rules_docs import texts

INTEGERS, REALS = (SI32, SI8, UI8, SI16, SI64), (F32, BF16, F16, F64, FP8_E4M3)
LEAVES = (ast.Name, ast.Constant, ast.UnaryOp)
DTYPES = (*INTEGERS, *REALS, *(CF32,) * 6, I1)


@dataclass(slots=True)
class Left:
    """The left side of a rule, and its condition."""

    call: ast.expr
    condition: str

    def dtypes(self) -> tuple[DType, ...]:
        """What the innermost operands may be."""
        for word, dtypes in {"boolean(": (I1,), "integer(": INTEGERS, "floating(": REALS, "inexact(": REALS}.items():
            if word in self.condition:
                return dtypes
        says = any(isinstance(n, ast.Constant) and isinstance(n.value, bool) for n in ast.walk(self.call))
        return (*DTYPES, *(I1,) * 8 * says)


def lefts() -> list[Left]:
    """The left side of every rule that is written as text."""
    found = []
    for module in (algebra, extensions, logic, movement):
        for text in texts(module.RULES).values():
            left, _, right = text.strip("`").partition(" => ")
            found.append(Left(left_side(left), right.partition(" if ")[2]))
    return found


@dataclass(slots=True)
class Plant:
    """A left side in the making: what its names mean; `base` is the type of its innermost operands."""

    g: Growing
    left: Left
    base: TensorType
    bound: dict[str, object] = field(default_factory=dict)

    def operand(self, node: ast.expr, want: TensorType) -> Value | Literal:
        """What is in the place of `node`, of the type `want` if that is free."""
        node, marks = unmarked(node)
        if isinstance(node, ast.NamedExpr):
            self.bound[node.target.id] = x = self.operand(node.value, want)
            return x
        if isinstance(node, ast.Call):
            return self.op(node)
        if not isinstance(node, ast.Name):
            return self.number(ast.literal_eval(node), want)
        if node.id not in self.bound or node.id == "_":
            asked = {word.partition("(")[0] for word in self.left.condition.split(" and ") if f"({node.id})" in word}
            self.bound[node.id] = self.constant(want, asked) if "const" in marks else self.g.value(want)
        return self.bound[node.id]

    def op(self, call: ast.Call) -> Value:
        kind = self.g.rng.choice([d.short for d in named(f"ptir.{call.func.id}")])
        known: TensorType | None = None
        made: dict[int, Value | Literal] = {}
        for i, a in sorted(
            enumerate(call.args), key=lambda pair: isinstance(unmarked(pair[1])[0], (ast.Name, ast.Constant, ast.UnaryOp))
        ):
            flag = kind == "select" and i == 0
            made[i] = x = self.operand(a, self.flags(known) if flag else known or self.base)
            known = known or (x.type if not flag else self.base.with_shape(x.type.shape))
        attrs = {k.arg: self.attribute(k.value, partial(ATTRIBUTES[k.arg], self.g.rng, made[0].type)) for k in call.keywords}
        return self.g.b.op(kind, *(made[i] for i in range(len(made))), **attrs)

    def flags(self, known: TensorType | None) -> TensorType:
        return tensor(I1, (known or self.base).shape)

    def attribute(self, node: ast.expr, draw: partial) -> object:
        if not isinstance(node, ast.Name):
            return ast.literal_eval(node)
        if node.id not in self.bound or node.id == "_":
            self.bound[node.id] = draw()
        return self.bound[node.id]

    def number(self, n: object, t: TensorType) -> Value | Literal:
        if isinstance(n, bool) is not (t.dtype is I1) or (isinstance(n, float) and not t.dtype.is_float):
            raise Violation("planted", f"{n} is no {t}")
        if n == 0 and isinstance(n, int) and t.dtype.is_float:
            n = self.g.rng.choice((0.0, -0.0))
        return self.g.full(t, n)

    def constant(self, t: TensorType, asked: set[str]) -> Value | Literal:
        rng, d = self.g.rng, t.dtype
        if rng.random() < 0.3:
            return self.g.b.op("constant", value=arrays.to_literal(sample(rng, t), t))
        ends = (d.min, d.max) if d.is_integer else (-448.0, 448.0) if d is FP8_E4M3 else (-np.inf, np.inf)
        if asked & {"lowest", "highest"} and rng.random() < 0.8:
            return self.g.full(t, ends["highest" in asked])
        return self.g.full(t, rng.choice((*ends, 2, 1, 4) if d.is_integer else (*SPECIAL, *ends, 4.0)))


def _any_shape(rng: random.Random, t: TensorType) -> tuple[int, ...]:
    shape = list(t.static_shape)
    while 1 in shape and rng.random() < 0.5:
        shape.remove(1)
    for _ in range(rng.choice((0, 0, 1, 2))):
        shape.insert(rng.randint(0, len(shape)), 1)
    rng.random() < 0.2 and shape and shape.reverse()
    return tuple(shape)


def _wider(rng: random.Random, t: TensorType) -> tuple[int, ...]:
    return (*rng.choice(((), (1,), (2,))), *(rng.choice((1, 3)) if d == 1 else d for d in t.static_shape))


ATTRIBUTES = {
    "dtype": lambda rng, t: rng.choice((*DTYPES, SI32, SI64, F32, F64)),
    "perm": lambda rng, t: tuple(rng.sample(range(t.rank), t.rank)),
    "new_shape": _any_shape,
    "result_shape": _wider,
    "starts": lambda rng, t: tuple(rng.choice((0, 0, 1)) for _ in t.shape),
    "sizes": lambda rng, t: tuple(max(d - 1, 0) for d in t.static_shape),
    "repeats": lambda rng, t: tuple(rng.choice((1, 1, 2)) for _ in t.shape),
    **{name: lambda rng, t: tuple(rng.choice((0, 0, 1)) for _ in t.shape) for name in ("low", "high", "interior")},
    "pad_value": lambda rng, t: natural_zero(t.dtype),
}
LEFTS = lefts()


class Planted(Growing):
    """A program of free steps and planted left sides, which take turns."""

    def __init__(self, seed: int, ops: int, steps: Sequence[Step]) -> None:
        self.turn = seed * 3
        super().__init__(seed, ops, steps)

    def value(self, t: TensorType) -> Value:
        """A value of type `t`, a new parameter if there is none."""
        same = [v for v in self.values if v.type is t]
        if same and self.rng.random() < 0.8:
            return self.rng.choice(same)
        self.values.insert(0, v := self.b.param(t))
        return v

    def full(self, t: TensorType, n: object) -> Value | Literal:
        """Equal elements `n`: a constant, or a scalar that is broadcast, inline or not."""
        with np.errstate(all="ignore"):
            scalar = arrays.to_literal(np.array(n).astype(arrays.numpy_dtype(t.dtype)), tensor(t.dtype))
        way = self.rng.randrange(3)
        if way == 0 or not t.rank:
            return self.b.op("constant", value=Literal(t, scalar.data, splat=t.count > 1))
        return self.b.op("broadcast_to", scalar if way == 1 else self.b.op("constant", value=scalar), result_shape=t.shape)


def planted(g: Planted, x: Value) -> Value:
    """The left side of a rule on `x` and what is like it."""
    left = LEFTS[g.turn % len(LEFTS)]
    g.turn += 1
    dtypes = left.dtypes()
    dtype = x.type.dtype if x.type.dtype in dtypes and g.rng.random() < 0.5 else g.rng.choice(dtypes)
    body = g.b.block.body
    before = len(body)
    try:
        found = Plant(g, left, tensor(dtype, x.type.shape)).operand(left.call, x.type)
        for op in body[before:]:
            if op.defn.check:
                op.defn.check(op)
    except Violation:
        del body[before:]
        raise
    return found


def grow(seed: int, ops: int = 10) -> Program:
    """A random program of about `ops` steps, the same for equal seeds."""
    return Planted(seed, ops, (*STEPS, *RARE, *(planted,) * 40)).program
