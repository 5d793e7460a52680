# RUN: ptir stats testdata/plan/symbolic.ptir
