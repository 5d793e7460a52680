# RUN: ptir fmt testdata/pto/12_elementwise_chain.pto
