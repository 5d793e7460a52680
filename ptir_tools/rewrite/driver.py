"""The greedy driver: apply patterns and fold until nothing changes. Specification: PTIR rewrite system, "Greedy driver".

The worklist is a stack, seeded so that ops are popped bottom-up. An edit queues the changed op and, if nothing matches there, its
users, as far up as patterns look. The failure cache is the distance stored with an op on the worklist: how many levels below it
the nearest change is. A pattern that failed before is tried again only if it looks that far.

A block at its fixpoint is not searched again: the next run with the same patterns begins with the ops edited since.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Container, Iterator, Sequence

from ptir_tools.core.diagnostics import PluginFault, is_plugin
from ptir_tools.core.ir import ELEMENTWISE, Literal, Op, Value
from ptir_tools.core.lazy import lazy
from ptir_tools.core.limits import LimitExceeded, current
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.source import Loc
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import TupleType
from ptir_tools.rewrite.edits import CHANGED, FREED, INSERTED, Event
from ptir_tools.rewrite.fold import FOLD_DEPTH, FoldResult, Materialize, ReplacedBy, declared_fold, fold_each, try_fold
from ptir_tools.rewrite.pattern_set import Candidates, FrozenPatternSet
from ptir_tools.rewrite.patterns import FLOATS, Effect, Pattern, has_floats
from ptir_tools.rewrite.rewriter import Rewriter, Snapshot
from ptir_tools.rewrite.step_log import BrokenPattern, Log, Watch, op_text

if TYPE_CHECKING:
    import random
else:
    random = lazy("random")

OURS = "ptir"  # the owner of rules that no plug-in adds
_AGAIN = 1024  # rewrites at one location, besides one for each op
_WIDE = 16  # operands; an op with more is delayed
_SEED, _NEW = -1, -2  # distances: what uses the op is on the worklist, too, and if it is new, perhaps nothing does

CostModel = Callable[[Op, Pattern, Rewriter], int]


@dataclass(slots=True)
class GreedyConfig:
    """Options of the driver. `effect`: the most that a rewrite of floats may change. `max_iterations` bounds rewrites and folds.

    `cost_model` replaces the benefit in the choice among patterns. `seed` pops the worklist in a random order (tests).
    `expensive_checks`: a success changes the block, a failure does not, the block verifies after each step, and at the end
    nothing matches any more. `fold_first`: declared folds are applied before patterns, not after.
    """

    max_iterations: int | None = None
    enable_constant_fold: bool = True
    enable_dce: bool = True
    cost_model: CostModel | None = None
    expensive_checks: bool = False
    fold_first: bool = False
    effect: Effect = Effect.ORDER
    seed: int | None = None
    log: Log | None = None


@dataclass(slots=True)
class GreedyStats:
    """The counts of a run; `patterns` counts rewrites by pattern name."""

    rewrites: int = 0
    folds: int = 0
    erased: int = 0
    patterns: Counter[str] = field(default_factory=Counter)


def apply_patterns_and_fold_greedily(rw: Rewriter, patterns: FrozenPatternSet, config: GreedyConfig | None = None) -> GreedyStats:
    """Rewrite the block of `rw` and the blocks nested in it to a fixpoint, or until `max_iterations`.

    A pattern or fold that raises is reported as a warning "BrokenRule"; the block is restored and driven again without that rule.
    One of a plug-in is a PluginFault. Under expensive checks, or where `rw` has no diagnostics, the exception propagates. Raises
    Endless, naming the patterns, when they undo each other; BrokenPattern under expensive checks.
    """
    config, broken = config or GreedyConfig(), set[str]()
    if config.expensive_checks or rw.diagnostics is None:
        return _Driver(rw, patterns, config).run()
    before = Snapshot(rw)
    while True:
        try:
            return _Driver(rw, patterns, config, broken).run()
        except _Failed as fault:
            rw.restore(before)
            if is_plugin(fault.owner.rpartition(":")[0]):
                raise PluginFault(None, f"{fault.owner}: the rule `{fault.rule}` failed: {fault}") from None
            broken.add(fault.rule)
            message = f"the rule `{fault.rule}` failed and was left out, which is a fault of {fault.owner}: {fault}"
            rw.diagnostics.warning("BrokenRule", message, fault.loc)
            before.reported = len(rw.diagnostics.items)
            if config.log is not None:
                record = {"pattern": fault.rule, "root": fault.root, "before": fault.root, "after": [], "loc": fault.loc}
                config.log({"event": "failed", **record})


class Endless(LimitExceeded):
    """The patterns called `rules` are applied without end."""

    def __init__(self, message: str, rules: Sequence[str], loc: Loc) -> None:
        super().__init__(message, loc=loc)
        self.rules = rules


class _Failed(Exception):
    """A pattern or fold, called `rule`, raised at `op`."""

    def __init__(self, rule: str, op: Op, error: Exception, owner: str = "") -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.rule, self.root, self.loc = rule, op_text(op), op.loc
        self.owner = owner or _owner(error)


def _owner(error: Exception) -> str:
    """The owner of the rule that raised: `ptir`, or the file and line in a plug-in. The rule is the first frame outside of
    `ptir`."""
    at = error.__traceback__
    while at is not None:
        module = str(at.tb_frame.f_globals.get("__name__"))
        if not module.startswith("ptir_tools."):
            return f"{at.tb_frame.f_code.co_filename}:{at.tb_lineno}"
        if not module.startswith("ptir_tools.rewrite."):
            break
        at = at.tb_next
    return OURS


def _place_of(p: Pattern) -> str:
    """The owner of a pattern: `ptir`, or its file and line in a plug-in."""
    function = getattr(p, "function", type(p).match_and_rewrite)
    if function.__module__.startswith("ptir_tools."):
        return OURS
    return f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"


def _on_constants(op: Op) -> bool:
    """Whether it is an elementwise op on constants."""
    for x in op.operands:
        if x.__class__ is Value and ((result := x.op) is None or not result.defn.is_constant):
            return False
    return bool(op.operands) and ELEMENTWISE in op.defn.traits


def _folding(op: Op) -> str:
    return f"fold of {op.defn.name}"


class _Driver:
    def __init__(
        self, rw: Rewriter, patterns: FrozenPatternSet, config: GreedyConfig, broken: Container[str] | None = None
    ) -> None:
        self.rw = rw
        self.broken = broken  # disabled rules; None: exceptions of rules propagate
        self.patterns = patterns
        effects = Effect.RANGE, config.effect  # of integers and of floats
        self.watchers = [[patterns.watchers(uses, effect) for effect in effects] for uses in (False, True)]
        self.config = config
        self.effect = config.effect
        self.fold_first = config.fold_first and config.enable_constant_fold
        self.stats = GreedyStats()
        self.seeds = 0  # so many of the initial ops are still to be visited, last to first
        self.stack: list[Op] = []  # ops to visit before them
        self.queued: dict[Op, int] = {}  # by op on the stack: the distance to the nearest change below it
        self.later: list[Op] = []  # ops delayed until the stack is empty
        self.dead: list[Op] = []  # ops that lost their last use
        self.tried = -1  # the edit count at which refused rewrites were tried again
        self.left = 0  # the remaining rewrites and folds
        self.recent: deque[str] = deque(maxlen=16)
        self.fewest = rw.order.count  # all ops so far
        self.again: dict[Loc, int] = {}  # rewrites per location since the op count was this low
        self.watch = Watch(rw, config.expensive_checks, config.log) if config.expensive_checks or config.log else None
        self.random = None if config.seed is None else random.Random(config.seed)

    def run(self) -> GreedyStats:
        rw, config = self.rw, self.config
        who = (self.patterns, config.effect, config.enable_constant_fold, config.enable_dce, current())
        allowed = current().rewrites_per_op * max(rw.order.count, 64)
        if config.max_iterations is not None:
            allowed = min(allowed, config.max_iterations)
        self.left = allowed
        touched = rw.touched_since_done(who)
        try:
            self.begin() if touched is None else self.go_on(touched)
            rw.listen = self.touched
            self.drain()
        finally:
            rw.listen = None
        if not self.queued and not self.seeds:
            rw.mark_done(who)
            if config.expensive_checks:
                self.check_fixpoint()
        elif allowed != config.max_iterations:
            raise self.endless(allowed, 0)
        return self.stats

    def endless(self, rewrites: int, loc: Loc) -> Endless:
        rules = sorted(set(self.recent))
        names = ", ".join(f"`{n}`" for n in rules)
        how = "undo each other" if len(rules) > 1 else "is applied again and again"
        return Endless(f"{rewrites} rewrites reach no fixpoint: {names} {how}", rules, loc)

    def check_fixpoint(self) -> None:
        """Try all patterns once more. Raises BrokenPattern for a pattern that matches now: it looks deeper than its `depth` or
        its looks declare."""
        for op in list(self.rw.order.current_ops()):
            if self.rw.alive(op) and not self.rw.idle(op):
                result = self.patterns.candidates(op)
                floats = has_floats(op)
                for p in result.patterns:
                    if (p.effect <= self.effect or not floats) and p.match_and_rewrite(op, self.rw):
                        message = f"`{p.name}` matches {op_text(op)} and was not tried again: is its depth {p.depth}?"
                        raise BrokenPattern(message, p.name)

    # The worklist

    def begin(self) -> None:
        """Put all ops except constants on the worklist. Dead ops are erased first; with `fold_first`, elementwise ops on
        constants are folded."""
        rw = self.rw
        if self.config.enable_dce:
            ops = [op for block in rw.blocks() for op in block.body] if self.watch is not None else []
            self.stats.erased += rw.erase_dead()
            if self.watch is not None:
                self.watch.swept(ops)
        if self.random is None:
            if self.fold_first:
                rw.listen = self.freed
                self.fold_constants()
                self.sweep()
            self.seeds = len(rw.order.ops)
        else:
            self.stack = [op for op in rw.order.current_ops() if not op.defn.is_constant]
            self.queued = dict.fromkeys(self.stack, _SEED)

    def fold_constants(self) -> None:
        """Fold elementwise ops on constants, then those whose operands have become constants, and so on."""
        constants = [op for op in self.rw.order.current_ops() if op.defn.is_constant]
        while constants and self.left > 0:
            users = dict.fromkeys([user for op in constants for user in self.rw.users_of(op.results[0])])
            ready = [op for op in users if _on_constants(op) and self.may_fold(op)]
            constants = [op for op, entry in self.folded(ready) if self.take(op, entry)]

    def freed(self, op: Op, event: Event) -> None:
        """The listener before there is a worklist."""
        if event is FREED and self.rw.unused(op):
            self.dead.append(op)
        elif self.watch is not None:
            self.watch.changed.append(op)

    def go_on(self, touched: list[Op]) -> None:
        """Put on the worklist the ops that were `touched` since this block was done, and ops with regions, which may have
        changed."""
        rw = self.rw
        rw.listen = self.touched  # the listener is called for freed ops, too
        with_regions = [op for op in rw.order.current_ops() if op.regions]
        for op in dict.fromkeys([*with_regions, *touched]):
            if rw.alive(op):
                gone = self.config.enable_dce and rw.unused(op)
                self.touched(op, FREED if op.defn.is_constant or gone else CHANGED)
        self.sweep()

    def touched(self, op: Op, event: Event) -> None:
        """The rewriter inserted `op`, changed it, or removed a use of its results so that few are left."""
        if event is FREED:
            for v in op.results:
                if v.users:
                    if v.type.__class__ is TupleType:  # patterns at `op` may depend on uses of the whole tuple
                        self.queue(op, 0)
                    return self.requeue_users(op, 1, -1, uses=True)
            return self.dead.append(op)
        if self.watch is not None:
            self.watch.changed.append(op)
        if op.defn.is_constant and event is INSERTED:
            self.dead.append(op)  # unless it is used by then
        elif op.defn.is_constant:
            self.requeue_users(op, 0, -1)  # as for a new operand: ops that look through a broadcast of it are queued, too
        else:
            self.queue(op, _NEW if event is INSERTED else 0)

    def queue(self, op: Op, distance: int) -> None:
        """Put `op` on the worklist after a change `distance` levels below it."""
        before = self.queued.get(op)
        if before is None and op.slot < self.seeds:  # not visited yet, or erased
            before = _SEED
        if before is None:
            (self.later if len(op.operands) > _WIDE else self.stack).append(op)
            self.queued[op] = distance
        elif before < 0 == distance:  # its users may have been visited already
            self.requeue_users(op, 1, -1)
        elif distance < before:
            self.queued[op] = distance

    def requeue_users(self, op: Op, distance: int, levels: int, uses: bool = False) -> None:
        """Put on the worklist the users that look down to `op`, `distance` below them; bit k of `levels`: `op` may be k - 1
        levels below the root of a pattern that looks at the change. `uses`: its uses changed."""
        watching = self.watchers[uses]
        for v in op.results:
            if not (watchers := watching[FLOATS[v.type]][op.defn]):
                continue
            for user in v.users:
                if user.__class__ is Op and (at := watchers.get(user.defn, 0) & levels):
                    if at & 1:
                        self.queue(user, distance)
                    if at > 1:
                        self.requeue_users(user, distance + 1, at >> 1, uses)

    def drain(self) -> None:
        """Visit the ops on the worklist until it is empty, or no more rewrites are allowed."""
        stack, queued, dead, ops = self.stack, self.queued, self.dead, self.rw.order.ops
        candidates, unused, kept, idle = self.patterns.candidates, self.rw.unused, self.rw.kept, self.rw.idle
        rooted = None if self.config.enable_constant_fold else self.patterns.by_root  # without folding, other ops are skipped
        while self.left > 0:
            if stack:
                op = self.popped() if self.random is not None else stack.pop()
                distance = queued.pop(op)
            elif self.seeds:
                self.seeds -= 1
                if (seed := ops[self.seeds]) is None or seed.defn.is_constant or (rooted is not None and seed.defn not in rooted):
                    continue
                op, distance = seed, _SEED
            elif self.later:  # a wide op is visited once after all its operands
                stack.extend(self.later)
                self.later.clear()
                continue
            elif self.try_again():
                continue
            else:
                break
            if not op.slot or (kept and idle(op)):
                continue
            if distance == _NEW and unused(op):
                dead.append(op)
                self.sweep()
                if not op.slot:
                    continue
            result = candidates(op)
            if result.positions and distance < result.depth:
                result = self.patterns.narrow(result, op.operands)
            if result.depth and distance < result.depth and self.visit(op, result, distance):
                if dead:
                    self.sweep()
            elif distance == 0:
                self.requeue_users(op, 1, -1)

    def try_again(self) -> bool:
        """Queue the ops whose rewrite was refused because an error would vanish, if anything was edited since."""
        rw = self.rw
        if not rw.refused or self.tried == rw.edits:
            return False
        self.tried = rw.edits
        ops = [op for op in rw.order.current_ops() if op in rw.refused]
        rw.refused.clear()
        for op in ops:
            self.queue(op, 0)
        return bool(ops)

    def popped(self) -> Op:
        """Any op on the stack (tests)."""
        assert self.random is not None
        at = self.random.randrange(len(self.stack))
        self.stack[at], self.stack[-1] = self.stack[-1], self.stack[at]
        return self.stack.pop()

    def sweep(self) -> None:
        """Erase ops that have lost their last use, and ops that only these used."""
        dead, erase, dce = self.dead, self.rw.erase_unused, self.config.enable_dce
        while dead:
            op = dead.pop()
            if dce and op.slot and erase(op):
                self.stats.erased += 1
                if self.watch is not None:
                    self.watch.swept([op])

    # Rewriting one op

    def visit(self, op: Op, result: Candidates, distance: int) -> bool:
        """Apply the first pattern that matches at `op`, or fold it. Returns whether anything changed. Patterns that look no
        further than `distance` have failed."""
        in_reach = distance < FOLD_DEPTH
        if (first := self.fold_first and result.folds) and in_reach and self.fold(op, declared_fold):
            return True
        patterns = result.allowed[self.effect]
        if len(patterns) < len(result.patterns) and not has_floats(op):
            patterns = result.patterns
        if (model := self.config.cost_model) is not None:
            patterns = tuple(sorted(patterns, key=lambda p: -model(op, p, self.rw)))
        for p in patterns:
            if p.depth <= distance or (self.broken and p.name in self.broken):
                continue
            edits = self.rw.edits
            try:
                done = p.match_and_rewrite(op, self.rw) if self.watch is None else self.watched(op, p)
            except Exception as error:
                raise self.failed(p.name, op, error) from error
            if done is not True and done is not False:
                raise self.lied(p, op, f"it returned {done!r}, not True or False")
            if not done and self.rw.edits != edits and _place_of(p) != OURS:  # it would be tried again for ever
                raise self.lied(p, op, "it changed the program and returned False")
            if done:
                self.stats.rewrites += 1
                self.stats.patterns[p.name] += 1
                self.did(p.name, op)
                if self.rw.alive(op):
                    self.queue(op, 0)
                    self.fold(op)
                return True
        return in_reach and (result.computes or (result.folds and not first)) and self.fold(op)

    def watched(self, op: Op, p: Pattern) -> bool:
        return self.watch is not None and self.watch.step(p.name, op, lambda: p.match_and_rewrite(op, self.rw))

    def failed(self, rule: str, op: Op, error: Exception) -> Exception:
        """The exception to raise after a rule has raised `error` at `op`."""
        if self.broken is None or isinstance(error, (LimitExceeded, MemoryError, BrokenPattern)):
            error.add_note(f"in pattern `{rule}` at {op_text(op)}")
            return error
        return _Failed(rule, op, error)

    def lied(self, p: Pattern, op: Op, how: str) -> Exception:
        """The exception to raise after a pattern returned what is not so."""
        return TypeError(how) if self.broken is None else _Failed(p.name, op, TypeError(how), _place_of(p))

    def may_fold(self, op: Op) -> bool:
        """Whether ops like `op` may be folded: it is enabled and has not failed."""
        return self.config.enable_constant_fold and not (self.broken and _folding(op) in self.broken)

    def folded(self, ops: Sequence[Op]) -> Iterator[tuple[Op, FoldResult]]:
        """The fold result of each of `ops`."""
        result = fold_each(ops, self.rw)
        for op in ops:
            try:
                yield next(result)
            except StopIteration:
                return
            except Exception as error:
                raise self.failed(_folding(op), op, error) from error

    def fold(self, op: Op, by: Callable[[Op], FoldResult] | None = None) -> bool:
        """Fold `op`: replace it by an equal value or a constant."""
        if not self.may_fold(op):
            return False
        try:
            return self.take(op, by(op) if by is not None else try_fold(op, self.rw))
        except LimitExceeded:
            raise
        except Exception as error:
            raise self.failed(_folding(op), op, error) from error

    def take(self, op: Op, result: FoldResult) -> bool:
        """Replace `op` by the result of its fold, if there is one."""
        if self.left <= 0 or not isinstance(result, (ReplacedBy, Materialize)) or self.rw.idle(op):
            return False
        done = self.put(op, result) if self.watch is None else self.watch.step("fold", op, lambda: self.put(op, result))
        if done:
            self.stats.folds += 1
            self.did("fold", op)
        return done

    def put(self, op: Op, result: ReplacedBy | Materialize) -> bool:
        """Replace `op` by the result of its fold. False if a user must not get it (such as a constant index out of range) or
        the dialect has no such constant."""
        rw, v = self.rw, op.results[0]
        by = result.literal if isinstance(result, Materialize) else result.operand
        if not rw.accepts(v, by):
            return False
        if isinstance(by, Literal) and rw.dialect.constant and (isinstance(result, Materialize) or rw.is_result(v)):
            if not rw.has_constant(by):
                return False
            rw.become_constant(op, by)
        else:
            rw.replace(op, by)
        return True

    def did(self, name: str, op: Op) -> None:
        """Count a rewrite at `op`. Raises LimitExceeded if one place is rewritten again and again without removing an op."""
        self.left -= 1
        self.recent.append(name)
        ops, loc = self.rw.order.count, op.loc
        if ops < self.fewest:
            self.fewest = ops
            if self.again:
                self.again.clear()
        elif loc:  # new ops have the location of the ops that they replace
            self.again[loc] = n = self.again.get(loc, 0) + 1
            if n > _AGAIN + ops:
                raise self.endless(n, loc)
