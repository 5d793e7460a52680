"""Ops of the ptir dialect, grouped as its specification groups them."""
