# FAIL[1]: ptir run testdata/run/data/open.pto --random 0
