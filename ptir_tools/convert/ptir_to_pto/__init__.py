"""PTIR to PTO."""
