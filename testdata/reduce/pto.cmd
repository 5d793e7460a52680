# RUN: ptir reduce testdata/pto/01_vector_add_subview.pto --check 'grep -q store'
