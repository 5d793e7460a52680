# FAIL[2]: ptir run testdata/run/add.ptir --input x=1
