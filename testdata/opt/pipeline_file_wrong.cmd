# FAIL[2]: ptir opt -p @testdata/opt/data/wrong_pipeline.txt testdata/opt/data/steps.ptir
