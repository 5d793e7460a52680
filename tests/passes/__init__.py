"""Tests of passes of PTIR, MIND and Tiny."""
