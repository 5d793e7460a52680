# RUN: ptir lit --gptrs -p cse,dce testdata/lit/cse.lit
