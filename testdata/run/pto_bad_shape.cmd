# FAIL[2]: ptir run testdata/run/data/open.pto --random 0 --shape a=3
