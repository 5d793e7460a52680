"""The linalg lowering of MIND modules, as text."""
