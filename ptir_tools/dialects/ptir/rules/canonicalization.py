"""What `canonicalize` does to PTIR: rules as text (`algebra`, `logic`, `movement`), typed patterns. See docs/rules-for-rules."""

from ptir_tools.core.patternset import FrozenPatternSet, PatternSet
from ptir_tools.dialects.ptir.rules.algebra import ALGEBRA
from ptir_tools.dialects.ptir.rules.axes import AXES
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


def populate_canonicalization(patterns: PatternSet) -> PatternSet:
    """Add every canonicalization of PTIR."""
    return patterns.add(
        *AXES, *UNIFORM, *ALGEBRA, *LOGIC, *MOVEMENT, *MOTION, *JOINS, *INDEXING, *REDUCTIONS, *DOTS, *CONTROL, *LOOPS
    )


CANONICALIZATION: FrozenPatternSet = populate_canonicalization(PatternSet()).freeze()
