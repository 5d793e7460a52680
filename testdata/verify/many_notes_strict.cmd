# FAIL[1]: ptir verify --strict --max-errors 2 --diagnostics text testdata/verify/data/expands.json
