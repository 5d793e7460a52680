"""Passes of the pto dialect."""
