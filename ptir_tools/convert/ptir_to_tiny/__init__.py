"""PTIR to Tiny."""
