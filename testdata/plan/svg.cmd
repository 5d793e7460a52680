# RUN: ptir plan --to svg --align 1 testdata/plan/softmax.ptir
