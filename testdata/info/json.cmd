# RUN: ptir info --json testdata/info/program.ptir
