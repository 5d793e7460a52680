"""Formats of other projects, straight to and from PTIR. Each imports the package that it needs when it is used."""
