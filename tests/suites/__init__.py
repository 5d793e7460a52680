"""Public suites of other projects: what the bridges read, run and get right, counted."""
