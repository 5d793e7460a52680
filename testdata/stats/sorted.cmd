# RUN: ptir stats --sort cost testdata/plan/softmax.ptir
