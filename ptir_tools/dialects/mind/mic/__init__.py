"""MIND's IR as its own tool writes it: `mic@1`, and the listing of `--emit-ir`."""
