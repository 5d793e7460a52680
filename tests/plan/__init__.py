"""Tests of plans of memory and placement."""
