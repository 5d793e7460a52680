"""Tests of translation between the IRs."""
