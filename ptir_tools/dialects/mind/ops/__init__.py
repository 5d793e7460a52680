"""Ops of the mind dialect, grouped as its specification groups them."""
