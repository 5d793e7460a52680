# FAIL[1]: ptir lit testdata/lit/data/wrong.ptir
