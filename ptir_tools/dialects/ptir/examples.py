"""Patterns by example: a kernel written once, as a PTIR function, finds what computes the same way in other programs.

The kernel's ops, from the one that makes its result up, are sought in the program.

* Two ops match when their declarations are the same (so the kinds of unary, binary, compare and reduce ops are) and so are the
  kinds in their attributes: what a scatter, window or segment reduces by, the target of a custom call. Other attributes are
  left to whoever uses the match, as in gpt.rs; `same` names some that must be equal, axes counted from either end.
* Types do not count, so one kernel serves every dtype and shape.
* A parameter binds an operand, the same one wherever it stands. A parameter of rank 0 binds a number: a constant all of whose
  elements are equal. A constant of the kernel is a number, too, equal in the narrower of the two dtypes. Whether and from which
  shape a number is broadcast does not count.
* Operands of commutative ops are tried in both orders.
* With `products`, float products match as such: whatever order and grouping their factors have, whether a number is multiplied or
  divided by, a root divided by or its `rsqrt` multiplied. A number that a parameter stands for is 1 where the program has none.
  Of the ops of a product `Match.ops` has the last.
* A parameter that `optional` names and the kernel adds (or multiplies by, with `products`) may be missing in the program. Then it
  binds nothing; one of rank 0 binds 0.
* Ops that `skip` names (of `reshape`, `transpose`, `broadcast_to`, `cast`) are optional in program and kernel alike, except where
  the kernel begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Any

from ptir_tools.core import arrays
from ptir_tools.core.constants import literal_of, same_operand, scalar_of
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.dtypes import F64, DType
from ptir_tools.core.ir import Element, Function, Literal, Op, Operand, Value
from ptir_tools.core.lazy import lazy
from ptir_tools.core.opdef import exact, operand_type
from ptir_tools.core.patterns import Effect, Pattern
from ptir_tools.core.rewriter import Rewriter
from ptir_tools.core.source import Source
from ptir_tools.core.types import TensorType, tensor
from ptir_tools.core.verify import verify
from ptir_tools.dialects.ptir.lowering import written
from ptir_tools.dialects.ptir.ops.kinds import ENUMERATIONS
from ptir_tools.dialects.ptir.products import PRODUCTS, Product, Wanted, close, through, ways, whole
from ptir_tools.dialects.ptir.reader import read as read_text

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy("numpy")

SKIP = ("reshape", "transpose", "broadcast_to", "cast")
_SPREADS = ("ptir.broadcast_to",)
_STEPS = 100_000  # of one search; a kernel that needs more in some program does not match there

Bound = Mapping[Value, Operand]  # what stands for a parameter, or for the result of an op, of the kernel
Goals = tuple[tuple[Operand, Operand], Any] | None  # what is still to match, nearest first: ((kernel's, program's), more)
Ways = list[tuple[Sequence[tuple[Operand, Operand]], Bound]]


@dataclass(slots=True, frozen=True)
class Match:
    """Where a kernel was found. `inputs` has the operand that each parameter binds, `ops` the op for each of the kernel's, by
    the names that the kernel has for them. `interior` are the ops between, the root not among them; `escaping` those of their
    results that something else uses, too: the closure report."""

    example: Example
    root: Op
    inputs: Mapping[str, Operand]
    ops: Mapping[str, Op]
    interior: frozenset[Op]
    escaping: tuple[Value, ...]

    @property
    def closed(self) -> bool:
        """Whether nothing outside uses what is inside."""
        return not self.escaping

    def number(self, name: str) -> Any:
        """The number that the parameter `name`, of rank 0, binds."""
        return scalar_of(self.inputs[name])


class Example:
    """A kernel to look for. `skip`: ops that are optional between others; `same`: attributes that must be equal; `products`:
    products match whatever their grouping; `optional`: parameters that may be missing.

    Raises ValueError for a function that is no kernel and an op that cannot be skipped.
    """

    def __init__(
        self,
        kernel: Function,
        *,
        skip: Iterable[str] = (),
        same: Iterable[str] = (),
        optional: Iterable[str] = (),
        products: bool = False,
    ) -> None:
        skip = tuple(skip)
        result = kernel.results[0] if len(kernel.results) == 1 else None
        if not isinstance(result, Value) or result.op is None:
            raise ValueError(f"the kernel @{kernel.name} does not return the one value that one of its ops makes")
        if unknown := sorted({*skip} - {*SKIP}):
            raise ValueError(f"`{unknown[0]}` cannot be skipped (what can: {', '.join(SKIP)})")
        self.kernel = kernel
        self.root = result.op
        self.skip = frozenset(f"ptir.{name}" for name in skip)
        self.same = frozenset(same)
        self.products = products
        self.optional = frozenset(p for p in kernel.params if p.name in {*optional})
        used = Counter(v for op in kernel.body for v in op.values())
        shared = {v for v, n in used.items() if n > 1}
        products_of = [op for op in kernel.body if op.defn.name in PRODUCTS]
        self.factored = {op: self._factored(op, whole(op.result, self.skip | {*_SPREADS}, shared)) for op in products_of}
        self.endings = {op.result: self._roots(op) for op in kernel.body if op not in self.factored}
        self.roots = self._roots(self.root)
        self.kinds = frozenset(op.defn.name for op in kernel.body if self._needs(op))

    @classmethod
    def read(cls, source: str, **options: Any) -> dict[str, Example]:
        """The kernels of a text, one per function, by name; `options` as the class takes them. Raises Rejected when it is no
        PTIR, ValueError for a function that is no kernel."""
        given = Source("<example>", source)
        diagnostics = Diagnostics(given)
        program = read_text(given, diagnostics, Options())
        if program is not None:
            verify(program, diagnostics, Options())
        diagnostics.raise_if_errors()
        return {f.name: cls(f, **options) for f in (program.functions if program else ())}

    def matches(self, rw: Rewriter) -> Iterator[Match]:
        """Everywhere in the block of `rw` that the kernel stands, in the order of the roots."""
        for op in rw.body():
            if (found := self.match(op, rw)) is not None:
                yield found

    def match(self, op: Op, rw: Rewriter) -> Match | None:
        """The kernel with `op` as what makes its result, or None."""
        if op.defn.name not in self.roots or (bound := self._solve(op)) is None:
            return None
        inputs = {p.name: bound[p] for p in self.kernel.params if p in bound}
        found = {k.name: v.op for k, v in bound.items() if k.op is not None and isinstance(v, Value) and v.op is not None}
        interior = _interior(op, inputs.values())
        inside = interior | {op}
        used = (v for i in interior for v in i.results if rw.is_result(v) or any(u not in inside for u in rw.users_of(v)))
        return Match(self, op, inputs, found, interior, tuple(used))

    def pattern(self, rewrite: Callable[[Match, Rewriter], bool], effect: Effect = Effect.ROUNDING) -> Pattern:
        """A pattern for the greedy driver: `rewrite` is given every match, and changes nothing when it returns False."""
        return _ExamplePattern(self, rewrite, effect)

    def depth(self) -> int:
        """How many levels of definitions a match looks at, with an op that is skipped between any two."""
        levels: dict[Value, int] = dict.fromkeys(self.kernel.params, 0)
        for op in self.kernel.body:
            levels[op.result] = 1 + max((levels.get(v, 0) for v in op.values()), default=0)
        return levels[self.root.result] * (2 if self.skip else 1)

    # The search

    def _solve(self, root: Op) -> Bound | None:
        """What stands for what, when the kernel ends at `root`. Keeps the ways not yet taken on a stack."""
        stack: list[tuple[Goals, Bound]] = []
        self._push(stack, None, self._result(self.root.result, self.root, root.result, {}))
        for _ in range(_STEPS):
            if not stack:
                return None
            goals, bound = stack.pop()
            if goals is None:
                return bound
            (wanted, found), rest = goals
            self._push(stack, rest, self._ways(wanted, found, bound))
        return None

    def _push(self, stack: list[tuple[Goals, Bound]], rest: Goals, ways: Ways) -> None:
        for pairs, bound in reversed(ways):
            goals = rest
            for pair in reversed(pairs):
                goals = (pair, goals)
            stack.append((goals, bound))

    def _ways(self, wanted: Operand, found: Operand, bound: Bound) -> Ways:
        """The ways in which `found` can stand for `wanted`: what then is to match, and what is bound."""
        wanted = through(wanted, self.skip)
        if _is_number(number := through(wanted, _SPREADS)):
            wanted = number
        if isinstance(wanted, Element):
            fits = isinstance(found, Element) and found.index == wanted.index
            return [([(wanted.value, found.value)], bound)] if fits and isinstance(found, Element) else []
        if isinstance(wanted, Literal) or (wanted.op is not None and wanted.op.defn.is_constant):
            return [([], bound)] if _same_constant(wanted, found) else []
        return self._parameter(wanted, found, bound) if wanted.op is None else self._result(wanted, wanted.op, found, bound)

    def _result(self, wanted: Value, op: Op, found: Operand, bound: Bound) -> Ways:
        """`found`, or what it comes from through optional ops, stands for the result of `op`."""
        if wanted in bound:
            return [([], bound)] if any(bound[wanted] is x for x in self._chain(found)) else []
        if self.products and op.defn.name in PRODUCTS and _is_float(found):
            return self._product(op, found, bound)
        makers = (x.op for x in self._chain(found) if isinstance(x, Value) and x.op is not None)
        same = next((maker for maker in makers if self._alike(op, maker)), None)
        return [*(self._operands(op, same, bound) if same else ()), *self._without_addend(op, found, bound)]

    def _product(self, op: Op, found: Operand, bound: Bound) -> Ways:
        """`found` is the product that `op` makes: the same number, and factors of the same powers in some order."""
        kernel = self.factored[op]
        made: Ways = []
        for factors in kernel.values:
            for product in ways(found, len(factors), self.skip):
                for order in permutations(product.factors):
                    pairs = [(w, f) for (w, p), (f, q) in zip(factors, order, strict=True) if p == q and self._may_stand(w, f)]
                    if len(pairs) == len(factors) and (given := _multiplied(kernel, product, _dtype(found), bound)) is not None:
                        made.append((pairs, {**bound, **given, op.result: through(found, self.skip)}))
        return made

    def _may_stand(self, wanted: Operand, found: Operand) -> bool:
        """Whether `found` can stand for `wanted`, at first sight."""
        names = self.endings.get(wanted, ()) if isinstance(wanted, Value) else ()
        return not names or any(isinstance(x, Value) and x.op is not None and x.op.defn.name in names for x in self._chain(found))

    def _without_addend(self, op: Op, found: Operand, bound: Bound) -> Ways:
        """`found` is the one operand of an addition whose other is a parameter that is missing."""
        for x, other in (op.operands, op.operands[::-1]) if op.defn.name == "ptir.add" else ():
            p = through(x, self.skip | {*_SPREADS})
            if p in self.optional and p not in bound and isinstance(p, Value):
                missing: dict[Value, Operand] = {p: _number(0.0)} if _is_number(p) else {}
                return [([(other, found)], {**bound, **missing})]
        return []

    def _factored(self, op: Op, product: Product) -> Wanted:
        values = [f for f in product.factors if not _is_number(f[0])]
        needed = [f for f in values if f[0] not in self.optional]
        numbers = [f for f in product.factors if _is_number(f[0])]
        return Wanted(_dtype(op.result), product.number, numbers, [values, needed] if len(needed) < len(values) else [values])

    def _needs(self, op: Op) -> bool:
        """Whether nothing else can stand for `op`, of the kernel."""
        free = op.defn.name in (*self.skip, *_SPREADS) or op.defn.is_constant or op in self.factored
        return not free and len(self._roots(op)) == 1

    def _roots(self, op: Op) -> tuple[str, ...]:
        """What a match may end with, where the kernel ends with `op`."""
        if self.products and op.defn.name in PRODUCTS:
            return PRODUCTS
        ways = self._without_addend(op, op.result, {})
        others = [y.op for pairs, _ in ways for y, _ in pairs if isinstance(y, Value) and y.op is not None]
        return (op.defn.name, *(name for other in others for name in self._roots(other)))

    def _parameter(self, wanted: Value, found: Operand, bound: Bound) -> Ways:
        known = bound.get(wanted)
        if _is_number(wanted):
            number = scalar_of(found)
            fits = number is not None and (known is None or exact(scalar_of(known)) == exact(number))
        else:
            fits = known is None or same_operand(known, found)
        return [([], {**bound, wanted: found})] if fits else []

    def _operands(self, wanted: Op, found: Op, bound: Bound) -> Ways:
        """`found` stands for `wanted`: their operands are to match, in one order or either."""
        bound = {**bound, wanted.result: found.result}
        orders = [found.operands, found.operands[::-1]] if wanted.defn.commutes else [found.operands]
        return [(list(zip(wanted.operands, xs, strict=True)), bound) for xs in orders]

    def _chain(self, x: Operand) -> Iterator[Operand]:
        """`x`, and what it comes from through ops that are optional."""
        yield x
        while isinstance(x, Value) and x.op is not None and x.op.defn.name in self.skip:
            x = x.op.operands[0]
            yield x

    def _alike(self, a: Op, b: Op) -> bool:
        """Whether two ops are of one kind, with the attributes that count."""
        if a.defn is not b.defn or len(a.operands) != len(b.operands):
            return False
        counted = [i for i, attr in enumerate(a.defn.attrs) if attr.kind in ENUMERATIONS or attr.name == "target"]
        counted += [a.defn.attr_index[name] for name in self.same & a.defn.attr_index.keys()]
        if not counted:
            return True
        left, right = written(a), written(b)
        return all(exact(left[i]) == exact(right[i]) for i in counted)


@dataclass(slots=True, eq=False)
class _ExamplePattern(Pattern):
    """An example and what to do with its matches."""

    example: Example
    rewrite: Callable[[Match, Rewriter], bool]
    effect: Effect

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.example.kernel.name.replace("_", "-")

    @property
    def roots(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.example.roots

    @property
    def benefit(self) -> int:  # type: ignore[override]
        return len(self.example.kernel.body)

    @property
    def depth(self) -> int:  # type: ignore[override]
        return self.example.depth()

    def match_and_rewrite(self, root: Op, rw: Rewriter) -> bool:
        found = self.example.match(root, rw)
        return found is not None and self.rewrite(found, rw)


def _multiplied(wanted: Wanted, product: Product, dtype: DType, bound: Bound) -> Bound | None:
    """What the number of a product binds; None when it is another."""
    number = wanted.multiplier(product, dtype)
    if number is None or not wanted.parameters:
        return None if number is None else {}
    parameter = wanted.parameters[0][0]
    known = bound.get(parameter) if isinstance(parameter, Value) else None
    fits = known is None or close(float(scalar_of(known)), F64, number, dtype)
    return {parameter: known or _number(number)} if fits and isinstance(parameter, Value) else None


def _number(x: float) -> Literal:
    return arrays.to_literal(np.asarray(x, np.float64), tensor(F64))


def _is_number(x: Operand) -> bool:
    """Whether `x`, of a kernel, stands for a number: a constant of equal elements, or a parameter of rank 0."""
    if isinstance(x, Value) and x.op is None:
        return isinstance(x.type, TensorType) and x.type.rank == 0
    return scalar_of(x) is not None


def _interior(root: Op, inputs: Iterable[Operand]) -> frozenset[Op]:
    """The ops between `inputs` and `root`; numbers are inputs, too."""
    ends = {x for x in inputs if isinstance(x, Value)}
    found: set[Op] = set()
    stack = list(root.operands)
    while stack:
        x = stack.pop()
        v = x.value if isinstance(x, Element) else x
        if isinstance(v, Value) and v not in ends and v.op is not None and v.op not in found and scalar_of(v) is None:
            found.add(v.op)
            stack.extend(v.op.operands)
    return frozenset(found)


def _same_constant(wanted: Operand, found: Operand) -> bool:
    number, other = scalar_of(wanted), scalar_of(found)
    if number is None or other is None:
        literal = literal_of(wanted)
        return literal is not None and literal_of(found) is not None and literal.same(literal_of(found))
    return bool(number == other) or close(number, _dtype(wanted), other, _dtype(found))


def _is_float(x: Operand) -> bool:
    return isinstance(t := operand_type(x), TensorType) and t.dtype.is_float


def _dtype(x: Operand) -> DType:
    t = operand_type(x)
    assert isinstance(t, TensorType)
    return t.dtype
