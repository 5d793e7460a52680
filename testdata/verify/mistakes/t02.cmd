# FAIL[1]: ptir verify testdata/verify/mistakes/t02.json
