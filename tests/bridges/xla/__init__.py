"""Tests of the bridge to XLA and JAX."""
