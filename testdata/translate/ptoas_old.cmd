# RUN: ptir opt -p pto{target=a3} testdata/pto/03_matmul_moves_a3.pto | ptir translate --to ptoas --dialect-version 0.1
