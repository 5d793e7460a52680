"""PTIR written in Python."""
