"""Tests of the rewrite system and its rules."""
