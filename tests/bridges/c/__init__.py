"""Tests of PTIR as C."""
