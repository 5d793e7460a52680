"""Tests of Tiny IR."""
