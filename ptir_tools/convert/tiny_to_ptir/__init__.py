"""Tiny to PTIR."""
