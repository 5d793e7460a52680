"""Text PTIR, the form that people write and `ptir` prints."""
