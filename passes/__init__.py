"""Passes: one per file, `<dialect>/<name>.py`; those that no dialect owns stand at the top."""
