"""Handlers of StableHLO and CHLO ops, in files by topic. Importing it fills the table."""

from ptir_tools.bridges.stablehlo.ops import bits as bits
from ptir_tools.bridges.stablehlo.ops import contractions as contractions
from ptir_tools.bridges.stablehlo.ops import control as control
from ptir_tools.bridges.stablehlo.ops import elementwise as elementwise
from ptir_tools.bridges.stablehlo.ops import indexing as indexing
from ptir_tools.bridges.stablehlo.ops import lapack as lapack
from ptir_tools.bridges.stablehlo.ops import movement as movement
from ptir_tools.bridges.stablehlo.ops import reductions as reductions
from ptir_tools.bridges.stablehlo.ops import sharded as sharded
from ptir_tools.bridges.stablehlo.ops import solving as solving
