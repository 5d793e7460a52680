"""The codes of reading StableHLO."""

from ptir_tools.core.dialect import Code

EXPLAIN: tuple[Code, ...] = (
    Code(
        "UnsupportedStableHLO",
        "A StableHLO program has what PTIR cannot express. That is several devices, input and output while it runs, types that "
        "PTIR has not, extents that depend on data, or an unknown custom call. All such ops are reported at once, each "
        "with its reason.",
    ),
)
