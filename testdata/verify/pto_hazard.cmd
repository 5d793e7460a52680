# FAIL[1]: ptir verify testdata/pto/26_bad_missing_wait.pto
