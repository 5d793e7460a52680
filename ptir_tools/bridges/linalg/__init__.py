"""Algorithms of linear algebra as programs of PTIR: loops over the rows and columns of matrices of known extents."""
