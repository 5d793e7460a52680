# RUN: ptir verify testdata/pto/01_vector_add_subview.pto testdata/pto/08_async_pipeline.pto
