# RUN: ptir translate --to pto-as testdata/pto/08_async_pipeline.pto
