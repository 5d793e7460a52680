"""Formats of other projects, converted directly to and from PTIR. Each loads its package when it is used."""
