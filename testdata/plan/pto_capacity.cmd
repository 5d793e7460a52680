# FAIL[1]: ptir plan testdata/pto/25_bad_ub_overflow_a3.pto
