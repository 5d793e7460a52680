"""The codes of reading StableHLO."""

from ptir_tools.core.dialect import Code

EXPLAIN: tuple[Code, ...] = (
    Code(
        "UnsupportedStableHLO",
        "A StableHLO program has what PTIR cannot express: several devices, input and output while it runs, quantized types and "
        "small floats that PTIR has not, extents that depend on data, a custom call that no one knows. All such ops are reported "
        "at once, each with its reason.",
    ),
)
