# RUN: ptir run testdata/ptir/dump/d08_cond_branch.json --random 0 --precision 4
