# FAIL[2]: ptir opt -p "cse,,dce" testdata/opt/pipeline.ptir
