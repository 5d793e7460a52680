"""What the ops of StableHLO and CHLO are in PTIR: handlers by meaning. Importing it fills the table."""

from ptir_tools.bridges.stablehlo.ops import (
    control as control,
    contractions as contractions,
    elementwise as elementwise,
    indexing as indexing,
    movement as movement,
    reductions as reductions,
    solving as solving,
)
