# FAIL[2]: ptir run testdata/run/add.ptir --random 0 --input x=[1,2]
