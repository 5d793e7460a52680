# FAIL[2]: ptir run testdata/run/softmax.ptir --random 0 --engine reference --check-memory
