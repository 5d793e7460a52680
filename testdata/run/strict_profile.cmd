# FAIL[1]: ptir run --profile strict testdata/verify/data/expand.json --random 0
