# FAIL[2]: ptir targets a7
