# FAIL[4]: ptir verify testdata/verify/missing.ptir
