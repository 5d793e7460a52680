"""Formats of other projects, straight to and from PTIR. Each needs a package of its own, an extra, and imports it when it is used."""
