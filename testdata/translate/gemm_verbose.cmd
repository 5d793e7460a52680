# RUN: ptir translate --to ptir -v --bind M=2 testdata/translate/data/gemm.json
