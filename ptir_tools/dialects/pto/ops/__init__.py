"""The ops of PTO: importing this package declares them all."""

from ptir_tools.dialects.pto.ops import control, elementwise, fifo, irregular, matrix, memory, move, reduce, scalar

__all__ = ["control", "elementwise", "fifo", "irregular", "matrix", "memory", "move", "reduce", "scalar"]
