"""Passes of the tiny dialect."""
