# FAIL[2]: ptir run --random 0 --dump-dir %t/trace testdata/pto/01_vector_add_subview.pto
