# FAIL[1]: ptir verify --diagnostics junit testdata/verify/ok.ptir testdata/verify/unknown_op.ptir
