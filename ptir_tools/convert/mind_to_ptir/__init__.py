"""MIND to PTIR."""
