# RUN: ptir plan --strict --to csv testdata/pto/01_vector_add_subview.pto
