# RUN: ptir translate testdata/ptir/dump/d08_cond_branch.json --to ptir-dump
