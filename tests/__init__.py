"""Tests. docs/testing.md describes the rooms."""
