# FAIL[2]: ptir run testdata/run/softmax.ptir --input x=1 --print-values %q
