"""Ops of the tiny dialect, grouped as its specification groups them."""
