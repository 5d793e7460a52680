# RUN: ptir translate testdata/translate/data/gemm.json --to ptir | ptir opt | ptir run - --bind M=2 --bind K=3 --bind N=2 --input A=iota --input B=2
