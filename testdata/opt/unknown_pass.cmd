# FAIL[2]: ptir opt -p canonicalise testdata/opt/pipeline.ptir
