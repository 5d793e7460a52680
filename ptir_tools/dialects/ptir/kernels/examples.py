"""Patterns by example: a kernel is written once, as a PTIR function, and ops that compute the same are found in other programs.

A search begins at an op that matches the kernel's last op, and goes up from there.

* Two ops match if they have the same declaration, so also the same kind of unary, binary, compare or reduce op. The kinds in
  their attributes must be equal, too: the kind by which a scatter, window or segment reduces, and the target of a custom call.
* Other attributes are compared by the caller, as in gpt.rs. `same` names attributes that must be equal; axes may count from
  either end.
* Types are not compared, so one kernel matches every dtype and shape.
* A parameter binds an operand, and the same one wherever it is used. A parameter of rank 0 binds a number, which is a constant
  whose elements are all equal. A constant of the kernel is a number, too: it must be equal in the narrower of the two dtypes.
* A number matches whether it is broadcast or not, and from any shape.
* Operands of commutative ops are tried in both orders.
* With `products`, products of floats match in any order and grouping of their factors. A division by a number matches a product
  with the number, and a division by a root matches a product with its `rsqrt`. A parameter for a number binds 1 if the program
  has no such factor. Of the ops of a product, `Match.ops` has the last.
* A parameter in `optional`, which the kernel adds (or with `products` multiplies by), may be missing in the program. Then it
  binds nothing, and one of rank 0 binds 0.
* An op in `skip` (of `reshape`, `transpose`, `broadcast_to`, `cast`) may be missing or additional, but not as the kernel's last
  op.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.ir import Attribute, Element, Function, Op, Operand, Value
from ptir_tools.core.records import dataclass
from ptir_tools.core.source import Source
from ptir_tools.core.verify import verify
from ptir_tools.dialects.ptir.kernels.matching import Search
from ptir_tools.dialects.ptir.kernels.products import DEPTH
from ptir_tools.dialects.ptir.text.reader import read as read_text
from ptir_tools.rewrite.constants import scalar_of
from ptir_tools.rewrite.patterns import Effect, Pattern
from ptir_tools.rewrite.rewriter import Rewriter

SKIP = ("reshape", "transpose", "broadcast_to", "cast")


@dataclass(slots=True, frozen=True)
class Match:
    """A match of a kernel. `inputs` are the operands that bind its parameters, `ops` the ops that match its ops, by the names
    of the kernel. `interior` are the ops between, without the root. `escaping` are their results with other uses: the closure
    report."""

    example: Example
    root: Op
    inputs: Mapping[str, Operand]
    ops: Mapping[str, Op]
    interior: frozenset[Op]
    escaping: tuple[Value, ...]

    @property
    def closed(self) -> bool:
        """Whether no interior result is used outside of the match."""
        return not self.escaping

    def number(self, name: str) -> Attribute:
        """The number that the parameter `name`, of rank 0, binds."""
        return scalar_of(self.inputs[name])


class Example:
    """A kernel to match. `skip`: ops that are optional between others. `same`: attributes that must be equal. `products`:
    products match whatever their grouping. `optional`: parameters that may be missing.

    Raises ValueError for a function that is not a kernel, and for an op that cannot be skipped.
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
        self.search = Search(kernel, self.root, self.skip, frozenset(same), frozenset(optional), products)

    @property
    def roots(self) -> tuple[str, ...]:
        """The ops that a match may end with."""
        return self.search.roots

    @property
    def kinds(self) -> frozenset[str]:
        """The ops that every match contains."""
        return self.search.kinds

    @classmethod
    def read(cls, source: str, **options: Attribute) -> dict[str, Example]:
        """The kernels of a text, one per function, by name; `options` as the class takes them. Raises Rejected when it is no
        PTIR, ValueError for a function that is not a kernel."""
        given = Source("<example>", source)
        diagnostics = Diagnostics(given)
        program = read_text(given, diagnostics, Options())
        if program is not None:
            verify(program, diagnostics, Options())
        diagnostics.raise_if_errors()
        return {f.name: cls(f, **options) for f in (program.functions if program else ())}

    def matches(self, rw: Rewriter) -> Iterator[Match]:
        """Every match in the block of `rw`, in the order of the roots."""
        for op in rw.body():
            if (found := self.match(op, rw)) is not None:
                yield found

    def match(self, op: Op, rw: Rewriter) -> Match | None:
        """The match whose root is `op`, or None."""
        if op.defn.name not in self.roots or (bound := self.search.solve(op)) is None:
            return None
        inputs = {p.name: bound[p] for p in self.kernel.params if p in bound}
        found = {k.name: v.op for k, v in bound.items() if k.op is not None and isinstance(v, Value) and v.op is not None}
        interior = _interior(op, inputs.values())
        inside = interior | {op}
        used = (v for i in interior for v in i.results if rw.is_result(v) or any(u not in inside for u in rw.users_of(v)))
        return Match(self, op, inputs, found, interior, tuple(used))

    def pattern(self, rewrite: Callable[[Match, Rewriter], bool], effect: Effect = Effect.ROUNDING) -> Pattern:
        """A pattern for the greedy driver. It calls `rewrite` with every match; a False result means no change."""
        return _ExamplePattern(self, rewrite, effect)

    def depth(self) -> int:
        """The number of levels of definitions that a match reads, with one skipped op between any two, and several ops for a
        product."""
        levels: dict[Value, int] = dict.fromkeys(self.kernel.params, 0)
        for op in self.kernel.body:
            levels[op.result] = 1 + max((levels.get(v, 0) for v in op.values()), default=0)
        return levels[self.root.result] * (2 if self.skip else 1) * (DEPTH if self.search.products else 1)


@dataclass(slots=True, eq=False)
class _ExamplePattern(Pattern):
    """An example and the function that rewrites its matches."""

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


def _interior(root: Op, inputs: Iterable[Operand]) -> frozenset[Op]:
    """The ops between `inputs` and `root`; constants count as inputs."""
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
