# FAIL[1]: ptir lit testdata/lit/malformed.lit
