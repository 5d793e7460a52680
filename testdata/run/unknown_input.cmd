# FAIL[2]: ptir run testdata/run/add.ptir --random 0 --input z=1
