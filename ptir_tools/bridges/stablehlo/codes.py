"""The codes of reading StableHLO."""

from ptir_tools.core.dialect import Code

EXPLAIN: tuple[Code, ...] = (
    Code(
        "UnsupportedStableHLO",
        "PTIR cannot express a part of a StableHLO program. Examples are several devices, input and output during a run, "
        "extents that depend on data, and unknown custom calls. All such ops are reported in one run, each with its reason.",
    ),
)
