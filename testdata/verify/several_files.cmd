# FAIL[4]: ptir verify --diagnostics short testdata/verify/ok.ptir testdata/verify/missing.ptir testdata/verify/unknown_op.ptir
