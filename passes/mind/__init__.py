"""Passes of the mind dialect."""
