# RUN: ptir translate --to ptir --check testdata/translate/data/gemm.json
