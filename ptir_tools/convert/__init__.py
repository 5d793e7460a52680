"""From one dialect to another, with PTIR as the hub."""
