# FAIL[1]: ptir plan testdata/plan/softmax.ptir --check-plan testdata/plan/data/overlap.json
