"""Tests of the native engine."""
