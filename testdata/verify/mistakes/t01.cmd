# FAIL[1]: ptir verify testdata/verify/mistakes/t01.json
