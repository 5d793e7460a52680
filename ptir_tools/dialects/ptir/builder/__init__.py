"""The builder: PTIR programs from Python."""

from ptir_tools.dialects.ptir import ops as ops  # declared before anything here looks them up
