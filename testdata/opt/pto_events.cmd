# RUN: ptir opt -p pto-insert-events testdata/pto/12_elementwise_chain.pto
