# RUN: ptir run -q testdata/run/softmax.ptir --random 0 --engine numpy --compare reference --precision 4
