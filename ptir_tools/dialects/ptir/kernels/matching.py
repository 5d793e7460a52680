"""The search for a match of a kernel, from its result upward. `examples` describes the rules."""

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
from ptir_tools.dialects.ptir.kernels.products import (
    PRODUCTS,
    Product,
    ProductPattern,
    close,
    factorizations,
    full_product,
    through,
)
from ptir_tools.dialects.ptir.ops.kinds import ENUMERATIONS
from ptir_tools.rewrite.constants import literal_of, same_operand, scalar_of
from ptir_tools.rewrite.vocabulary import tensor_type

_SPREADS = ("ptir.broadcast_to",)
_STEPS = 100_000  # steps of one search; if it needs more, the kernel does not match

Bound = Mapping[Value, Operand]  # the operand that matches a parameter of the kernel, or the result of one of its ops
Goals: TypeAlias = (
    "tuple[tuple[Operand, Operand], Goals] | None"  # the pairs still to match, nearest first: ((kernel's, program's), more)
)
Ways = list[tuple[Sequence[tuple[Operand, Operand]], Bound]]


class Search:
    """A kernel that ends with `root`, prepared for matching. `roots`: the ops that a match may end with. `kinds`: the ops that
    every match contains. Raises ValueError for a product of two scalar parameters, which cannot be distinguished."""

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
        """The bindings of a match that ends at `root`, or None. Alternatives not yet tried are kept on a stack."""
        stack: list[tuple[Goals, Bound]] = []
        self._push(stack, None, self._result(self.root.result, self.root, root.result, {}))
        for _ in range(_STEPS):
            if not stack:
                return None
            goals, bound = stack.pop()
            if goals is None:
                return bound
            (pattern, found), rest = goals
            self._push(stack, rest, self._alternatives(pattern, found, bound))
        return None

    def _push(self, stack: list[tuple[Goals, Bound]], rest: Goals, factorizations: Ways) -> None:
        for pairs, bound in reversed(factorizations):
            goals = rest
            for pair in reversed(pairs):
                goals = (pair, goals)
            stack.append((goals, bound))

    def _alternatives(self, pattern: Operand, found: Operand, bound: Bound) -> Ways:
        """The alternatives in which `found` can match `pattern`: the remaining pairs to match, and the bindings."""
        pattern = through(pattern, self.skip)
        if _is_number(number := through(pattern, _SPREADS)):
            pattern = number
        if isinstance(pattern, Element):
            fits = isinstance(found, Element) and found.index == pattern.index
            return [([(pattern.value, found.value)], bound)] if fits and isinstance(found, Element) else []
        if isinstance(pattern, Literal) or (pattern.op is not None and pattern.op.defn.is_constant):
            return [([], bound)] if _same_constant(pattern, found) else []
        return self._parameter(pattern, found, bound) if pattern.op is None else self._result(pattern, pattern.op, found, bound)

    def _result(self, pattern: Value, op: Op, found: Operand, bound: Bound) -> Ways:
        """Match `found`, or its source through optional ops, with the result of `op`."""
        if pattern in bound:
            return [([], bound)] if any(bound[pattern] is x for x in self._through_optional(found)) else []
        if op in self.factored and _is_float(found):
            return self._product(op, found, bound)
        makers = (x.op for x in self._through_optional(found) if isinstance(x, Value) and x.op is not None)
        same = next((maker for maker in makers if self._same_kind(op, maker)), None)
        return [*(self._operands(op, same, bound) if same else ()), *self._without_addend(op, found, bound)]

    def _product(self, op: Op, found: Operand, bound: Bound) -> Ways:
        """Match `found` with the product that `op` makes: the same constant, and factors of the same powers in some order."""
        kernel = self.factored[op]
        made: Ways = []
        for factors in kernel.values:
            for product in factorizations(found, len(factors), self.skip):
                for order in permutations(product.factors):
                    pairs = [(w, f) for (w, p), (f, q) in zip(factors, order, strict=True) if p == q and self._may_match(w, f)]
                    if len(pairs) < len(factors):
                        continue
                    if (given := _bind_multiplier(kernel, product, tensor_type(found).dtype, bound)) is not None:
                        made.append((pairs, {**bound, **given, op.result: through(found, self.skip)}))
        return made

    def _may_match(self, pattern: Operand, found: Operand) -> bool:
        """A quick test whether `found` can match `pattern`."""
        names = self.endings.get(pattern, ()) if isinstance(pattern, Value) else ()
        return not names or any(
            isinstance(x, Value) and x.op is not None and x.op.defn.name in names for x in self._through_optional(found)
        )

    def _without_addend(self, op: Op, found: Operand, bound: Bound) -> Ways:
        """Match `found` with the one operand of an addition whose other operand is a missing parameter."""
        for x, other in (op.operands, op.operands[::-1]) if op.defn.name == "ptir.add" else ():
            p = through(x, self.skip | {*_SPREADS})
            if p in self.optional and p not in bound and isinstance(p, Value):
                missing: dict[Value, Operand] = {p: _number(0.0)} if _is_number(p) else {}
                return [([(other, found)], {**bound, **missing})]
        return []

    def _factored(self, op: Op) -> ProductPattern:
        product = full_product(op.result, self.skip | {*_SPREADS}, self.shared)
        values = [f for f in product.factors if not _is_number(f[0])]
        needed = [f for f in values if f[0] not in self.optional]
        numbers = [f for f in product.factors if _is_number(f[0])]
        if len(numbers) > 1:
            raise ValueError(f"two numbers that are multiplied in %{op.result.name} cannot be distinguished")
        alternatives = [values, needed] if len(needed) < len(values) else [values]
        return ProductPattern(tensor_type(op.result).dtype, product.number, numbers, alternatives)

    def _needs(self, op: Op) -> bool:
        """Whether the op of the kernel can only match an op of the same kind."""
        free = op.defn.name in (*self.skip, *_SPREADS) or op.defn.is_constant or op in self.factored
        return not free and len(self._roots(op)) == 1

    def _roots(self, op: Op) -> tuple[str, ...]:
        """The ops that a match may end with, where the kernel ends with `op`."""
        if op in self.factored:
            return PRODUCTS
        factorizations = self._without_addend(op, op.result, {})
        others = [y.op for pairs, _ in factorizations for y, _ in pairs if isinstance(y, Value) and y.op is not None]
        return (op.defn.name, *(name for other in others for name in self._roots(other)))

    def _parameter(self, pattern: Value, found: Operand, bound: Bound) -> Ways:
        known = bound.get(pattern)
        if _is_number(pattern):
            number = scalar_of(found)
            fits = number is not None and (known is None or exact(scalar_of(known)) == exact(number))
        else:
            fits = known is None or same_operand(known, found)
        return [([], {**bound, pattern: found})] if fits else []

    def _operands(self, pattern: Op, found: Op, bound: Bound) -> Ways:
        """Match the operands of `found` with those of `pattern`, in one order or both."""
        bound = {**bound, pattern.result: found.result}
        orders = [found.operands, found.operands[::-1]] if pattern.defn.commutes else [found.operands]
        return [(list(zip(pattern.operands, xs, strict=True)), bound) for xs in orders]

    def _through_optional(self, x: Operand) -> Iterator[Operand]:
        """`x`, and its sources through optional ops."""
        yield x
        while isinstance(x, Value) and x.op is not None and x.op.defn.name in self.skip:
            x = x.op.operands[0]
            yield x

    def _same_kind(self, a: Op, b: Op) -> bool:
        """Whether two ops are of one kind, with equal significant attributes."""
        if a.defn is not b.defn or len(a.operands) != len(b.operands):
            return False
        counted = [i for i, attr in enumerate(a.defn.attrs) if attr.kind in ENUMERATIONS or attr.name == "target"]
        counted += [a.defn.attr_index[name] for name in self.same & a.defn.attr_index.keys()]
        if not counted:
            return True
        left, right = written(a), written(b)
        return all(exact(left[i]) == exact(right[i]) for i in counted)


def _bind_multiplier(pattern: ProductPattern, product: Product, dtype: DType, bound: Bound) -> Bound | None:
    """The bindings with the constant of a product; None when it does not match."""
    number = pattern.multiplier(product, dtype)
    if number is None or not pattern.parameters:
        return None if number is None else {}
    parameter = pattern.parameters[0][0]
    known = bound.get(parameter) if isinstance(parameter, Value) else None
    fits = known is None or close(float(scalar_of(known)), F64, number, dtype)
    return {parameter: known or _number(number)} if fits and isinstance(parameter, Value) else None


def _number(x: float) -> Literal:
    return arrays.to_literal(np.asarray(x, np.float64), tensor(F64))


def _is_number(x: Operand) -> bool:
    """Whether `x` of a kernel is a number: a constant of equal elements, or a scalar parameter."""
    if isinstance(x, Value) and x.op is None:
        return isinstance(x.type, TensorType) and x.type.rank == 0
    return scalar_of(x) is not None


def _same_constant(pattern: Operand, found: Operand) -> bool:
    number, other = scalar_of(pattern), scalar_of(found)
    if number is None or other is None:
        literal = literal_of(pattern)
        return literal is not None and literal_of(found) is not None and literal.same(literal_of(found))
    return bool(number == other) or close(number, tensor_type(pattern).dtype, other, tensor_type(found).dtype)


def _is_float(x: Operand) -> bool:
    return isinstance(t := operand_type(x), TensorType) and t.dtype.is_float
