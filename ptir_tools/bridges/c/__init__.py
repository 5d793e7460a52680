"""PTIR as one C99 file without dependencies."""
