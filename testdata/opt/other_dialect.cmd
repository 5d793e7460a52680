# FAIL[2]: ptir opt -p canonicalize,pto-canonicalize testdata/opt/pipeline.ptir
