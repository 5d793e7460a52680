# RUN: ptir verify -q testdata/verify/data/expand.json
