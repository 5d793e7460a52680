# FAIL[1]: ptir verify testdata/verify/mistakes/t04.json
