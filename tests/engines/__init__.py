"""Tests of engines, and what is computed."""
