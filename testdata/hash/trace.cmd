# RUN: ptir hash testdata/run/trace
