"""The rewrite system as a Python API, by the names of its specification: rewriter, patterns, folding, driver, passes.

    from ptir_tools.rewriting import *

    patterns = PatternSet().add(RemoveNoOpCast(), FuseUnaryThroughBroadcast()).freeze()
    manager = PassManager().add(CanonicalizePass(GreedyConfig(expensive_checks=True), patterns)).add(CSEPass()).add(DCEPass())
    manager.run(program)

These are the very objects that `ptir opt` is made of; docs/rules-for-rules.md shows how to write one's own.
"""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core.dialect import Program
from ptir_tools.core.records import dataclass, field
from ptir_tools.dialects.ptir.rewrites.canonicalization import CANONICALIZATION, populate_canonicalization
from ptir_tools.dialects.ptir.rewrites.views import (
    BinaryView,
    BroadcastView,
    CastView,
    OpRef,
    ReshapeView,
    TransposeView,
    UnaryView,
)
from ptir_tools.passes import Pass, PassContext, lookup, run_passes
from ptir_tools.passes.ptir import canonicalize
from ptir_tools.rewrite.driver import GreedyConfig, GreedyStats, apply_patterns_and_fold_greedily
from ptir_tools.rewrite.fold import NOTHING, FoldResult, Materialize, Nothing, ReplacedBy, try_fold
from ptir_tools.rewrite.pattern_set import FrozenPatternSet, PatternSet
from ptir_tools.rewrite.patterns import Effect, OpRewritePattern, OpView, Pattern, rewrites
from ptir_tools.rewrite.rewriter import Rewriter
from ptir_tools.rewrite.rules import rules
from ptir_tools.rewrite.step_log import BrokenPattern

__all__ = [
    "CANONICALIZATION", "NOTHING", "BinaryView", "BroadcastView", "BrokenPattern", "CSEPass", "CanonicalizePass", "CastView",
    "DCEPass", "Effect", "FoldResult", "FrozenPatternSet", "GreedyConfig", "GreedyStats", "Materialize", "Nothing", "OpRef",
    "OpRewritePattern", "OpView", "Pass", "PassContext", "PassManager", "Pattern", "PatternSet", "ReplacedBy", "ReshapeView",
    "Rewriter", "TransposeView", "UnaryView", "apply_patterns_and_fold_greedily", "default_pipeline",
    "populate_canonicalization", "rewrites", "rules", "try_fold",
]  # fmt: skip


@dataclass(slots=True, frozen=True)
class CanonicalizePass:
    """Drive `patterns`, with folding, over every function and region. Without patterns: the `canonicalize` of the program's IR,
    which in PTIR drives `CANONICALIZATION`. Without a `config` the context of the run says how."""

    config: GreedyConfig | None = None
    patterns: FrozenPatternSet | None = None
    name: str = "canonicalize"

    def run(self, program: Program, context: PassContext) -> None:
        """Rewrite to a fixpoint."""
        if self.config is None and self.patterns is None:
            lookup("canonicalize", program.dialect.name).run(program, context)
        else:
            canonicalize.apply(program, context, self.patterns or CANONICALIZATION, self.config)


@dataclass(slots=True, frozen=True)
class CSEPass:
    """Merge ops that compute the same value, as `cse` of the program's IR does."""

    name: str = "cse"

    def run(self, program: Program, context: PassContext) -> None:
        """Merge them."""
        lookup("cse", program.dialect.name).run(program, context)


@dataclass(slots=True, frozen=True)
class DCEPass:
    """Drop ops whose results no one reads, as `dce` of the program's IR does."""

    name: str = "dce"

    def run(self, program: Program, context: PassContext) -> None:
        """Drop them."""
        lookup("dce", program.dialect.name).run(program, context)


@dataclass(slots=True)
class PassManager:
    """Passes to run one after the other: ours, or any object with a `name` and `run(program, context)`."""

    passes: list[Pass] = field(default_factory=list)

    def add(self, *passes: Pass) -> PassManager:
        """Add passes at the end."""
        self.passes.extend(passes)
        return self

    def run(self, program: Program, context: PassContext | None = None) -> PassContext:
        """Run them on `program`, which verifies; the context has the statistics. Raises PassFailure when one breaks it."""
        return run_passes(program, self.passes, context)


def default_pipeline() -> Sequence[Pass]:
    """What the specification ships: canonicalize, then cse, then dce."""
    return (CanonicalizePass(), CSEPass(), DCEPass())
