# RUN: ptir fmt testdata/tiny/seed_5_1_gemm.json
