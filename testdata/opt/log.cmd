# RUN: ptir opt --log-rewrites %t/log testdata/opt/default.ptir
