# RUN: ptir opt --check testdata/opt/default.ptir
