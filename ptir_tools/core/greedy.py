"""The greedy driver: apply patterns and fold until nothing changes. Specification: PTIR rewrite system, "Greedy driver".

The worklist is a stack, seeded so that ops are popped bottom-up; an edit puts back what may match now: the op that changed
and its users, as far up as the deepest pattern looks. An op on the worklist knows how far below it the nearest change is: a
pattern that failed there is not tried again until something it looks at has changed.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ptir_tools.core.ir import Element, Literal, Op, Operand, Region, Value
from ptir_tools.core.limits import LIMITS, LimitExceeded, Limits
from ptir_tools.core.opdef import exact
from ptir_tools.core.patterns import Effect, FrozenPatternSet, Pattern, has_floats
from ptir_tools.core.rewriter import Rewriter

CostModel = Callable[[Op, Pattern, Rewriter], int]
Fold = Callable[[Op, Rewriter], Operand | None]
_FOLD_DEPTH = 2  # folding looks at the op and at what defines its operands


@dataclass(slots=True)
class GreedyConfig:
    """How to drive. `effect`: the most that a rewrite of floats may change. `max_iterations` bounds rewrites and folds.

    `cost_model` replaces the benefit in the choice among patterns. `seed` pops the worklist in a random order (tests).
    `expensive_checks`: a success changes the block, a failure does not, and the block verifies after each step.
    """

    max_iterations: int | None = None
    enable_constant_fold: bool = True
    enable_dce: bool = True
    cost_model: CostModel | None = None
    expensive_checks: bool = False
    effect: Effect = Effect.ORDER
    seed: int | None = None
    limits: Limits = LIMITS
    log: Callable[[dict[str, Any]], None] | None = None


@dataclass(slots=True)
class GreedyStats:
    """What was done; `patterns` counts rewrites by pattern name."""

    rewrites: int = 0
    folds: int = 0
    erased: int = 0
    patterns: Counter[str] = field(default_factory=Counter)


class BrokenPattern(Exception):
    """A pattern broke a rule of the driver: a fault of the pattern, found by the expensive checks."""


def apply_patterns_and_fold_greedily(
    rw: Rewriter, patterns: FrozenPatternSet, config: GreedyConfig | None = None, fold: Fold | None = None
) -> GreedyStats:
    """Rewrite the block of `rw` and the blocks nested in it to a fixpoint, or until `max_iterations`.

    Raises LimitExceeded, naming the patterns, when they undo each other.
    """
    return _Driver(rw, patterns, config or GreedyConfig(), fold).run()


class _Driver:
    def __init__(self, rw: Rewriter, patterns: FrozenPatternSet, config: GreedyConfig, fold: Fold | None) -> None:
        self.rw = rw
        self.patterns = patterns
        self.config = config
        self.fold = fold if config.enable_constant_fold else None
        self.stats = GreedyStats()
        self.stack: list[Op] = []
        self.queued: dict[Op, int] = {}  # what is on the stack: how far below it the nearest change is; 0 is the op itself
        self.inserted: list[Op] = []
        self.recent: deque[str] = deque(maxlen=16)
        self.watched = config.expensive_checks or config.log is not None
        self.random = None if config.seed is None else random.Random(config.seed)

    def run(self) -> GreedyStats:
        rw, config, stats = self.rw, self.config, self.stats
        if config.enable_dce:
            stats.erased += erase_dead(rw)
        self.stack = [op for b in rw.blocks() for op in rw.body(b) if not op.defn.is_constant]
        self.queued = dict.fromkeys(self.stack, 0)
        allowed = config.limits.rewrites_per_op * max(len(self.stack), 64)
        if config.max_iterations is not None:
            allowed = min(allowed, config.max_iterations)
        rw.listen = self.touched
        alive = rw.order.slots
        while self.stack and stats.rewrites + stats.folds < allowed:
            if self.random is not None:
                at = self.random.randrange(len(self.stack))
                self.stack[at], self.stack[-1] = self.stack[-1], self.stack[at]
            op = self.stack.pop()
            distance = self.queued.pop(op)
            if op in alive:
                self.visit(op, distance)
        rw.listen = None
        if self.stack and allowed != config.max_iterations:
            names = ", ".join(f"`{n}`" for n in sorted(set(self.recent)))
            raise LimitExceeded(f"{allowed} rewrites reach no fixpoint: {names} undo each other", "--max-iterations")
        return self.stats

    def touched(self, op: Op, changed: bool) -> None:
        """The rewriter inserted `op` or changed its operands; or it took away a use, which matters when few are left."""
        if changed:
            if self.config.log is not None:
                self.inserted.append(op)
            self.requeue(op, 0)
            return
        uses = self.rw.uses(op.results[0]) if len(op.results) == 1 else sum(map(self.rw.uses, op.results))
        if uses == 0:
            self.queue(op, self.patterns.depth)
        elif uses <= 2:  # two may be those of one user, or of two that are equal
            self.requeue_users(op, 0)

    def queue(self, op: Op, distance: int) -> None:
        """Put `op` on the worklist: what is `distance` below it has changed."""
        before = self.queued.get(op)
        if before is None:
            self.stack.append(op)
            self.queued[op] = distance
        elif distance < before:
            self.queued[op] = distance

    def requeue(self, op: Op, distance: int) -> None:
        """Put `op` on the worklist, and what looks at it, as far up as patterns look; what failed there may match now."""
        if distance < self.patterns.reach.get(op.defn, _FOLD_DEPTH):
            self.queue(op, distance)
        self.requeue_users(op, distance)

    def requeue_users(self, op: Op, distance: int) -> None:
        if distance + 1 < self.patterns.depth:
            watchers = self.patterns.watchers.get(op.defn, self.patterns.any_watchers)
            if watchers:
                for v in op.results:
                    for user in self.rw.users_of(v):
                        if user.defn in watchers:
                            self.requeue(user, distance + 1)

    def visit(self, op: Op, distance: int) -> None:
        """Do what can be done at `op`. Patterns that look less than `distance` down have failed there before."""
        if op.defn.is_pure and self.config.enable_dce and self.rw.unused(op):
            self.rw.erase(op)
            self.stats.erased += 1
            return
        candidates = self.patterns.candidates(op)
        if candidates and self.rewrite(op, candidates, distance):
            return
        if self.fold is not None and op.results and distance < _FOLD_DEPTH and (by := self.fold(op, self.rw)) is not None:
            self.replace(op, by)

    def rewrite(self, op: Op, candidates: Sequence[Pattern], distance: int) -> bool:
        """Apply the first pattern that matches at `op`."""
        if (model := self.config.cost_model) is not None:
            candidates = sorted(candidates, key=lambda p: -model(op, p, self.rw))
        effect = self.config.effect if has_floats(op) else Effect.RANGE
        for p in candidates:
            if p.depth <= distance or p.effect > effect:
                continue
            if self.attempt(op, p) if self.watched else p.match_and_rewrite(op, self.rw):
                self.stats.rewrites += 1
                self.stats.patterns[p.name] += 1
                self.recent.append(p.name)
                if self.rw.alive(op):
                    self.queue(op, 0)
                return True
        return False

    def attempt(self, op: Op, p: Pattern) -> bool:
        """One pattern at one op, logged and checked as the configuration asks."""
        checks, log = self.config.expensive_checks, self.config.log
        before, text = (fingerprint(self.rw) if checks else None), op_text(op)
        self.inserted.clear()
        success = p.match_and_rewrite(op, self.rw)
        if checks:
            self.check(p.name, success, before)
        if success and log is not None:
            self.report(log, p.name, op, text)
        return success

    def replace(self, op: Op, by: Operand) -> None:
        """Replace `op` by what it folds to: an operand that equals its result, or a constant."""
        if not self.rw.accepts(op.results[0], by):
            return
        before = fingerprint(self.rw) if self.config.expensive_checks else None
        text = op_text(op) if self.config.log is not None else ""
        self.inserted.clear()
        if isinstance(by, Literal):
            by = self.rw.materialize_constant(op, by)
        self.rw.replace_all_uses(op.results[0], by)
        self.rw.erase(op)
        self.stats.folds += 1
        self.recent.append("fold")
        if self.config.expensive_checks:
            self.check("fold", True, before)
        if self.config.log is not None:
            self.report(self.config.log, "fold", op, text)

    def check(self, name: str, success: bool, before: object) -> None:
        changed = fingerprint(self.rw) != before
        if success is not changed:
            raise BrokenPattern(f"`{name}` {'succeeded and changed nothing' if success else 'failed and changed the program'}")
        if success and (faults := self.rw.verify()):
            raise BrokenPattern(f"after `{name}`: {faults[0]}")

    def report(self, log: Callable[[dict[str, Any]], None], name: str, root: Op, before: str) -> None:
        after = [op_text(op) for op in dict.fromkeys(self.inserted) if self.rw.alive(op)]
        log({"pattern": name, "root": before, "before": before, "after": after, "loc": root.loc})


def erase_dead(rw: Rewriter) -> int:
    """Erase what nobody uses, last to first, so that what only it used is dead in time. Returns how many ops."""
    erased = 0
    for block in rw.blocks():
        if block is not rw.block and block not in rw.owner:
            continue  # it went with its op
        for op in reversed(list(rw.body(block))):
            if op.defn.is_pure and rw.unused(op):
                rw.erase(op)
                erased += 1
    return erased


def fingerprint(rw: Rewriter) -> tuple[object, ...]:
    """Equal for equal blocks: ops by declaration, exact attributes, operands by position, types; names do not count."""
    numbers: dict[Value, int] = {}

    def key(x: Operand) -> object:
        if isinstance(x, Literal):
            return x.key
        return numbers.setdefault(x, len(numbers)) if isinstance(x, Value) else (key(x.value), x.index)

    def of(block: Region) -> tuple[object, ...]:
        parts: list[object] = [key(p) for p in block.params]
        for op in rw.body(block):
            regions = tuple(id(r) if r.isolated else of(r) for r in op.regions)
            operands, results = tuple(map(key, op.operands)), tuple((key(v), v.type) for v in op.results)
            parts.append((op.defn, exact(op.attrs), operands, results, regions))
        return (*parts, tuple(map(key, block.results)))

    return of(rw.block)


def op_text(op: Op) -> str:
    """The op in one line, for logs: `%y = add(%x, dense<…>) axis[1] -> tensor<f32, 4>`."""
    attrs = "".join(f" {a.name}[{v}]" for a, v in zip(op.defn.attrs, op.attrs, strict=True) if v != a.default)
    results = ", ".join(f"%{v.name}" for v in op.results)
    types = ", ".join(str(v.type) for v in op.results)
    return f"{results} = {op.defn.short}({', '.join(map(_operand_text, op.operands))}){attrs} -> {types}"


def _operand_text(x: Operand) -> str:
    if isinstance(x, Literal):
        return f"literal {x.type}"
    return f"%{x.value.name}[{x.index}]" if isinstance(x, Element) else f"%{x.name}"
