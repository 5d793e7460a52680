# RUN: ptir opt -p pto{target=a3} testdata/pto/12_elementwise_chain.pto | ptir translate --to ptoas
