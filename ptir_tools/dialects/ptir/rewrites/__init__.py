"""Rewrites of PTIR: `canonicalization` gathers what `canonicalize` does; `decompose` and `contractions` stand apart."""
