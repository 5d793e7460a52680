# RUN: ptir fix --diff testdata/fix/function.ptir
