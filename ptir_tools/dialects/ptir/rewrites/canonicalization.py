"""The rewrites of `canonicalize` for PTIR: rules as text (`algebra`, `logic`, `movement`) and typed patterns. See
docs/rules-for-rules."""

from ptir_tools.dialects.ptir.rewrites.algebra import ALGEBRA
from ptir_tools.dialects.ptir.rewrites.axes import AXES
from ptir_tools.dialects.ptir.rewrites.choices import CHOICES
from ptir_tools.dialects.ptir.rewrites.motion import MOTION
from ptir_tools.dialects.ptir.rewrites.uniform import UNIFORM
from ptir_tools.rewrite.pattern_set import FrozenPatternSet, Later, PatternSet
from ptir_tools.rewrite.patterns import Pattern, named


def _later(name: str, *roots: str) -> Later:
    """The list NAME of the module of that name, for these ops and families: no others may be roots there."""
    return Later(f"{__package__}.{name}", name.upper(), frozenset(f"ptir.{root}" for root in roots))


ALL: tuple[Pattern | Later, ...] = (
    *AXES,
    *UNIFORM,
    *ALGEBRA,
    _later(
        "extensions",
        *("bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor"),
        *("pow", "shift_left", "shift_right_arithmetic", "shift_right_logical"),
    ),
    _later("logic", "cast", "compare", "select"),
    *CHOICES,
    _later("movement", "elementwise_unary", "broadcast_to", "cast", "reshape", "slice", "tile", "transpose"),
    *MOTION,
    _later("joins", "concat", "pad", "slice"),
    _later(
        "indexing",
        *("broadcast_to", "cast", "dynamic_slice", "dynamic_update_slice", "gather"),
        *("iota", "reshape", "slice", "take", "transpose"),
    ),
    _later("reductions", "argmax", "reduce", "reduce_window", "reshape"),
    _later("dots", "cast", "dot_general", "reduce", "transpose"),
    _later("control", "cond"),
    _later("loops", "scan", "while"),
)


CANONICALIZATION = FrozenPatternSet(ALL)


def populate_canonicalization(patterns: PatternSet, *ops: str) -> PatternSet:
    """Add every canonicalization of PTIR, or only those of `roots`: op names or families, such as `"ptir.transpose"`. Raises
    KeyError."""
    wanted = {d for name in ops for d in named(name)}
    found = CANONICALIZATION.patterns
    return patterns.add(*(p for p in found if not ops or any(d in wanted for root in p.roots for d in named(root))))
