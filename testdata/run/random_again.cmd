# RUN: ptir run testdata/run/add.ptir --input x=0 --random 0 --precision 4
