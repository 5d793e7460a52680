"""Tests of the bridge to StableHLO."""
