"""Passes of the ptir dialect."""
