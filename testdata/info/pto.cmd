# RUN: ptir info testdata/pto/03_matmul_moves_a3.pto
