"""StableHLO, the portable ops of XLA in MLIR's text: an input format. After reading, the program is PTIR."""
