# FAIL[2]: ptir opt --print-ir-before nothing testdata/opt/pipeline.ptir
