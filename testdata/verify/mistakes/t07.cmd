# FAIL[1]: ptir verify testdata/verify/mistakes/t07.json
