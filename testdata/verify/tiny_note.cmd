# RUN: ptir verify testdata/verify/data/expand.json
