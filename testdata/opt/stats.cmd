# RUN: ptir opt --stats testdata/opt/default.ptir
