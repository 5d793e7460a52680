"""Kernels: custom calls that this toolkit knows, found in programs and expanded again."""
