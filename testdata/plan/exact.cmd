# FAIL[2]: ptir plan --algorithm exact testdata/plan/softmax.ptir
