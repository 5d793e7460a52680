# RUN: ptir run testdata/run/softmax.ptir --random 0 --engine numpy --compare reference --precision 4
