# RUN: ptir run testdata/run/data/open.pto --input a=iota --input out=0 --shape a=3,8
