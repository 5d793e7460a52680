"""What `canonicalize` does to PTIR: rules as text (`algebra`, `logic`, `movement`), typed patterns. See docs/rules-for-rules."""

from ptir_tools.core.patterns import named
from ptir_tools.core.patternset import FrozenPatternSet, PatternSet
from ptir_tools.dialects.ptir.rules.algebra import ALGEBRA
from ptir_tools.dialects.ptir.rules.axes import AXES
from ptir_tools.dialects.ptir.rules.choices import CHOICES
from ptir_tools.dialects.ptir.rules.control import CONTROL
from ptir_tools.dialects.ptir.rules.dots import DOTS
from ptir_tools.dialects.ptir.rules.indexing import INDEXING
from ptir_tools.dialects.ptir.rules.joins import JOINS
from ptir_tools.dialects.ptir.rules.logic import LOGIC
from ptir_tools.dialects.ptir.rules.loops import LOOPS
from ptir_tools.dialects.ptir.rules.motion import MOTION
from ptir_tools.dialects.ptir.rules.movement import MOVEMENT
from ptir_tools.dialects.ptir.rules.reductions import REDUCTIONS
from ptir_tools.dialects.ptir.rules.uniform import UNIFORM

_ALL = (*AXES, *UNIFORM, *ALGEBRA, *LOGIC, *CHOICES, *MOVEMENT, *MOTION, *JOINS, *INDEXING, *REDUCTIONS, *DOTS, *CONTROL, *LOOPS)


def populate_canonicalization(patterns: PatternSet, *ops: str) -> PatternSet:
    """Add every canonicalization of PTIR, or those of some ops or families: `"ptir.transpose"`. Raises KeyError."""
    wanted = {d for name in ops for d in named(name)}
    return patterns.add(*(p for p in _ALL if not ops or any(d in wanted for root in p.roots for d in named(root))))


CANONICALIZATION: FrozenPatternSet = populate_canonicalization(PatternSet()).freeze()
