"""The ops of PTO: importing this package declares them all."""

from ptir_tools.dialects.pto.ops import control, elementwise, irregular, matrix, memory, move, reduce, scalar

__all__ = ["control", "elementwise", "irregular", "matrix", "memory", "move", "reduce", "scalar"]
