"""Rewrites of PTIR. `canonicalization` is the list that `canonicalize` applies; `contractions` and `raising` are lists of
their own."""

from ptir_tools.dialects.ptir import ops as ops  # declared before anything here looks them up
