# FAIL[1]: ptir verify testdata/verify/mistakes/t06.json
