"""The search for the ops of a kernel in a program, from the one that makes its result up: what can match what. `examples` has
the rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations

from ptir_tools.core import arrays
from ptir_tools.core.dtypes import F64, DType
from ptir_tools.core.ir import Element, Function, Literal, Op, Operand, Value, exact, operand_type
from ptir_tools.core.lazy import np
from ptir_tools.core.typed import TypeAlias
from ptir_tools.core.types import TensorType, tensor
from ptir_tools.dialects.ptir.gptrs.lowering import written
from ptir_tools.dialects.ptir.kernels.products import PRODUCTS, Product, Wanted, close, through, ways, whole
from ptir_tools.dialects.ptir.ops.kinds import ENUMERATIONS
from ptir_tools.rewrite.constants import literal_of, same_operand, scalar_of
from ptir_tools.rewrite.vocabulary import tensor_type

_SPREADS = ("ptir.broadcast_to",)
_STEPS = 100_000  # of one search; a kernel that needs more in some program does not match there

Bound = Mapping[Value, Operand]  # what matches a parameter, or for the result of an op, of the kernel
Goals: TypeAlias = (
    "tuple[tuple[Operand, Operand], Goals] | None"  # what is still to match, nearest first: ((kernel's, program's), more)
)
Ways = list[tuple[Sequence[tuple[Operand, Operand]], Bound]]


class Search:
    """A kernel that ends with `root`, made ready to be sought. `roots`: the ops that a match may end with; `kinds`: those that
    every match has. Raises ValueError for a product of two numbers that are parameters: they cannot be distinguished."""

    def __init__(
        self, kernel: Function, root: Op, skip: frozenset[str], same: frozenset[str], optional: frozenset[str], products: bool
    ) -> None:
        self.root = root
        self.skip = skip
        self.same = same
        self.products = products
        self.optional = frozenset(p for p in kernel.params if p.name in optional)
        used = Counter(v for op in kernel.body for v in op.values())
        self.shared = frozenset(v for v, n in used.items() if n > 1)
        self.factored = {op: self._factored(op) for op in kernel.body if products and op.defn.name in PRODUCTS}
        self.endings = {op.result: self._roots(op) for op in kernel.body if op not in self.factored}
        self.roots = self._roots(root)
        self.kinds = frozenset(op.defn.name for op in kernel.body if self._needs(op))

    def solve(self, root: Op) -> Bound | None:
        """What matches what, when the kernel ends at `root`. Keeps the ways not yet taken on a stack."""
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
        """The ways in which `found` can match `wanted`: what then is to match, and what is bound."""
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
        """`found`, or what it comes from through optional ops, matches the result of `op`."""
        if wanted in bound:
            return [([], bound)] if any(bound[wanted] is x for x in self._chain(found)) else []
        if op in self.factored and _is_float(found):
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
                    if len(pairs) < len(factors):
                        continue
                    if (given := _multiplied(kernel, product, tensor_type(found).dtype, bound)) is not None:
                        made.append((pairs, {**bound, **given, op.result: through(found, self.skip)}))
        return made

    def _may_stand(self, wanted: Operand, found: Operand) -> bool:
        """Whether `found` can match `wanted`, at first sight."""
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

    def _factored(self, op: Op) -> Wanted:
        product = whole(op.result, self.skip | {*_SPREADS}, self.shared)
        values = [f for f in product.factors if not _is_number(f[0])]
        needed = [f for f in values if f[0] not in self.optional]
        numbers = [f for f in product.factors if _is_number(f[0])]
        if len(numbers) > 1:
            raise ValueError(f"two numbers that are multiplied in %{op.result.name} cannot be distinguished")
        wanted = [values, needed] if len(needed) < len(values) else [values]
        return Wanted(tensor_type(op.result).dtype, product.number, numbers, wanted)

    def _needs(self, op: Op) -> bool:
        """Whether nothing else can match `op`, of the kernel."""
        free = op.defn.name in (*self.skip, *_SPREADS) or op.defn.is_constant or op in self.factored
        return not free and len(self._roots(op)) == 1

    def _roots(self, op: Op) -> tuple[str, ...]:
        """What a match may end with, where the kernel ends with `op`."""
        if op in self.factored:
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
        """`found` matches `wanted`: their operands are to match, in one order or either."""
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
    """Whether `x`, of a kernel, is a number: a constant of equal elements, or a parameter of rank 0."""
    if isinstance(x, Value) and x.op is None:
        return isinstance(x.type, TensorType) and x.type.rank == 0
    return scalar_of(x) is not None


def _same_constant(wanted: Operand, found: Operand) -> bool:
    number, other = scalar_of(wanted), scalar_of(found)
    if number is None or other is None:
        literal = literal_of(wanted)
        return literal is not None and literal_of(found) is not None and literal.same(literal_of(found))
    return bool(number == other) or close(number, tensor_type(wanted).dtype, other, tensor_type(found).dtype)


def _is_float(x: Operand) -> bool:
    return isinstance(t := operand_type(x), TensorType) and t.dtype.is_float
