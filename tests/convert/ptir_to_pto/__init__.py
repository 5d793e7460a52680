"""Tests of translation of PTIR to tiles."""
