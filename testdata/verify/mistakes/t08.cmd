# FAIL[1]: ptir verify testdata/verify/mistakes/t08.json
