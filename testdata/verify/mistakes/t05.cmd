# FAIL[1]: ptir verify testdata/verify/mistakes/t05.json
