"""Tests of PTIR: its ops, texts and builder."""
