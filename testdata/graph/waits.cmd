# RUN: ptir graph testdata/pto/08_async_pipeline.pto
