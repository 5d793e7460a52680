"""PTIR's canonical form: the rules of `dialects.ptir.rewrites`, folding and dead-code elimination, in one greedy driver."""

from __future__ import annotations

from ptir_tools.core.ir import Op, Program
from ptir_tools.dialects.ptir.rewrites.canonicalization import CANONICALIZATION
from ptir_tools.passes import PassContext
from ptir_tools.passes.ptir.dce import prune_regions
from ptir_tools.rewrite.driver import GreedyConfig
from ptir_tools.rewrite.pattern_set import FrozenPatternSet
from ptir_tools.rewrite.patterns import Effect, Pattern, has_floats
from ptir_tools.rewrite.rewriter import Rewriter
from ptir_tools.rewrite.step_log import op_text

OPTIONS = {"max-iterations": None}  # of rewrites and folds


def run(program: Program, context: PassContext) -> None:
    """Rewrite to canonical form: identities, chains, constants, movement through elementwise ops, known control flow."""
    apply(program, context, CANONICALIZATION)
    while prune_regions(program, context, joins=True):
        apply(program, context, CANONICALIZATION)


def apply(program: Program, context: PassContext, patterns: FrozenPatternSet, config: GreedyConfig | None = None) -> None:
    """Drive `patterns` with folding over every function and region, by default as the context asks."""
    for rw in context.rewriters(program, live=config is None or config.enable_dce):
        ours = patterns is CANONICALIZATION  # it moves no-ops about before they are gone
        chosen = config or context.greedy(fold_first=ours)
        context.tally(context.drive(rw, patterns, chosen))


def once(program: Program, context: PassContext, patterns: FrozenPatternSet, effect: Effect = Effect.RANGE) -> None:
    """Try `patterns` at each op, first to last, without folding; ops that are unused after a success go. Of floats only what
    changes them by `effect` at most. Each success is a step."""
    for rw in context.rewriters(program):
        done = 0
        for op in rw.body():
            for pattern in patterns.by_root.get(op.defn, ()):
                if rw.alive(op) and (pattern.effect <= effect or not has_floats(op)):
                    done += _tried(pattern, op, rw, context)
        context.count("erased", rw.erase_dead() if done else 0)


def _tried(pattern: Pattern, op: Op, rw: Rewriter, context: PassContext) -> bool:
    text, loc = op_text(op) if context.log is not None else "", op.loc
    if context.steps_left == 0 or not pattern.match_and_rewrite(op, rw):
        return False
    context.took(1)
    context.count(pattern.name)
    step = {"event": "changed op", "pattern": pattern.name, "root": text, "before": text, "after": []}
    context.record({**step, "loc": loc})
    return True
