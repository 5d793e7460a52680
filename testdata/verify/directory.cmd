# FAIL[1]: ptir verify testdata/verify/data/folder
