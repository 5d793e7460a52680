# FAIL[1]: ptir translate testdata/ptir/dump/d08_cond_branch.json --to mind
