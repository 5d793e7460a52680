# RUN: ptir graph testdata/info/program.ptir --to svg
