# RUN: ptir run testdata/run/add.ptir --input x=1 --input y=2 --engine reference
