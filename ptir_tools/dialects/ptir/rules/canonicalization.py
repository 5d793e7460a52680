"""What `canonicalize` does to PTIR: rules as text (`algebra`, `movement`) and typed patterns. See docs/rules-for-rules.md."""

from ptir_tools.core.patternset import FrozenPatternSet, PatternSet
from ptir_tools.dialects.ptir.rules.algebra import ALGEBRA
from ptir_tools.dialects.ptir.rules.axes import AXES
from ptir_tools.dialects.ptir.rules.control import CONTROL
from ptir_tools.dialects.ptir.rules.joins import JOINS
from ptir_tools.dialects.ptir.rules.movement import MOVEMENT
from ptir_tools.dialects.ptir.rules.reductions import REDUCTIONS
from ptir_tools.dialects.ptir.rules.uniform import UNIFORM


def populate_canonicalization(patterns: PatternSet) -> PatternSet:
    """Add every canonicalization of PTIR."""
    return patterns.add(*AXES, *UNIFORM, *ALGEBRA, *MOVEMENT, *JOINS, *REDUCTIONS, *CONTROL)


CANONICALIZATION: FrozenPatternSet = populate_canonicalization(PatternSet()).freeze()
