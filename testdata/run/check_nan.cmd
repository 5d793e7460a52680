# FAIL[1]: ptir run testdata/run/softmax.ptir --input x=inf --check-nan
