"""The rewrites of `canonicalize` for PTIR: rules as text (`algebra`, `logic`, `movement`) and typed patterns. See
docs/rules-for-rules."""

from ptir_tools.dialects.ptir.rewrites.algebra import ALGEBRA
from ptir_tools.dialects.ptir.rewrites.axes import AXES
from ptir_tools.dialects.ptir.rewrites.choices import CHOICES
from ptir_tools.dialects.ptir.rewrites.control import CONTROL
from ptir_tools.dialects.ptir.rewrites.dots import DOTS
from ptir_tools.dialects.ptir.rewrites.extensions import EXTENSIONS
from ptir_tools.dialects.ptir.rewrites.indexing import INDEXING
from ptir_tools.dialects.ptir.rewrites.joins import JOINS
from ptir_tools.dialects.ptir.rewrites.logic import LOGIC
from ptir_tools.dialects.ptir.rewrites.loops import LOOPS
from ptir_tools.dialects.ptir.rewrites.motion import MOTION
from ptir_tools.dialects.ptir.rewrites.movement import MOVEMENT
from ptir_tools.dialects.ptir.rewrites.reductions import REDUCTIONS
from ptir_tools.dialects.ptir.rewrites.uniform import UNIFORM
from ptir_tools.rewrite.pattern_set import FrozenPatternSet, PatternSet
from ptir_tools.rewrite.patterns import named

_ALL = (
    *AXES,
    *UNIFORM,
    *ALGEBRA,
    *EXTENSIONS,
    *LOGIC,
    *CHOICES,
    *MOVEMENT,
    *MOTION,
    *JOINS,
    *INDEXING,
    *REDUCTIONS,
    *DOTS,
    *CONTROL,
    *LOOPS,
)


def populate_canonicalization(patterns: PatternSet, *ops: str) -> PatternSet:
    """Add every canonicalization of PTIR, or only those of `roots`: op names or families, such as `"ptir.transpose"`. Raises
    KeyError."""
    wanted = {d for name in ops for d in named(name)}
    return patterns.add(*(p for p in _ALL if not ops or any(d in wanted for root in p.roots for d in named(root))))


CANONICALIZATION: FrozenPatternSet = populate_canonicalization(PatternSet()).freeze()
