"""Rewrites of PTIR: `canonicalization` gathers what `canonicalize` does; `decompose` and `contractions` stand apart."""

from ptir_tools.dialects.ptir import ops as ops  # declared before anything here looks them up
