# FAIL[1]: ptir verify --strict testdata/verify/data/expand.json
