"""Tests of MIND Core IR."""
