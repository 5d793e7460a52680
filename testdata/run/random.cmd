# RUN: ptir run testdata/run/add.ptir --random 0 --precision 4
