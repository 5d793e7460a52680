# RUN: ptir run testdata/run/add.ptir --input x=[1,2,3] --input y=10 --engine numpy --compare reference
