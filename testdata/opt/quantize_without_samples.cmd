# FAIL[2]: ptir opt -p quantize testdata/opt/quantize.ptir
