# RUN: ptir hash --canonical --symbol testdata/ptir/dump/d08_cond_branch.json
