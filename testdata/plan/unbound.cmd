# FAIL[1]: ptir plan testdata/plan/symbolic.ptir
