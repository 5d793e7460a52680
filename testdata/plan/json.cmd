# RUN: ptir plan --to json testdata/plan/softmax.ptir
