# RUN: ptir verify --max-errors 2 --diagnostics short testdata/verify/data/expands.json
