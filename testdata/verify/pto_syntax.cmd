# FAIL[1]: ptir verify testdata/pto/38_bad_syntax.pto
