# FAIL[3]: ptir run testdata/run/huge.ptir --random 0 --max-memory 12G
