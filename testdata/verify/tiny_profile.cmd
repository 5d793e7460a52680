# FAIL[1]: ptir verify --profile strict testdata/verify/data/expand.json
