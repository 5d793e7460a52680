"""Known custom calls ("kernels"): recognition in programs, and expansion."""
