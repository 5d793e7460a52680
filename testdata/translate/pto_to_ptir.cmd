# FAIL[1]: ptir translate testdata/pto/12_elementwise_chain.pto --to ptir
