# RUN: ptir run testdata/run/trace --input 0=[1.0,2.0]
