# RUN: ptir info testdata/translate/data/gemm.json
