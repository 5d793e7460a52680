# FAIL[2]: ptir opt -p "canonicalize{speed=9}" testdata/opt/pipeline.ptir
