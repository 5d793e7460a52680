"""Ops of the pto dialect, grouped as its specification groups them."""
