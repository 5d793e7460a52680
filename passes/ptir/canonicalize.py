"""PTIR's canonical form: the rules of `dialects.ptir.rewrites`, folding and dead-code elimination, in one greedy driver."""

from __future__ import annotations

from ptir_tools.core.dialect import Program
from ptir_tools.dialects.ptir.rewrites.canonicalization import CANONICALIZATION
from ptir_tools.passes import PassContext
from ptir_tools.passes.ptir.dce import prune_regions
from ptir_tools.rewrite.driver import GreedyConfig
from ptir_tools.rewrite.pattern_set import FrozenPatternSet

OPTIONS = {"max-iterations": None}  # of rewrites and folds


def run(program: Program, context: PassContext) -> None:
    """Rewrite to canonical form: identities, chains, constants, movement through elementwise ops, known control flow."""
    apply(program, context, CANONICALIZATION)
    while prune_regions(program, context, joins=True):
        apply(program, context, CANONICALIZATION)


def apply(program: Program, context: PassContext, patterns: FrozenPatternSet, config: GreedyConfig | None = None) -> None:
    """Apply `patterns`, with folding, to every function and region; `config` is by default that of the context."""
    for rw in context.rewriters(program, live=config is None or config.enable_dce):
        ours = patterns is CANONICALIZATION  # do this first: else no-ops would be moved
        chosen = config or context.greedy(fold_first=ours)
        context.tally(context.drive(rw, patterns, chosen))
