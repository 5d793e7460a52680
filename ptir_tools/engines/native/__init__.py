"""PTIR with C tile kernels where they cover it, NumPy steps elsewhere."""
