# FAIL[2]: ptir plan --order min-peak testdata/pto/01_vector_add_subview.pto
