# FAIL[1]: ptir translate --to pto-cpp testdata/pto/08_async_pipeline.pto
