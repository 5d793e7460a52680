# FAIL[2]: ptir translate --to pto --target a99 testdata/plan/softmax.ptir
