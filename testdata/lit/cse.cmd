# RUN: ptir lit -p cse,dce testdata/lit/cse.lit
