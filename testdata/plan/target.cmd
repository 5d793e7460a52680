# RUN: ptir plan --target a3 testdata/plan/softmax.ptir
