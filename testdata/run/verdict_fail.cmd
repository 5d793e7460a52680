# FAIL[1]: ptir run testdata/run/add.ptir --input x=[1,2,3] --input y=10 -o %t/a.npz | ptir run testdata/run/add.ptir --input x=[1,2,4] --input y=10 --expect %t/a.npz
