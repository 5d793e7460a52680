# RUN: ptir run testdata/run/iota.ptir
