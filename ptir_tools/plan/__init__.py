"""A place in memory for every value."""
