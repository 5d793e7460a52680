# FAIL[3]: ptir plan --limit 63 testdata/plan/softmax.ptir
