"""What PTIR's ops mean, told a second time, without the package: for every op, dtypes, cases and a meaning by hand.

`table` says which dtypes an op takes (the table of the command-line contract), `cases` draws operands of many shapes, and the
files `by_hand_*` compute what must come out: in Python integers and float64, element by element where that says it best.
`check` compares. `in_torch` and `in_stablehlo` say the same once more for those who have torch or jaxlib.
"""
