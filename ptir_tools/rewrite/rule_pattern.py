"""What a rule written as text (`rewrite.rules`) becomes: a pattern with one expression on its left, compiled when first tried."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ptir_tools.core.diagnostics import Violation
from ptir_tools.core.ir import Literal, Op, Operand, Value
from ptir_tools.core.opdef import OpDef, operand_type
from ptir_tools.core.verify import compatible
from ptir_tools.rewrite.patterns import Effect, Look, Origin, Pattern
from ptir_tools.rewrite.rewriter import Rewriter

Env = dict[str, Any]
Match = Callable[[Op, Rewriter], Env | None]


@dataclass(slots=True, eq=False, kw_only=True)
class RulePattern(Pattern):
    """One orientation of a rule."""

    name: str
    roots: tuple[str, ...]
    benefit: int
    depth: int
    effect: Effect
    wants: Sequence[frozenset[OpDef | type[Literal]] | None]
    numbers: tuple[tuple[int, Any], ...]
    looks: Sequence[Look]
    uses: Sequence[Look]  # those that look for how often something is used
    same: Sequence[tuple[int, int]]  # operands of the root that must be one
    text: str  # a lambda of the root and the rewriter: the names that the rule binds when it matches
    known: dict[str, Any]  # what the text refers to
    build: Callable[[Env, Site], Operand]
    stands: str  # the name on the right side, where that is all there is
    match: Match | None = None  # the text, compiled when first wanted

    def admits(self, origins: Sequence[Origin]) -> bool:
        if len(origins) != len(self.wants) or any(origins[i] is not origins[j] for i, j in self.same):
            return False
        return all(w is None or o in w for o, w in zip(origins, self.wants, strict=True))

    def looks_through(self) -> Sequence[Look]:
        return self.looks

    def looks_for_uses(self) -> Sequence[Look]:
        return self.uses

    def match_and_rewrite(self, root: Op, rw: Rewriter) -> bool:
        if self.match is None:
            self.match = compiled(self.text, self.name, self.known)
        if not (env := self.match(root, rw)):
            return False
        result = root.results[0]
        if self.stands:
            return _stands(env[self.stands], root, rw)
        site = Site(result)
        try:
            by = self.build(env, site)
        except Violation:
            return False
        if operand_type(by) is not result.type and not site.declare(by):
            return False
        if not rw.accepts(result, by):
            return False
        for op in site.ops:
            rw.insert_before(root, op)
        rw.replace(root, by)
        return True


def _stands(by: Operand, root: Op, rw: Rewriter) -> bool:
    """Let what is there already stand for `root`."""
    result = root.results[0]
    if operand_type(by) is not result.type or not rw.accepts(result, by):
        return False
    rw.replace(root, by)
    return True


@dataclass(slots=True, eq=False)
class Site:
    """The ops of a right side in the making: nothing is inserted before the whole is known to be well typed."""

    result: Value
    ops: list[Op] = field(default_factory=list)

    def declare(self, by: Operand) -> bool:
        """Give the new value the root's type where its rule leaves extents open; False when the types differ."""
        if not (isinstance(by, Value) and self.ops and by.op is self.ops[-1] and compatible(self.result.type, by.type)):
            return False
        by.type = self.result.type
        return True


def compiled(text: str, rule: str, known: dict[str, Any]) -> Any:
    """The value of an expression in the text of `rule`, over `known`."""
    return eval(compile(text, f"<rule {rule}>", "eval"), known)  # of our own rules, never of a program
