# FAIL[1]: ptir run testdata/translate/data/gemm.json --random 0
