# RUN: ptir verify --max-errors 2 --diagnostics text testdata/verify/data/expands.json
