"""Tiny's UOps, each declared once. INPUT is not among them: it is a parameter of the function."""

from ptir_tools.dialects.tiny.ops import elementwise, movement, reduce, view

__all__ = ["elementwise", "movement", "reduce", "view"]
