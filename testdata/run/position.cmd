# RUN: ptir run testdata/run/add.ptir --input 0=iota --input 1=0.5
