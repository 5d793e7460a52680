# RUN: ptir opt testdata/pto/13_canonicalize_me.pto
