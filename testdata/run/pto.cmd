# RUN: ptir run testdata/pto/12_elementwise_chain.pto --input a=iota --input out=0 --full
