# RUN: ptir verify --max-errors 2 --diagnostics json testdata/verify/data/expands.json
