# RUN: ptir graph testdata/info/program.ptir
