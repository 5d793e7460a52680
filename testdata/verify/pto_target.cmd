# FAIL[1]: ptir verify --target a3 testdata/pto/11_target_a5_bf16_add.pto
