# RUN: ptir plan --to csv --align 1 testdata/plan/softmax.ptir
