"""PTIR on whole NumPy arrays, planned into one arena."""
