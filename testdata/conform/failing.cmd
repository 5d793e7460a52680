# FAIL[1]: ptir conform tiny testdata/conform/wrong
