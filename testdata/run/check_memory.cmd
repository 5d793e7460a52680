# RUN: ptir run -q testdata/run/softmax.ptir --random 0 --engine numpy --check-memory --precision 4
