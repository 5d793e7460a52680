# RUN: ptir translate --to ptir testdata/ptir/dump/d08_cond_branch.json | ptir hash
