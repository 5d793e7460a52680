# RUN: ptir verify testdata/pto/25_bad_ub_overflow_a3.pto
