# FAIL[1]: ptir opt testdata/verify/unknown_op.ptir
