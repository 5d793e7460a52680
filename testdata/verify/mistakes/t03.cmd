# FAIL[1]: ptir verify testdata/verify/mistakes/t03.json
