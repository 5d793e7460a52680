"""PTIR to MIND."""
