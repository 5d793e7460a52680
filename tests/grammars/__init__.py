"""Tests of grammars and all that recognizes text."""
