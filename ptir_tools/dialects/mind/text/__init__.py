"""The text form of MIND Core IR, and its records."""
