# RUN: ptir run testdata/translate/data/gemm.json --bind M=2 --bind K=3 --bind N=2 --input A=iota --input B=2
