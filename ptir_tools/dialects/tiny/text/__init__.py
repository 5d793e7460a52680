"""The JSON form of Tiny IR."""
