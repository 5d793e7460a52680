# FAIL[2]: ptir run testdata/run/add.ptir --random 0 -o %t/o.npy
