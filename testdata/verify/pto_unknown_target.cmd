# FAIL[2]: ptir verify --target a9 testdata/pto/12_elementwise_chain.pto
