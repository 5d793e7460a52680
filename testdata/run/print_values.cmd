# RUN: ptir run testdata/run/softmax.ptir --input x=1 --print-values %e,%sum --precision 4
